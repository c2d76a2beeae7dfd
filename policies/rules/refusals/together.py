"""What AWS refuses of resources together: each of them would be right by itself.

A validator here is a generator over the stack's resources; who names whom is found as `_join` says.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Network

from pulumi_policy import PolicyResource

from .._join import of_type, points_to
from .._judge import UNKNOWN, leaves, read
from . import interfaces
from ._catalog import INSTANCE_TYPES
from ._validator import Inputs, Named, NotKnown, known

VPC, SUBNET = "aws:ec2/vpc:Vpc", "aws:ec2/subnet:Subnet"
TEMPLATE, GROUP = "aws:ec2/launchTemplate:LaunchTemplate", "aws:autoscaling/group:Group"
SCHEDULE = "aws:autoscaling/schedule:Schedule"
SECURITY_GROUP = "aws:ec2/securityGroup:SecurityGroup"
RULES = {
    "ingress": "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule",
    "egress": "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule",
}
BUCKET = "aws:s3/bucket:Bucket"
LIFECYCLE = "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration"
FILE_SYSTEM = "aws:fsx/lustreFileSystem:LustreFileSystem"
ASSOCIATION = "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation"
MIXED = "mixedInstancesPolicy.launchTemplate"
MAX_RULES = 60  # inbound or outbound of a security group; VPC quota L-0EA8095F
MAX_ASSOCIATIONS = 8

Stack = list[PolicyResource]
Found = tuple[PolicyResource, str | NotKnown]


@dataclass(frozen=True)
class JoinedValidator(Named):
    """Over all resources of a stack."""

    find: Callable[[Stack], Iterator[Found]]
    types: frozenset[str]
    fix: str


def _blocks(subnets: Stack) -> Iterator[tuple[PolicyResource, IPv4Network]]:
    for subnet in subnets:
        text = known(read(subnet.props, "cidrBlock"))
        if text is not None:
            try:
                yield subnet, IPv4Network(str(text))
            except ValueError:
                continue  # told by block-is-of-a-possible-size


def subnets_lie_within_their_vpc(stack: Stack) -> Iterator[Found]:
    """A subnet's block is part of its VPC's."""
    for subnet in of_type(stack, SUBNET):
        if read(subnet.props, "cidrBlock") is UNKNOWN:
            yield subnet, NotKnown("cidrBlock")
    for vpc, outer in _blocks(of_type(stack, VPC)):
        for subnet, inner in _blocks(of_type(stack, SUBNET)):
            if points_to(subnet, "vpcId", vpc, keys=("id",)) and not inner.subnet_of(outer):
                yield subnet, f"cidrBlock: {inner} is outside the VPC's {outer}"


def subnets_do_not_overlap(stack: Stack) -> Iterator[Found]:
    """Subnets of one VPC share no address."""
    for vpc in of_type(stack, VPC):
        own = [s for s in of_type(stack, SUBNET) if points_to(s, "vpcId", vpc, keys=("id",))]
        blocks = list(_blocks(own))
        for place, (subnet, block) in enumerate(blocks):
            for other, before in blocks[:place]:
                if block.overlaps(before):
                    yield subnet, f"cidrBlock: {block} overlaps {before} of {other.name}"


def security_group_rules_are_few(stack: Stack) -> Iterator[Found]:
    """At most 60 rules a direction (VPC quota L-0EA8095F, which AWS raises on request)."""
    for group in of_type(stack, SECURITY_GROUP):
        for direction, type_ in RULES.items():
            rules = [r for r in of_type(stack, type_) if points_to(r, "securityGroupId", group, keys=("id",))]
            if len(rules) > MAX_RULES:
                yield group, f"{len(rules)} {direction} rules"


def _templates(group: PolicyResource, stack: Stack, *paths: str) -> list[PolicyResource]:
    """The templates that the group names by id at one of the paths."""
    keys = [f"{path}.{key}" for path in paths for key in ("id", "launchTemplateId")]
    return [
        template
        for template in of_type(stack, TEMPLATE)
        if any(points_to(group, key, template, ("id",)) for key in keys)
    ]


def mixed_groups_take_templates_without_a_market(stack: Stack) -> Iterator[Found]:
    """`instanceMarketOptions` in the template of a mixed-instances policy (kops#10104): the policy buys."""
    specification = f"{MIXED}.launchTemplateSpecification"
    for group in of_type(stack, GROUP):
        for template in _templates(group, stack, specification):
            if known(read(template.props, "instanceMarketOptions")) and read(
                group.props, "mixedInstancesPolicy"
            ):
                yield template, f"instanceMarketOptions: beside the mixed policy of {group.name}"


def layouts_fit_every_type_of_a_mixed_group(stack: Stack) -> Iterator[Found]:
    """One template cannot fit types with different network cards: an override that does not fit never launches.

    An override may name a template of its own. Which one is not known at preview, so that a type must fit one of
    the group's templates.
    """
    specifications = [f"{MIXED}.{path}launchTemplateSpecification" for path in ("", "overrides[*].")]
    for group in of_type(stack, GROUP):
        types = [known(value) for _, value in leaves(group.props, f"{MIXED}.overrides[*].instanceType")]
        templates = _templates(group, stack, *specifications)
        for name in types:
            if name not in INSTANCE_TYPES:
                continue
            by_template = [(template, _layout_faults(template, str(name))) for template in templates]
            if all(faults for _, faults in by_template):
                for template, faults in by_template:
                    for fault in faults:
                        yield template, f"{fault} (a type of {group.name})"


def _layout_faults(template: PolicyResource, name: str) -> list[str]:
    inputs = Inputs(TEMPLATE, template.props)
    findings = (*interfaces.misplaced(inputs, name), *interfaces.too_many_efas(inputs, name))
    return [finding for finding in findings if isinstance(finding, str)]


def efa_groups_have_one_subnet(stack: Stack) -> Iterator[Found]:
    """EFA traffic does not leave its zone (eks-ml-kubeflow#77), nor does a cluster placement group or a block."""
    for group in of_type(stack, GROUP):
        subnets = list(leaves(group.props, "vpcZoneIdentifiers[*]"))
        if len(subnets) < 2:
            continue
        if known(read(group.props, "placementGroup")):
            yield group, f"vpcZoneIdentifiers: {len(subnets)} subnets with a placement group"
        for template in _templates(group, stack, f"{MIXED}.launchTemplateSpecification", "launchTemplate"):
            kinds = [value for _, value in leaves(template.props, "networkInterfaces[*].interfaceType")]
            if any(known(kind) in interfaces.EFA_KINDS for kind in kinds):
                yield group, f"vpcZoneIdentifiers: {len(subnets)} subnets for nodes with EFA"
            [(_, market)] = leaves(template.props, "instanceMarketOptions.marketType")
            if known(market) == "capacity-block":
                yield group, f"vpcZoneIdentifiers: {len(subnets)} subnets for a capacity block"


def schedules_of_a_group_differ_in_time(stack: Stack) -> Iterator[Found]:
    """Two scheduled actions of a group at one time: the second is refused (Auto Scaling user guide)."""
    by_time: dict[tuple[object, ...], list[PolicyResource]] = defaultdict(list)
    for schedule in of_type(stack, SCHEDULE):
        keys = ("autoscalingGroupName", "recurrence", "startTime", "timeZone")
        time = tuple(read(schedule.props, key) for key in keys)
        if UNKNOWN not in time and time[1:3] != (None, None):
            by_time[time].append(schedule)
    for schedules in by_time.values():
        for schedule in schedules[1:]:
            yield schedule, f"recurrence: at the same time as {schedules[0].name}"


def buckets_have_one_lifecycle(stack: Stack) -> Iterator[Found]:
    """Two lifecycle configurations of a bucket overwrite each other (pulumi-aws#5187)."""
    for bucket in of_type(stack, BUCKET):
        own = [r for r in of_type(stack, LIFECYCLE) if points_to(r, "bucket", bucket, keys=("bucket", "id"))]
        for second in own[1:]:
            yield second, f"bucket: {own[0].name} configures the lifecycle of {bucket.name} too"


def associations_are_few_and_apart(stack: Stack) -> Iterator[Found]:
    """At most 8 data repository associations of a file system, on folders that do not hold each other."""
    for system in of_type(stack, FILE_SYSTEM):
        own = [a for a in of_type(stack, ASSOCIATION) if points_to(a, "fileSystemId", system, keys=("id",))]
        if len(own) > MAX_ASSOCIATIONS:
            yield system, f"{len(own)} data repository associations, at most {MAX_ASSOCIATIONS}"
        if own and known(read(system.props, "importPath")):
            yield system, "importPath: beside data repository associations"
        folders = Counter[str]()
        for association in own:
            folder = known(read(association.props, "fileSystemPath"))
            if folder is not None:
                whole = f"{str(folder).rstrip('/')}/"
                if any(whole.startswith(before) or before.startswith(whole) for before in folders):
                    yield association, f"fileSystemPath: {folder} and another one's hold each other"
                folders[whole] += 1


VALIDATORS = (
    JoinedValidator(subnets_lie_within_their_vpc, frozenset({SUBNET}), "a part of the VPC's block"),
    JoinedValidator(subnets_do_not_overlap, frozenset({SUBNET}), "a block of its own for each subnet"),
    JoinedValidator(
        security_group_rules_are_few, frozenset({SECURITY_GROUP}), "fewer rules, or a prefix list"
    ),
    JoinedValidator(mixed_groups_take_templates_without_a_market, frozenset({GROUP}), "no market options"),
    JoinedValidator(
        layouts_fit_every_type_of_a_mixed_group, frozenset({GROUP}), "types of one layout, or efa off"
    ),
    JoinedValidator(efa_groups_have_one_subnet, frozenset({GROUP}), "one subnet"),
    JoinedValidator(schedules_of_a_group_differ_in_time, frozenset({SCHEDULE}), "different times"),
    JoinedValidator(buckets_have_one_lifecycle, frozenset({LIFECYCLE}), "one configuration with all rules"),
    JoinedValidator(associations_are_few_and_apart, frozenset({FILE_SYSTEM}), "folders beside each other"),
)
