"""Launch templates and placement groups."""

from __future__ import annotations

from typing import Any

from ..tables.compute import KINDS
from ..values import Tree
from .call import Call, Made, Realiser, first
from .ec2_network import retag, tag_specification
from .fit import parameters

_MOVES = next(kind for kind in KINDS if kind.type.endswith(":LaunchTemplate")).moves["latestVersion"]

# Where Pulumi's word differs from EC2's by more than case and plural.
_RENAME = {
    "securityGroupNames": "SecurityGroups",
    "vpcSecurityGroupIds": "SecurityGroupIds",
    "networkInterfaces.securityGroups": "Groups",
    "networkInterfaces.ipv4AddressCount": "SecondaryPrivateIpAddressCount",
}
_OF_THE_TEMPLATE = {
    "name",
    "namePrefix",
    "description",
    "defaultVersion",
    "updateDefaultVersion",
    "region",
    "tags",
}


def _data(call: Call) -> dict[str, Any]:
    tree = {key: value for key, value in call.inputs.items() if key not in _OF_THE_TEMPLATE}
    wrapped = {"launchTemplateData": tree}
    rename = {f"launchTemplateData.{key}": api for key, api in _RENAME.items()}
    wanted = parameters(call.clients("ec2"), "CreateLaunchTemplate", wrapped, rename)
    return wanted["LaunchTemplateData"]


def _template_create(call: Call) -> Made:
    made = call.clients("ec2").create_launch_template(
        LaunchTemplateName=call.name,
        LaunchTemplateData=_data(call),
        VersionDescription=call["description"] or "",
        TagSpecifications=tag_specification(call, "launch-template"),
    )["LaunchTemplate"]
    real = {"latestVersion": made["LatestVersionNumber"], "defaultVersion": made["DefaultVersionNumber"]}
    return made["LaunchTemplateId"], real


def _template_update(call: Call) -> dict[str, Tree]:
    """A change of the data makes a new version, as the AWS provider does; running nodes keep theirs."""
    ec2 = call.clients("ec2")
    real: dict[str, Tree] = {}
    changed = {key for key in {*call.inputs, *call.old_inputs} if call.changed(key)}
    if changed - _MOVES:
        version = ec2.create_launch_template_version(
            LaunchTemplateId=call.id,
            LaunchTemplateData=_data(call),
            VersionDescription=call["description"] or "",
        )["LaunchTemplateVersion"]["VersionNumber"]
        real["latestVersion"] = version
    default = real.get("latestVersion") if call["updateDefaultVersion"] else call["defaultVersion"]
    if default is not None:
        ec2.modify_launch_template(LaunchTemplateId=call.id, DefaultVersion=str(default))
        real["defaultVersion"] = default
    retag(call)
    return real


def _template_read(call: Call) -> Any:
    return first(
        call.clients("ec2").describe_launch_templates(LaunchTemplateIds=[call.id])["LaunchTemplates"]
    )


def _placement_create(call: Call) -> Made:
    wanted = call.fit("ec2", "CreatePlacementGroup", {"name": None})
    made = call.clients("ec2").create_placement_group(
        **wanted, GroupName=call.name, TagSpecifications=tag_specification(call, "placement-group")
    )
    return call.name, {"placementGroupId": made["PlacementGroup"]["GroupId"]}


REALISERS: dict[str, Realiser] = {
    "aws:ec2/launchTemplate:LaunchTemplate": Realiser(
        _template_create,
        lambda call: call.clients("ec2").delete_launch_template(LaunchTemplateId=call.id),
        _template_read,
        _template_update,
    ),
    "aws:ec2/placementGroup:PlacementGroup": Realiser(
        _placement_create,
        lambda call: call.clients("ec2").delete_placement_group(GroupName=call.id),
        lambda call: call.clients("ec2").describe_placement_groups(GroupNames=[call.id]),
    ),
}
