"""Builds what the engine hands to a rule, and tells a rule's outcome through the SDK's own policy object."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pulumi_policy import (
    PolicyCustomTimeouts,
    PolicyResource,
    PolicyResourceOptions,
    ResourceValidationArgs,
    StackValidationArgs,
    StackValidationPolicy,
)
from pulumi_policy.policy import _NotApplicableError
from pulumi_policy.proxy import UNKNOWN_STRING_VALUE, UnknownValueError, unknown_checking_proxy

from policies.rules import RULES
from policies.rules._judge import AnyRule, Outcome

NOT_YET = UNKNOWN_STRING_VALUE  # how the engine writes a value that is unknown at preview
RULE_BY_ID: dict[str, AnyRule] = {rule.id: rule for rule in RULES}
OPTIONS = PolicyResourceOptions(False, [], None, [], PolicyCustomTimeouts(0, 0, 0), [])


@dataclass(frozen=True)
class R:
    """A resource of a test stack. `links` maps a property to the resources that its value comes from."""

    type: str
    props: Mapping[str, Any] = field(default_factory=dict)
    name: str = "it"
    links: Mapping[str, Sequence[str]] = field(default_factory=dict)
    stack: str = "test"

    @property
    def urn(self) -> str:
        return f"urn:pulumi:{self.stack}::gpu-training::{self.type}::{self.name}"


@dataclass(frozen=True)
class Case:
    """What a rule has to say about some resources; `says` must be part of its message or unknown path."""

    what: str
    outcome: Outcome
    resources: Sequence[R]
    says: str = ""
    config: Mapping[str, Any] | None = None  # the rule's part of the pack's configuration


@dataclass
class Verdict:
    outcome: Outcome
    messages: list[str]
    urns: list[str | None]
    unknown: str = ""


def judge(rule: AnyRule, resources: Sequence[R], config: Mapping[str, Any] | None = None) -> Verdict:
    """The gravest outcome over all resources, as `pulumi preview` would show it."""
    policy = rule.policy()
    if isinstance(policy, StackValidationPolicy):
        return _verdict(policy, StackValidationArgs(_linked(resources), config))
    verdicts = [
        _verdict(
            policy,
            ResourceValidationArgs(
                r.type, unknown_checking_proxy(dict(r.props)), r.urn, r.name, OPTIONS, None, config
            ),
        )
        for r in resources
    ]
    order = [Outcome.VIOLATION, Outcome.UNKNOWN, Outcome.COMPLIANT, Outcome.NOT_APPLICABLE]
    return min(verdicts, key=lambda verdict: order.index(verdict.outcome))


def _linked(resources: Sequence[R]) -> list[PolicyResource]:
    made = {
        r.name: PolicyResource(
            r.type, unknown_checking_proxy(dict(r.props)), r.urn, r.name, OPTIONS, None, None, [], {}
        )
        for r in resources
    }
    assert len(made) == len(resources), "two resources of a case have one name"
    for r in resources:
        made[r.name].property_dependencies = {
            key: [made[name] for name in names] for key, names in r.links.items()
        }
    return list(made.values())


def _verdict(policy: Any, args: Any) -> Verdict:
    messages: list[str] = []
    urns: list[str | None] = []

    def tell(message: str, urn: str | None = None) -> None:
        messages.append(message)
        urns.append(urn)

    unknown = ""
    try:
        policy.validate(args, tell)
    except _NotApplicableError:
        return Verdict(Outcome.NOT_APPLICABLE, messages, urns)
    except UnknownValueError as error:
        unknown = error.message
    outcome = Outcome.VIOLATION if messages else Outcome.UNKNOWN if unknown else Outcome.COMPLIANT
    return Verdict(outcome, messages, urns, unknown)
