"""The role of a group's nodes; what it may do is in `node_rights.py`."""

from dataclasses import dataclass, field

import pulumi
import pulumi_aws as aws

from components.iam import partition, policy_document, trust_policy
from components.names import StackNames

from .node_rights import key_statement, node_statements, only_from_the_own_vpc, services_behind_the_key


@dataclass(frozen=True)
class NodeRoleArgs:
    """Whose nodes they are and what they work on. Names are plain, so that the rights show in a preview."""

    names: StackNames
    """The buckets and the log group that the nodes work with, and where these are."""

    group: str
    """The group's name in the configuration: nodes see their own group's documents only."""

    auto_scaling_group: str
    """The one group whose launches the nodes answer for and may suspend."""

    metric_namespace: str
    """The one CloudWatch namespace in which nodes put metrics."""

    kms_key_arn: pulumi.Input[str] | None = None
    """Key of the buckets. None: S3's own key of the account, which needs no right."""

    services_by_endpoint: tuple[str, ...] = ()
    """Services that nodes call through VPC endpoints only: for these, credentials that left the VPC are worth
    nothing. ``*``: all.
    """

    permission_boundary_arn: str | None = None
    """The policy that bounds the role. None: no boundary."""

    requires: list[pulumi.Resource] = field(default_factory=list)
    """The ways to AWS's services. A stack that goes over to endpoints has running nodes, whose calls by NAT the role
    must not deny before the endpoints are there.
    """


class NodeRole(pulumi.ComponentResource):
    """Role, its one inline policy, the right to be reached by Session Manager, and the instance profile."""

    role_arn: pulumi.Output[str]
    instance_profile_arn: pulumi.Output[str]
    ready: list[pulumi.Resource]  # the rights, without which a node that boots would be refused

    def __init__(self, name: str, args: NodeRoleArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gputraining:compute:NodeRole", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        names = args.names
        rights = node_statements(names, args.group, args.auto_scaling_group, args.metric_namespace)
        # Names that are fixed: policies of the account can speak of them, and a replacement frees them first.
        fixed_name = pulumi.ResourceOptions(parent=self, delete_before_replace=True)
        role = aws.iam.Role(
            f"{name}-role",
            name=f"{names.base_name}-{args.group}-node",
            path=f"/{names.base_name}/",
            description=f"Nodes of GPU group {args.group}",
            assume_role_policy=trust_policy("ec2.amazonaws.com"),
            permissions_boundary=args.permission_boundary_arn,
            opts=fixed_name,
        )
        self.ready = [
            aws.iam.RolePolicy(
                f"{name}-policy",
                name="node",
                role=role.name,
                policy=policy_document([*rights, *only_from_the_own_vpc(rights, args.services_by_endpoint)]),
                opts=pulumi.ResourceOptions(parent=self, depends_on=args.requires),
            ),
            # Session Manager without the right to read every parameter, which the better known policy gives.
            aws.iam.RolePolicyAttachment(
                f"{name}-session-manager",
                role=role.name,
                policy_arn=f"arn:{partition(names.region)}:iam::aws:policy/AmazonSSMManagedEC2InstanceDefaultPolicy",
                opts=child,
            ),
        ]
        if args.kms_key_arn is not None:
            # Apart from the rest, whose text stays known at preview when the key is still to be made.
            self.ready.append(
                aws.iam.RolePolicy(
                    f"{name}-key",
                    name="key",
                    role=role.name,
                    policy=pulumi.Output.from_input(args.kms_key_arn).apply(
                        lambda key: policy_document(
                            [key_statement(key, names.region, services_behind_the_key(names))]
                        )
                    ),
                    opts=child,
                )
            )
        profile = aws.iam.InstanceProfile(
            f"{name}-profile",
            name=f"{names.base_name}-{args.group}-node",
            path=f"/{names.base_name}/",
            role=role.name,
            opts=fixed_name,
        )
        self.role_arn = role.arn
        self.instance_profile_arn = profile.arn
        self.register_outputs({"roleArn": self.role_arn})
