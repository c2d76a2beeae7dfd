"""What the account must hold beside capacity: rights and roles, keys, secrets, names, settings of the account."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from botocore.exceptions import ClientError

from components.compute.plan import GroupPlan
from components.names import stack_names
from components.settings import Settings
from ops.account import Account, code_of

from .finding import Check, Finding, fail, ok, warn

STACK_TAG = "gpu-training:stack"
BILLING_REGION = "us-east-1"  # where Cost Explorer answers
SERVICE_ROLES = {
    "AWSServiceRoleForAutoScaling": "autoscaling.amazonaws.com",
    "AWSServiceRoleForEC2Spot": "spot.amazonaws.com",
}
ABSENT = {
    "NoSuchEntity",
    "NoSuchEntityException",
    "NotFoundException",
    "ResourceNotFoundException",
    "NotFound",
    "404",
}


def identity(account: Account, settings: Settings) -> Finding:
    return ok("identity", "sts:GetCallerIdentity", f"{account.arn}, which stack '{settings.stack}' may use")


def checks(account: Account, settings: Settings, plans: Sequence[GroupPlan]) -> list[Check]:
    found = _role_checks(account, settings, plans)
    iam, kms = account.client("iam"), account.client("kms")
    if (boundary := settings.permission_boundary_arn) is not None:
        found.append(
            _exists(
                "permission boundary", boundary, "iam:GetPolicy", lambda: iam.get_policy(PolicyArn=boundary)
            )
        )
    if (key := settings.kms.key_arn) is not None:
        found.append(
            Check(
                "encryption key",
                key,
                "kms:DescribeKey",
                lambda: [key_verdict(key, _or_none(lambda: kms.describe_key(KeyId=key)["KeyMetadata"]))],
            )
        )
    if (topic := settings.monitoring.alerts.sns_topic_arn) is not None:
        sns = account.client("sns")
        found.append(
            _exists(
                "alarm topic",
                topic,
                "sns:GetTopicAttributes",
                lambda: sns.get_topic_attributes(TopicArn=topic),
            )
        )
    found += [_secret(account, variable, name) for variable, name in settings.secrets.items()]
    found += [_bucket(account, bucket) for bucket in _buckets(settings)]
    ec2 = account.client("ec2")
    found.append(
        Check(
            "disk encryption",
            "default of the account",
            "ec2:GetEbsEncryptionByDefault",
            lambda: [disk_verdict(ec2.get_ebs_encryption_by_default()["EbsEncryptionByDefault"])],
        )
    )
    if settings.budget is not None:
        costs = account.client("ce", BILLING_REGION)
        found.append(
            Check(
                "cost tag",
                STACK_TAG,
                "ce:ListCostAllocationTags",
                lambda: [
                    tag_verdict(costs.list_cost_allocation_tags(TagKeys=[STACK_TAG])["CostAllocationTags"])
                ],
            )
        )
    return found


def role_verdict(role: str, there: bool, key_is_own: bool) -> Finding:
    """A role that AWS makes with the first group or spot request; a key policy that names it needs it before."""
    if there:
        return ok("service-linked role", role, "exists")
    todo = f"aws iam create-service-linked-role --aws-service-name {SERVICE_ROLES[role]}"
    if key_is_own and role == "AWSServiceRoleForAutoScaling":
        return fail("service-linked role", role, "is not there, and the stack's key policy names it", todo)
    return warn(
        "service-linked role",
        role,
        "is not there yet; AWS makes it with the first group, if whoever deploys may create it",
        todo,
    )


def key_verdict(arn: str, key: Mapping[str, Any] | None) -> Finding:
    if key is None:
        return fail(
            "encryption key", arn, "there is no such key", "write the ARN of one, or kms.mode: create"
        )
    answer = f"{key.get('KeyState')}, {key.get('KeySpec', 'SYMMETRIC_DEFAULT')}, {key.get('KeyUsage')}"
    if key.get("KeyState") != "Enabled":
        return fail("encryption key", arn, answer, f"aws kms enable-key --key-id {arn}, or use another")
    if (
        key.get("KeyUsage") != "ENCRYPT_DECRYPT"
        or key.get("KeySpec", "SYMMETRIC_DEFAULT") != "SYMMETRIC_DEFAULT"
    ):
        return fail("encryption key", arn, answer, "volumes and buckets take symmetric encryption keys only")
    if key.get("KeyManager") == "AWS":
        return fail(
            "encryption key", arn, f"{answer}, AWS's own", "its policy cannot be opened to Auto Scaling"
        )
    return ok(
        "encryption key",
        arn,
        f"{answer}; its policy must admit AWSServiceRoleForAutoScaling (docs/security.md)",
    )


def secret_verdict(variable: str, name: str, secret: Mapping[str, Any] | None) -> Finding:
    check = f"secret {variable}"
    if secret is None:
        return fail(
            check, name, "there is none of this name", f"aws secretsmanager create-secret --name {name}"
        )
    if secret.get("DeletedDate"):
        return fail(
            check, name, "it is being deleted", f"aws secretsmanager restore-secret --secret-id {name}"
        )
    return ok(check, name, "exists (its value is not read)")


def disk_verdict(by_default: bool) -> Finding:
    if by_default:
        return ok("disk encryption", "default of the account", "on")
    return warn(
        "disk encryption",
        "default of the account",
        "off; the stack's own volumes are encrypted all the same",
        "aws ec2 enable-ebs-encryption-by-default",
    )


def tag_verdict(tags: Sequence[Mapping[str, Any]]) -> Finding:
    """A budget filters by a tag, which counts only from the day on which it was activated in the payer's account."""
    status = next((tag["Status"] for tag in tags if tag["TagKey"] == STACK_TAG), None)
    if status == "Active":
        return ok("cost tag", STACK_TAG, "active")
    answer = (
        "not active" if status else "not known to billing yet, which takes a day after the first resource"
    )
    return warn(
        "cost tag",
        STACK_TAG,
        f"{answer}: the budget would count nothing",
        "aws ce update-cost-allocation-tags-status --cost-allocation-tags-status "
        f"TagKey={STACK_TAG},Status=Active (in the payer's account)",
    )


