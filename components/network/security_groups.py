"""Security groups, and the planned rules as resources of their own."""

from __future__ import annotations

from collections.abc import Mapping

import pulumi
import pulumi_aws as aws

from components.names import StackNames

from .security_rules import Group, TrafficRule
from .vpc import name_tag

# Constants: another description replaces the group, and with the nodes' group every node.
DESCRIPTIONS: dict[Group, str] = {
    "nodes": "Training nodes",
    "endpoints": "Interface endpoints of AWS services",
    "lustre": "FSx for Lustre file system",
}


def declare_group(
    name: str, names: StackNames, group: Group, vpc_id: pulumi.Input[str], parent: pulumi.Resource
) -> pulumi.Output[str]:
    """An empty group; its id."""
    return aws.ec2.SecurityGroup(
        f"{name}-{group}",
        vpc_id=vpc_id,
        description=DESCRIPTIONS[group],
        tags=name_tag(names, group),
        opts=pulumi.ResourceOptions(parent=parent),
    ).id


def declare_rule(
    name: str,
    rule: TrafficRule,
    group_ids: Mapping[Group, pulumi.Output[str]],
    s3_prefix_list_id: pulumi.Output[str] | None,
    parent: pulumi.Resource,
) -> pulumi.Resource:
    """One rule of one of these groups; S3 is known by its prefix list."""
    first, last = rule.ports or (None, None)
    declare = {"in": aws.vpc.SecurityGroupIngressRule, "out": aws.vpc.SecurityGroupEgressRule}[rule.direction]
    return declare(
        f"{name}-{rule.role}",
        security_group_id=group_ids[rule.group],
        description=rule.description,
        cidr_ipv4=rule.cidr,
        prefix_list_id=s3_prefix_list_id if rule.to_s3 else None,
        referenced_security_group_id=group_ids[rule.peer] if rule.peer else None,
        ip_protocol="-1" if rule.ports is None else "tcp",
        from_port=first,
        to_port=last,
        opts=pulumi.ResourceOptions(parent=parent),
    )
