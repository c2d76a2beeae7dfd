"""What values may be together: the rules over the stack as a whole. Group rules are in `group_rules.py`.

Each rule is a function from settings to faults. Where the configuration has faults of shape, rules run over
its sound part: a rule that reads a broken field ends there, the others are not kept from judging.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

from components.catalog import REGIONS, nearest

from . import cost_rules, group_rules, identity_rules, network_rules, quota_rules, storage_rules
from .faults import Fault, Level, Path, essential, id_of, is_essential, level_of, named_twice
from .model import Settings
from .section import BrokenField

# CloudWatch PutRetentionPolicy takes these days only (botocore logs model, 2026).
RETENTION_DAYS = (
    *(1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731),
    *(1096, 1827, 2192, 2557, 2922, 3288, 3653),
)
MAX_BUCKET_NAME = 63
RESERVED_BUCKET_PREFIXES = ("xn--", "sthree-", "amzn-s3-demo-")  # S3 user guide, bucket naming rules (2026)
MAX_ROLE_NAME = 64
ROLE_NAME_EXTRA = len("-") + len("-node")
LEAST_REASON = 10  # characters
MAX_TAGS = 40  # AWS takes 50 a resource; the program and the services add their own

StackRule = Callable[[Settings], Iterator[Fault]]


def judge(settings: Settings) -> list[Fault]:
    """All that the validators find; the settings may lack fields that were broken by themselves."""
    found: list[Fault] = []
    for rule in RULES:
        found += _as_far_as_sound(rule, rule(settings))
    for place, group in enumerate(getattr(settings, "gpu_groups", [])):
        for rule in group_rules.RULES:
            found += _as_far_as_sound(rule, rule(group, ("gpuGroups", place), settings))
    suppressed = getattr(settings, "suppress_validators", {}).keys() - essential_ids()
    return [fault for fault in found if fault.validator not in suppressed]


def validators() -> list[tuple[str, Level, str]]:
    """Id, level and what it is about, of every validator."""
    return sorted((id_of(check), level_of(check), (check.__doc__ or "").strip()) for check in _checks())


def essential_ids() -> set[str]:
    """The validators that cannot be suppressed."""
    return {id_of(check) for check in _checks() if is_essential(check)}


def _checks() -> list[Callable[..., Any]]:
    return [*RULES, *group_rules.RULES]


def _as_far_as_sound(rule: Callable[..., Any], found: Iterable[Fault]) -> list[Fault]:
    """The rule's findings up to the first field that is absent because it was broken."""
    faults: list[Fault] = []
    with suppress(BrokenField):  # that field's own fault is told already
        for fault in found:
            faults.append(replace(fault, validator=id_of(rule), level=level_of(rule)))
    return faults


@essential
def suppressions_have_an_id_and_a_reason(s: Settings) -> Iterator[Fault]:
    """A suppressed validator exists, and its reason is told."""
    known = [id_ for id_, _, _ in validators()]
    for id_, reason in s.suppress_validators.items():
        path = ("suppressValidators", id_)
        if id_ not in known:
            yield Fault(path, "no such validator", "docs/validators.md lists them", nearest(id_, known))
        elif id_ in essential_ids():
            yield Fault(path, "cannot be suppressed", "nothing can be planned without what it demands")
        if len(reason.strip()) < LEAST_REASON:
            yield Fault(path, "no reason is given", f"say why, in at least {LEAST_REASON} characters")


def stack_name_fits_names(s: Settings) -> Iterator[Fault]:
    """The stack's name is part of bucket names."""
    if not re.fullmatch(r"[a-z][a-z0-9-]*", s.stack):
        yield Fault((), f"the stack name '{s.stack}' cannot be part of a bucket name", "use a-z, 0-9 and -")


def names_fit_their_limits(s: Settings) -> Iterator[Fault]:
    """Bucket names end in the 12 digits of the account."""
    longest = MAX_BUCKET_NAME - len(f"{s.base_name}-data--") - 12
    if len(f"{s.base_name}-access-logs-") + 12 > MAX_BUCKET_NAME:
        yield Fault(
            ("namePrefix",),
            f"'{s.base_name}' makes bucket names above {MAX_BUCKET_NAME} characters",
            "shorten the prefix or the stack's name",
        )
    for place, dataset in enumerate(s.datasets):
        if len(dataset.name) > longest:
            yield Fault(
                ("datasets", place, "name"),
                f"'{dataset.name}' makes a bucket name above {MAX_BUCKET_NAME} characters",
                f"at most {longest} characters with this prefix and stack",
            )


