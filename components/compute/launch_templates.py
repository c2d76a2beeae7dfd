"""The launch templates of a group: one for each layout of interfaces among its types."""

import base64
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from .interfaces import LayoutGroup
from .plan import GroupPlan


@dataclass(frozen=True)
class NodeInputs:
    """What the nodes of a group take from resources and from the boot plan, the same in each template."""

    instance_profile_arn: pulumi.Input[str]
    security_group_id: pulumi.Input[str]  # on every interface
    user_data: str  # not encoded
    kms_key_arn: pulumi.Input[str] | None  # of the volumes; None: the account's key for EBS


def launch_templates(
    name: str, plan: GroupPlan, node: NodeInputs, opts: pulumi.ResourceOptions
) -> dict[str, aws.ec2.LaunchTemplate]:
    """The template of each instance type; types of one layout share theirs. The preferred type's is the
    group's own and carries its name.
    """
    templates: dict[str, aws.ec2.LaunchTemplate] = {}
    for place, layout in enumerate(plan.layouts):
        suffix = f"-{layout.instance_types[0]}" if place else ""
        template = _launch_template(
            f"{name}-template{suffix}", f"{plan.auto_scaling_group}{suffix}", plan, layout, node, opts
        )
        templates |= dict.fromkeys(layout.instance_types, template)
    return templates


def _launch_template(
    name: str,
    template_name: str,
    plan: GroupPlan,
    layout: LayoutGroup,
    node: NodeInputs,
    opts: pulumi.ResourceOptions,
) -> aws.ec2.LaunchTemplate:
    reserved = plan.reservation
    return aws.ec2.LaunchTemplate(
        name,
        name=template_name,
        description=f"Nodes of GPU group {plan.name}",
        update_default_version=True,
        image_id=plan.image_id,
        instance_type=layout.instance_types[0],  # overridden where there is a mixed-instances policy
        iam_instance_profile={"arn": node.instance_profile_arn},
        # The one place that encodes: a template takes base64, and passes on whatever it is given.
        user_data=base64.b64encode(node.user_data.encode()).decode(),
        metadata_options={
            "http_endpoint": "enabled",
            "http_tokens": "required",
            # The agent runs on the node itself. In a bridged container one hop more would be needed, and then
            # anything in a container would have the node's role.
            "http_put_response_hop_limit": 1,
            "instance_metadata_tags": "disabled",
        },
        # Security groups and addresses belong to the interfaces; EC2 refuses them beside a list of interfaces.
        network_interfaces=[
            {
                "network_card_index": interface.network_card_index,
                "device_index": interface.device_index,
                "interface_type": interface.interface_type,
                "associate_public_ip_address": "false",
                "delete_on_termination": "true",
                "security_groups": [node.security_group_id],
            }
            for interface in layout.interfaces
        ],
        # Never spot: a template that asks for it is refused beside a mixed-instances policy (kops#10104).
        instance_market_options=(
            {"market_type": reserved.market_type} if reserved and reserved.market_type else None
        ),
        # A target alone: EC2 refuses a preference beside it, and launches nowhere else than there.
        capacity_reservation_specification=(
            {"capacity_reservation_target": {"capacity_reservation_id": reserved.id}} if reserved else None
        ),
        placement={"group_id": plan.placement_group_id} if plan.placement_group_id else None,
        block_device_mappings=[
            {
                "device_name": plan.root_device_name,
                "ebs": {
                    "volume_type": "gp3",
                    "volume_size": plan.root_volume_gib,
                    "iops": plan.root_volume_iops,
                    "throughput": plan.root_volume_throughput_mibps,
                    "encrypted": "true",
                    "kms_key_id": node.kms_key_arn,
                    "delete_on_termination": "true",
                },
            }
        ],
        ebs_optimized="true",
        monitoring={"enabled": True},
        instance_initiated_shutdown_behavior="terminate",
        tag_specifications=[
            {"resource_type": kind, "tags": plan.tags} for kind in ("instance", "volume", "network-interface")
        ],
        opts=pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(delete_before_replace=True)),
    )