def bucket_verdict(name: str, code: str) -> Finding:
    """Answers to HeadBucket. Bucket names are shared by all of AWS: somebody else's cannot be made."""
    if code == "":
        return ok("bucket", name, "exists, in this account")
    if code in ABSENT:
        return ok("bucket", name, "the name is free")
    if code in ("403", "Forbidden", "AccessDenied"):
        return fail("bucket", name, "it is somebody else's, or closed to you", "choose another namePrefix")
    return warn("bucket", name, f"S3 answers {code}", "look at the bucket's region")


def _role_checks(account: Account, settings: Settings, plans: Sequence[GroupPlan]) -> list[Check]:
    spot = any(plan.buys_spot for plan in plans)
    roles = [role for role in SERVICE_ROLES if spot or role != "AWSServiceRoleForEC2Spot"]
    iam, own = account.client("iam"), settings.kms.mode == "create"
    return [
        Check(
            "service-linked role",
            role,
            "iam:GetRole",
            lambda role=role: [
                role_verdict(role, _or_none(lambda: iam.get_role(RoleName=role)) is not None, own)
            ],
        )
        for role in roles
    ]


def _secret(account: Account, variable: str, name: str) -> Check:
    def ask() -> list[Finding]:
        described = _or_none(lambda: account.client("secretsmanager").describe_secret(SecretId=name))
        return [secret_verdict(variable, name, described)]

    return Check(f"secret {variable}", name, "secretsmanager:DescribeSecret", ask)


def _buckets(settings: Settings) -> list[str]:
    names = stack_names(settings)
    logs = [names.access_logs_bucket] if settings.access_logs.retention_days is not None else []
    return [names.artifacts_bucket, *names.dataset_buckets.values(), *logs]


def _bucket(account: Account, name: str) -> Check:
    def ask() -> list[Finding]:
        try:
            account.client("s3").head_bucket(Bucket=name)
            return [bucket_verdict(name, "")]
        except ClientError as error:
            return [bucket_verdict(name, code_of(error))]

    return Check("bucket", name, "s3:ListBucket", ask)


def _exists(check: str, name: str, right: str, call: Any) -> Check:
    def ask() -> list[Finding]:
        if _or_none(call) is None:
            return [fail(check, name, "is not there", "write the ARN of one that exists, or make it")]
        return [ok(check, name, "exists")]

    return Check(check, name, right, ask)


def _or_none(call: Any) -> Any:
    """The answer; None where AWS says that the thing is not there."""
    try:
        return call()
    except ClientError as error:
        if code_of(error) in ABSENT:
            return None
        raise
