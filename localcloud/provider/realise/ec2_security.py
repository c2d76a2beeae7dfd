"""Security groups and their rules."""

from __future__ import annotations

from typing import Any

from .call import Call, Made, Realiser, first
from .ec2_network import retag, tag_specification


def _permission(rule: Any) -> dict[str, Any]:
    """One rule, inline or of its own, as EC2's IpPermission."""
    text = {"Description": rule["description"]} if rule.get("description") else {}
    permission: dict[str, Any] = {"IpProtocol": str(rule.get("ipProtocol") or rule.get("protocol"))}
    for key, api in (("fromPort", "FromPort"), ("toPort", "ToPort")):
        if rule.get(key) is not None and permission["IpProtocol"] != "-1":
            permission[api] = int(rule[key])
    ranges = [*(rule.get("cidrBlocks") or []), *([rule["cidrIpv4"]] if rule.get("cidrIpv4") else [])]
    ranges6 = [*(rule.get("ipv6CidrBlocks") or []), *([rule["cidrIpv6"]] if rule.get("cidrIpv6") else [])]
    lists = [
        *(rule.get("prefixListIds") or []),
        *([rule["prefixListId"]] if rule.get("prefixListId") else []),
    ]
    groups = list(rule.get("securityGroups") or [])
    groups += [rule[key] for key in ("referencedSecurityGroupId", "self") if rule.get(key)]
    permission["IpRanges"] = [{"CidrIp": cidr, **text} for cidr in ranges]
    permission["Ipv6Ranges"] = [{"CidrIpv6": cidr, **text} for cidr in ranges6]
    permission["PrefixListIds"] = [{"PrefixListId": prefix, **text} for prefix in lists]
    permission["UserIdGroupPairs"] = [{"GroupId": group, **text} for group in groups]
    return {key: value for key, value in permission.items() if value not in ([], None)}


def _inline(call: Call, group: str) -> None:
    """The inline rules that a group still may carry."""
    ec2 = call.clients("ec2")
    for key, authorize in (
        ("ingress", ec2.authorize_security_group_ingress),
        ("egress", ec2.authorize_security_group_egress),
    ):
        for rule in call[key] or []:
            mine = {**rule, "self": group if rule.get("self") else None}
            authorize(GroupId=group, IpPermissions=[_permission(mine)])


def _revoke_all(call: Call, group: str) -> None:
    ec2 = call.clients("ec2")
    found = ec2.describe_security_groups(GroupIds=[group])["SecurityGroups"][0]
    if found.get("IpPermissions"):
        ec2.revoke_security_group_ingress(GroupId=group, IpPermissions=found["IpPermissions"])
    if found.get("IpPermissionsEgress"):
        ec2.revoke_security_group_egress(GroupId=group, IpPermissions=found["IpPermissionsEgress"])


def _group_create(call: Call) -> Made:
    made = call.clients("ec2").create_security_group(
        GroupName=call.name,
        Description=call["description"] or "Managed by Pulumi",
        VpcId=call["vpcId"],
        TagSpecifications=tag_specification(call, "security-group"),
    )
    # EC2 starts a group with an all-allowing egress rule; the AWS provider takes it away, so that nothing
    # undeclared is open.
    _revoke_all(call, made["GroupId"])
    _inline(call, made["GroupId"])
    return made["GroupId"], {}


def _group_update(call: Call) -> None:
    if call.changed("ingress", "egress"):
        _revoke_all(call, call.id)
        _inline(call, call.id)
    retag(call)


def _default_create(call: Call) -> Made:
    """The VPC's default group is taken over, never made: its rules go, the declared ones come."""
    inside = [{"Name": "vpc-id", "Values": [call["vpcId"]]}, {"Name": "group-name", "Values": ["default"]}]
    group = first(call.clients("ec2").describe_security_groups(Filters=inside)["SecurityGroups"])["GroupId"]
    _revoke_all(call, group)
    _inline(call, group)
    if call.tags:
        call.clients("ec2").create_tags(Resources=[group], Tags=call.tag_list())
    return group, {}


def _rule_create(call: Call, direction: str) -> Made:
    ec2 = call.clients("ec2")
    made = getattr(ec2, f"authorize_security_group_{direction}")(
        GroupId=call["securityGroupId"],
        IpPermissions=[_permission(call.inputs)],
        TagSpecifications=tag_specification(call, "security-group-rule"),
    )
    rule = made["SecurityGroupRules"][0]["SecurityGroupRuleId"]
    return rule, {}


def _rule_delete(call: Call, direction: str) -> None:
    revoke = getattr(call.clients("ec2"), f"revoke_security_group_{direction}")
    revoke(GroupId=call.state("securityGroupId"), SecurityGroupRuleIds=[call.id])


def _rule_read(call: Call) -> Any:
    return first(
        call.clients("ec2").describe_security_group_rules(SecurityGroupRuleIds=[call.id])[
            "SecurityGroupRules"
        ]
    )


def _rule_update(call: Call) -> None:
    rule = {
        "IpProtocol": str(call["ipProtocol"]),
        "FromPort": -1 if call["fromPort"] is None else int(call["fromPort"]),
        "ToPort": -1 if call["toPort"] is None else int(call["toPort"]),
        "CidrIpv4": call["cidrIpv4"],
        "CidrIpv6": call["cidrIpv6"],
        "PrefixListId": call["prefixListId"],
        "ReferencedGroupId": call["referencedSecurityGroupId"],
        "Description": call["description"],
    }
    shown = {key: value for key, value in rule.items() if value is not None}
    call.clients("ec2").modify_security_group_rules(
        GroupId=call["securityGroupId"],
        SecurityGroupRules=[{"SecurityGroupRuleId": call.id, "SecurityGroupRule": shown}],
    )
    retag(call)


def _rule(direction: str) -> Realiser:
    return Realiser(
        lambda call: _rule_create(call, direction),
        lambda call: _rule_delete(call, direction),
        _rule_read,
        _rule_update,
    )


REALISERS: dict[str, Realiser] = {
    "aws:ec2/securityGroup:SecurityGroup": Realiser(
        _group_create,
        lambda call: call.clients("ec2").delete_security_group(GroupId=call.id),
        lambda call: call.clients("ec2").describe_security_groups(GroupIds=[call.id]),
        _group_update,
    ),
    "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup": Realiser(
        _default_create,
        lambda call: None,  # goes with its VPC
        lambda call: call.clients("ec2").describe_security_groups(GroupIds=[call.id]),
        _group_update,
    ),
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": _rule("ingress"),
    "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule": _rule("egress"),
}
