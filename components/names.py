"""The names of what a stack consists of, plain and known before anything exists.

Roles, documents, alarms and user data all speak of the same buckets and groups; this is the one place that
spells them.
"""

from dataclasses import dataclass

from components.iam import partition
from components.settings import Settings


@dataclass(frozen=True)
class StackNames:
    """Where a stack lives and what its parts are called."""

    base_name: str
    """Prefix and stack, for example gputrain-prod: the first part of every other name."""

    region: str
    """The region of everything in the stack."""

    account_id: str
    """The twelve digits of the account; part of the bucket names, which are shared by all of AWS."""

    artifacts_bucket: str
    """Bucket of releases, node documents, runs and their checkpoints."""

    dataset_buckets: dict[str, str]
    """Dataset to bucket: protection, retention and rights are per bucket."""

    node_log_group: str
    """The CloudWatch log group that nodes write to."""

    access_logs_bucket: str
    """Bucket of the other buckets' access logs."""

    lustre_key: str | None
    """The object in the artifacts bucket that says how the file system is mounted; None: there is none."""

    runs_topic: str
    """The SNS topic on which nodes tell that a run finished or failed."""

    session_document: str
    """The Session Manager document that sessions on nodes are opened with, and logged by."""

    session_log_group: str
    """The CloudWatch log group of those sessions."""

    secrets: dict[str, str]
    """Environment variable to the name of its secret in Secrets Manager."""

    def arn(self, service: str, rest: str) -> str:
        """The ARN of something of this stack's region and account."""
        return f"arn:{partition(self.region)}:{service}:{self.region}:{self.account_id}:{rest}"

    def dataset_bucket(self, dataset: str) -> str:
        """The name of a dataset's bucket."""
        return f"{self.base_name}-data-{dataset}-{self.account_id}"

    def auto_scaling_group(self, group: str) -> str:
        """The name in AWS of a GPU group of the configuration."""
        return f"{self.base_name}-{group}"


def stack_names(settings: Settings) -> StackNames:
    """The names of a stack with these settings."""
    base, account = settings.base_name, settings.account_id
    return StackNames(
        base_name=base,
        region=settings.region,
        account_id=account,
        artifacts_bucket=f"{base}-artifacts-{account}",
        dataset_buckets={d.name: f"{base}-data-{d.name}-{account}" for d in settings.datasets},
        node_log_group=f"/{base}/nodes",
        access_logs_bucket=f"{base}-access-logs-{account}",
        lustre_key="lustre.json" if settings.lustre is not None else None,
        runs_topic=f"{base}-runs",
        session_document=f"{base}-session",
        session_log_group=f"/{base}/sessions",
        secrets=settings.secrets,
    )


def stack_tags(settings: Settings) -> dict[str, str]:
    """The tags of everything in the stack that can have tags."""
    return {**settings.tags, **dict([stack_tag(settings.base_name)])}


def stack_tag(base_name: str) -> tuple[str, str]:
    """Key and value of the tag that says to which stack something belongs."""
    return "gpu-training:stack", base_name