def prefix_is_free_for_buckets(s: Settings) -> Iterator[Fault]:
    """Bucket names do not begin as S3's own do (S3 user guide, bucket naming rules, 2026)."""
    for reserved in RESERVED_BUCKET_PREFIXES:
        if f"{s.base_name}-".startswith(reserved):
            yield Fault(
                ("namePrefix",),
                f"S3 keeps bucket names that begin with {reserved} to itself",
                "choose another",
            )


def role_names_fit(s: Settings) -> Iterator[Fault]:
    """Role names have 64 characters at most (IAM quotas, 2026)."""
    longest = MAX_ROLE_NAME - ROLE_NAME_EXTRA - len(s.base_name)
    for place, group in enumerate(s.gpu_groups):
        if len(group.name) > longest:
            yield Fault(
                ("gpuGroups", place, "name"),
                f"'{group.name}' makes an IAM role name above {MAX_ROLE_NAME} characters",
                f"at most {longest} characters with this prefix and stack",
            )


def accounts_are_account_ids(s: Settings) -> Iterator[Fault]:
    """Account ids have 12 digits, and each is named once."""
    for place, account in enumerate(s.allowed_account_ids):
        if not re.fullmatch(r"\d{12}", account):
            yield Fault(
                ("allowedAccountIds", place), f"'{account}' is no account id", "write its 12 digits in quotes"
            )
    yield from named_twice(s.allowed_account_ids, ("allowedAccountIds",), ())


def names_are_unique(s: Settings) -> Iterator[Fault]:
    """Two datasets of one name would be one bucket."""
    yield from named_twice([dataset.name for dataset in s.datasets], ("datasets",), ("name",))


def group_names_are_unique(s: Settings) -> Iterator[Fault]:
    """Two groups of one name would be one Auto Scaling group."""
    yield from named_twice([group.name for group in s.gpu_groups], ("gpuGroups",), ("name",))


def region_is_known(s: Settings) -> Iterator[Fault]:
    """A region that offers at least one type of the catalog."""
    if s.region not in REGIONS:
        yield Fault(
            ("region",),
            f"'{s.region}' is no region that offers a GPU instance type of the catalog",
            "use one that does",
            nearest(s.region, REGIONS),
        )


def log_retention_is_one_that_cloudwatch_takes(s: Settings) -> Iterator[Fault]:
    """Days that CloudWatch Logs keeps nodes' logs for (botocore logs model, PutRetentionPolicy, 2026)."""
    yield from _retention(s.monitoring.retention_days, ("monitoring", "retentionDays"))


def flow_log_retention_is_one_that_cloudwatch_takes(s: Settings) -> Iterator[Fault]:
    """Days that CloudWatch Logs keeps flow logs for (botocore logs model, PutRetentionPolicy, 2026)."""
    if s.network.flow_log_retention_days is not None:
        yield from _retention(s.network.flow_log_retention_days, ("network", "flowLogRetentionDays"))


def kms_mode_and_key_agree(s: Settings) -> Iterator[Fault]:
    """`kms.keyArn` belongs to mode `existing`, and its key to the stack's region."""
    if s.kms.mode == "existing" and s.kms.key_arn is None:
        yield Fault(("kms", "keyArn"), "missing", "mode existing needs the key's ARN")
    elif s.kms.mode != "existing" and s.kms.key_arn is not None:
        yield Fault(
            ("kms", "keyArn"), f"mode {s.kms.mode} does not use it", "remove it or write mode: existing"
        )
    elif s.kms.key_arn is not None and s.kms.key_arn.split(":")[3] != s.region:
        yield Fault(("kms", "keyArn"), f"the key is not in {s.region}", "use a key of the stack's region")


