"""The people of a stack: what they may do, and how their sessions on nodes are logged."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_aws as aws

from components.compute.node_rights import key_statement
from components.iam import policy_document
from components.names import StackNames, stack_names
from components.settings import Settings

from .operators import operator_statements
from .researchers import researcher_statements
from .sessions import login_user, session_document


@dataclass(frozen=True)
class AccessArgs:
    """Whose policies they are and how long sessions are kept. Names are plain, so that rights show in a preview."""

    names: StackNames
    """The buckets, groups and documents of the stack."""

    login_user: str | None
    """The user of sessions on nodes; None: Session Manager's own."""

    retention_days: int
    """Days that sessions are kept; one of the values that CloudWatch Logs accepts."""

    key_arn: pulumi.Input[str] | None = None
    """Key of the buckets, which whoever reads them needs. None: S3's own key of the account, which needs no right."""

    logs_key_arn: pulumi.Input[str] | None = None
    """Key of the session log group, whose policy lets CloudWatch Logs in. None: the service's own encryption."""


def access_args(
    settings: Settings, key_arn: pulumi.Input[str] | None, logs_key_arn: pulumi.Input[str] | None
) -> AccessArgs:
    """The people of a stack with these settings."""
    return AccessArgs(
        names=stack_names(settings),
        login_user=login_user(group.image.profile for group in settings.gpu_groups),
        retention_days=settings.monitoring.retention_days,
        key_arn=key_arn,
        logs_key_arn=logs_key_arn,
    )


class Access(pulumi.ComponentResource):
    """A policy for researchers and one for operators, to be attached to whoever is one; the session document with its
    log group. No user, no group and no role of a person is made: those are the account's.
    """

    researcher_policy_arn: pulumi.Output[str]
    operator_policy_arn: pulumi.Output[str]
    session_document: str

    def __init__(self, name: str, args: AccessArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gputraining:identity:Access", name, None, opts)
        self._name, self._names = name, args.names
        self._child = pulumi.ResourceOptions(parent=self)
        researcher = researcher_statements(args.names)
        self.researcher_policy_arn = self._policy(
            "researcher",
            "Publishes datasets; starts, stops, watches and fetches runs",
            policy_document(researcher)
            if args.key_arn is None
            else pulumi.Output.from_input(args.key_arn).apply(lambda key: self._with_key(researcher, key)),
        )
        self.operator_policy_arn = self._policy(
            "operator",
            "Looks at the stack, reads its logs, opens logged sessions on its nodes",
            policy_document(operator_statements(args.names)),
        )
        log_group = aws.cloudwatch.LogGroup(
            f"{name}-sessions",
            name=args.names.session_log_group,
            retention_in_days=args.retention_days,
            kms_key_id=args.logs_key_arn,
            tags={"Name": args.names.session_log_group},
            opts=self._child,
        )
        aws.ssm.Document(
            f"{name}-session",
            name=args.names.session_document,
            document_type="Session",
            document_format="JSON",
            content=session_document(args.names, args.login_user, args.logs_key_arn is not None),
            tags={"Name": args.names.session_document},
            opts=pulumi.ResourceOptions(parent=self, depends_on=[log_group]),
        )
        self.session_document = args.names.session_document
        self.register_outputs(
            {
                "researcherPolicyArn": self.researcher_policy_arn,
                "operatorPolicyArn": self.operator_policy_arn,
                "sessionDocument": self.session_document,
            }
        )

    def _policy(self, role: str, description: str, document: pulumi.Input[str]) -> pulumi.Output[str]:
        return aws.iam.Policy(
            f"{self._name}-{role}",
            name=f"{self._names.base_name}-{role}",
            path=f"/{self._names.base_name}/",
            description=description,
            policy=document,
            opts=pulumi.ResourceOptions(parent=self, delete_before_replace=True),
        ).arn

    def _with_key(self, statements: Sequence[dict[str, Any]], key_arn: str) -> str:
        return policy_document([*statements, key_statement(key_arn, self._names.region, ["s3"])])
