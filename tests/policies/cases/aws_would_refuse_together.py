from collections.abc import Sequence
from typing import Any

from policies.rules._judge import Outcome
from tests.policies.kit import NOT_YET, Case, R

VPC, SUBNET = "aws:ec2/vpc:Vpc", "aws:ec2/subnet:Subnet"
TEMPLATE, GROUP = "aws:ec2/launchTemplate:LaunchTemplate", "aws:autoscaling/group:Group"
SCHEDULE = "aws:autoscaling/schedule:Schedule"
SECURITY_GROUP = "aws:ec2/securityGroup:SecurityGroup"
EGRESS = "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule"
BUCKET = "aws:s3/bucket:Bucket"
LIFECYCLE = "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration"
FILE_SYSTEM = "aws:fsx/lustreFileSystem:LustreFileSystem"
ASSOCIATION = "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation"

NETWORK = R(VPC, {"cidrBlock": "10.42.0.0/16"}, "vpc")
EFA = [{"networkCardIndex": 0, "deviceIndex": 0}, {"deviceIndex": 1, "interfaceType": "efa-only"}]

TWO_EFAS = [*EFA, {"networkCardIndex": 1, "deviceIndex": 0, "interfaceType": "efa-only"}]


def subnet(cidr: str, name: str = "subnet") -> R:
    return R(SUBNET, {"cidrBlock": cidr, "vpcId": NOT_YET}, name, links={"vpcId": ["vpc"]})


def mixed(template: dict[str, Any], types: Sequence[str] = (), **group: Any) -> list[R]:
    """A group with a mixed policy that names the template by an id which is not known yet."""
    policy = {
        "launchTemplate": {
            "launchTemplateSpecification": {"launchTemplateId": NOT_YET},
            "overrides": [{"instanceType": name} for name in types],
        }
    }
    return [
        R(TEMPLATE, template, "template"),
        R(
            GROUP,
            {"mixedInstancesPolicy": policy, **group},
            "group",
            links={"mixedInstancesPolicy": ["template"]},
        ),
    ]


def rules(count: int) -> list[R]:
    group = R(SECURITY_GROUP, {}, "nodes")
    links = {"securityGroupId": ["nodes"]}
    return [group, *(R(EGRESS, {"securityGroupId": NOT_YET}, f"rule-{n}", links=links) for n in range(count))]


def schedule(name: str, recurrence: str) -> R:
    return R(SCHEDULE, {"autoscalingGroupName": "trainers", "recurrence": recurrence}, name)


def association(name: str, folder: str) -> R:
    props = {"fileSystemId": NOT_YET, "fileSystemPath": folder}
    return R(ASSOCIATION, props, name, links={"fileSystemId": ["lustre"]})


# validator -> the stack that it refuses and what it says: one for each.
REFUSED = {
    "subnets-lie-within-their-vpc": ([NETWORK, subnet("10.43.0.0/24")], "outside the VPC's 10.42.0.0/16"),
    "subnets-do-not-overlap": (
        [NETWORK, subnet("10.42.0.0/20", "one"), subnet("10.42.8.0/24", "two")],
        "10.42.8.0/24 overlaps 10.42.0.0/20 of one",
    ),
    "security-group-rules-are-few": (rules(61), "61 egress rules"),
    "mixed-groups-take-templates-without-a-market": (
        mixed({"instanceMarketOptions": {"marketType": "spot"}}),
        "beside the mixed policy of group",
    ),
    "layouts-fit-every-type-of-a-mixed-group": (
        mixed({"networkInterfaces": EFA}, ["g6.12xlarge", "g6.xlarge"]),
        "1 EFAs, g6.xlarge has 0",
    ),
    "efa-groups-have-one-subnet": (
        mixed({"networkInterfaces": EFA}, vpcZoneIdentifiers=["subnet-1", "subnet-2"]),
        "2 subnets for nodes with EFA",
    ),
    "schedules-of-a-group-differ-in-time": (
        [schedule("evening", "0 20 * * *"), schedule("night", "0 20 * * *")],
        "at the same time as evening",
    ),
    "buckets-have-one-lifecycle": (
        [
            R(BUCKET, {"bucket": "data"}, "data"),
            R(LIFECYCLE, {"bucket": "data"}, "one"),
            R(LIFECYCLE, {"bucket": "data"}, "two"),
        ],
        "one configures the lifecycle of data too",
    ),
    "associations-are-few-and-apart": (
        [R(FILE_SYSTEM, {}, "lustre"), association("one", "/data"), association("two", "/data/shapes")],
        "hold each other",
    ),
}

CASES = [
    *(Case(validator, Outcome.VIOLATION, stack, f"{says}") for validator, (stack, says) in REFUSED.items()),
    Case(
        "nine associations",
        Outcome.VIOLATION,
        [R(FILE_SYSTEM, {}, "lustre"), *(association(f"a{n}", f"/{n}") for n in range(9))],
        "9 data repository associations",
    ),
    Case(
        "a block in two subnets",
        Outcome.VIOLATION,
        mixed({"instanceMarketOptions": {"marketType": "capacity-block"}}, vpcZoneIdentifiers=["a", "b"]),
        "2 subnets for a capacity block",
    ),
    Case(
        "a placement group over two subnets",
        Outcome.VIOLATION,
        [R(GROUP, {"placementGroup": "near", "vpcZoneIdentifiers": ["a", "b"]})],
        "2 subnets with a placement group",
    ),
    Case(
        "subnets beside each other in their VPC",
        Outcome.COMPLIANT,
        [NETWORK, subnet("10.42.0.0/20", "one"), subnet("10.42.16.0/20", "two")],
    ),
    Case(
        "the same block in another VPC",
        Outcome.COMPLIANT,
        [
            NETWORK,
            subnet("10.42.0.0/20", "one"),
            R(SUBNET, {"cidrBlock": "10.42.0.0/20", "vpcId": "vpc-9"}, "two"),
        ],
    ),
    Case("sixty rules", Outcome.COMPLIANT, rules(60)),
    Case(
        "types of one layout, in one subnet",
        Outcome.COMPLIANT,
        mixed({"networkInterfaces": EFA}, ["g6.12xlarge", "g6.24xlarge"], vpcZoneIdentifiers=["a"]),
    ),
    Case(
        "types of two layouts, each with its template",
        Outcome.COMPLIANT,
        [
            *mixed({"networkInterfaces": EFA}, ["g6e.12xlarge", "g6e.24xlarge"])[:1],
            R(TEMPLATE, {"networkInterfaces": TWO_EFAS}, "other"),
            R(
                GROUP,
                mixed({}, ["g6e.12xlarge", "g6e.24xlarge"])[1].props,
                "group",
                links={"mixedInstancesPolicy": ["template", "other"]},
            ),
        ],
    ),
    Case("other times", Outcome.COMPLIANT, [schedule("evening", "0 20 * * *"), schedule("day", "0 8 * * *")]),
    Case(
        "folders beside each other",
        Outcome.COMPLIANT,
        [R(FILE_SYSTEM, {}, "lustre"), association("one", "/data"), association("two", "/data2")],
    ),
    Case(
        "a subnet whose block is not known yet",
        Outcome.UNKNOWN,
        [NETWORK, R(SUBNET, {"cidrBlock": NOT_YET, "vpcId": NOT_YET}, links={"vpcId": ["vpc"]})],
        "cidrBlock",
    ),
    Case("nothing of it", Outcome.NOT_APPLICABLE, [R("aws:sns/topic:Topic")]),
]