def tags_are_allowed(s: Settings) -> Iterator[Fault]:
    """Limits of the EC2 user guide, Tag your resources (2026)."""
    for key, value in s.tags.items():
        if key.lower().startswith("aws:"):
            yield Fault(("tags", key), "the prefix aws: is AWS's own", "choose another key")
        if key == "Name" or key.startswith("gpu-training:"):
            # A key both here and on a resource would be a change for ever.
            yield Fault(("tags", key), "the program sets this tag itself", "choose another key")
        if not 1 <= len(key) <= 128:
            yield Fault(("tags", key), f"the key has {len(key)} characters", "at least 1, at most 128")
        if len(value) > 256:
            yield Fault(("tags", key), f"the value has {len(value)} characters", "at most 256")
    if len(s.tags) > MAX_TAGS:
        yield Fault(("tags",), f"{len(s.tags)} tags", f"at most {MAX_TAGS}")


def alert_addresses_are_addresses(s: Settings) -> Iterator[Fault]:
    """SNS mails to whole addresses only, and each is named once."""
    for place, address in enumerate(s.monitoring.alerts.emails):
        if not re.fullmatch(r"[^@\s,;]+@[^@\s,;]+\.[^@\s.,;]+", address):
            yield Fault(
                ("monitoring", "alerts", "emails", place),
                f"'{address}' is no e-mail address",
                "write one address, such as gpu-oncall@example.com",
            )
    yield from named_twice(s.monitoring.alerts.emails, ("monitoring", "alerts", "emails"), ())


def alert_topic_is_of_the_region(s: Settings) -> Iterator[Fault]:
    """Alarms reach topics of their own region only (CloudWatch user guide, 2026)."""
    arn = s.monitoring.alerts.sns_topic_arn
    if arn is not None and arn.split(":")[3] != s.region:
        yield Fault(
            ("monitoring", "alerts", "snsTopicArn"),
            f"the topic is not in {s.region}",
            "alarms reach topics of their own region only",
        )


def cluster_and_kubeconfig_agree(s: Settings) -> Iterator[Fault]:
    """A kubeconfig is given if and only if there is a cluster."""
    if s.monitoring.cluster == "existing" and s.monitoring.kubeconfig is None:
        yield Fault(
            ("monitoring", "kubeconfig"),
            "missing",
            "cluster existing needs it: "
            "pulumi config set --secret --path gpu-training:monitoring.kubeconfig < kubeconfig",
        )
    if s.monitoring.cluster == "none" and s.monitoring.kubeconfig is not None:
        yield Fault(
            ("monitoring", "kubeconfig"),
            "cluster none does not use it",
            "remove it or write cluster: existing",
        )


def floors_are_speeds(s: Settings) -> Iterator[Fault]:
    """Speed floors are of data types that the self-check measures, and above 0."""
    for dtype, tflops in s.self_check.floors_tflops.items():
        path = ("selfCheck", "floorsTflops", dtype)
        if dtype not in DTYPES:
            yield Fault(path, "unknown data type", f"one of {', '.join(DTYPES)}", nearest(dtype, DTYPES))
        if tflops <= 0:
            yield Fault(path, f"{tflops} is no speed", "write TFLOPS above 0")


def _retention(days: int, path: Path) -> Iterator[Fault]:
    if days not in RETENTION_DAYS:
        closest = min(RETENTION_DAYS, key=lambda allowed: abs(allowed - days))
        yield Fault(
            path,
            f"CloudWatch does not keep logs for {days} days",
            f"one of {', '.join(map(str, RETENTION_DAYS))}",
            str(closest),
        )


DTYPES = ("fp32", "tf32", "bf16", "fp16", "fp8")  # what the self-check measures
RULES: tuple[StackRule, ...] = (
    suppressions_have_an_id_and_a_reason,
    stack_name_fits_names,
    region_is_known,
    accounts_are_account_ids,
    names_fit_their_limits,
    prefix_is_free_for_buckets,
    tags_are_allowed,
    kms_mode_and_key_agree,
    *network_rules.RULES,
    flow_log_retention_is_one_that_cloudwatch_takes,
    names_are_unique,
    group_names_are_unique,
    role_names_fit,
    floors_are_speeds,
    cluster_and_kubeconfig_agree,
    log_retention_is_one_that_cloudwatch_takes,
    alert_addresses_are_addresses,
    alert_topic_is_of_the_region,
    *quota_rules.RULES,
    *storage_rules.RULES,
    *identity_rules.RULES,
    *cost_rules.RULES,
)
