"""What every rule is made of: metadata, findings, and a reader that tells "not known yet" from "absent".

A finding is one of four outcomes. Unknown is an outcome of its own: at preview a property may depend on a
resource that does not exist yet. The SDK ends a rule at the first such read, and violations after it are
lost; so rules here read through `leaves`, which hands unknown values out as `UNKNOWN`, and `report` says what
was unknown only after it has reported every violation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from pulumi_policy import (
    EnforcementLevel,
    PolicyConfigSchema,
    PolicyResource,
    ReportViolation,
    ResourceValidationArgs,
    ResourceValidationPolicy,
    Severity,
    StackValidationArgs,
    StackValidationPolicy,
)
from pulumi_policy.proxy import UNKNOWN_STRING_VALUE, UnknownValueError

from ._exceptions import EXCEPTIONS_PROPERTIES, Exceptions

DOCS = "docs/policies.md"


class Outcome(Enum):
    COMPLIANT = "compliant"
    VIOLATION = "violation"
    NOT_APPLICABLE = "not applicable"
    UNKNOWN = "unknown"


class _Unknown:
    """The one value that stands for a property that cannot be known during preview."""

    def __bool__(self) -> bool:
        raise TypeError("an unknown value is neither true nor false: compare with `is UNKNOWN` first")

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN = _Unknown()


@dataclass(frozen=True)
class Finding:
    """A violation, or a property that is not known yet; `urn` and `name` are the resource's."""

    outcome: Outcome
    message: str
    name: str
    urn: str
    validator: str = ""  # where a rule runs several: the one that found it, by which an exception may name it
    fix: str = ""  # where it is not the rule's


Judged = ResourceValidationArgs | PolicyResource


def violation(resource: Judged, message: str) -> Finding:
    return Finding(Outcome.VIOLATION, message, resource.name, resource.urn)


def unknown(resource: Judged, path: str) -> Finding:
    return Finding(Outcome.UNKNOWN, path, resource.name, resource.urn)


def read(container: Any, key: Any) -> Any:
    """One property: its value, `UNKNOWN`, or None where it is absent."""
    try:
        return container[key]
    except UnknownValueError:
        return UNKNOWN
    except (KeyError, IndexError):
        return None


def leaves(props: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    """All values at `path` as (path, value): `a.b` descends, `a[*].b` opens a list, `a[0].b` takes one item.

    An absent property gives None, an absent list gives nothing. A container that is unknown as a whole gives
    one `UNKNOWN` under its own path.
    """
    yield from _descend(props, re.findall(r"[^.\[\]]+|\[\*\]", path), "")


def _descend(value: Any, steps: list[str], at: str) -> Iterator[tuple[str, Any]]:
    if not steps or value is UNKNOWN:
        yield at, value
    elif steps[0] == "[*]":
        items = value if isinstance(value, Sequence) and not isinstance(value, str) else []
        for index in range(len(items)):
            yield from _descend(read(items, index), steps[1:], f"{at}[{index}]")
    elif isinstance(value, Mapping):
        yield from _descend(read(value, steps[0]), steps[1:], f"{at}.{steps[0]}".lstrip("."))
    elif isinstance(value, Sequence) and steps[0].isdigit():
        yield from _descend(read(value, int(steps[0])), steps[1:], f"{at}[{steps[0]}]")
    else:
        yield ".".join([at, *steps]).lstrip("."), None


def require(resource: Judged, path: str, is_right: Callable[[Any], bool], message: str) -> Iterator[Finding]:
    """A finding for each value at `path` that is not right (absent counts as None) or is unknown."""
    for at, value in leaves(resource.props, path):
        if value is UNKNOWN:
            yield unknown(resource, at)
        elif not is_right(value):
            yield violation(resource, f"{at}: {message}")


def is_true(value: Any) -> bool:
    """Launch templates spell their booleans as strings."""
    return value is True or value == "true"


@dataclass(frozen=True)
class Rule:
    """A rule's metadata; `docs/policies.md` repeats it as a table and a test compares the two.

    `why` says what goes wrong without it, `fix` what to write instead. Both are shown with each violation.
    """

    id: str
    why: str
    fix: str
    severity: Severity
    advises_at_preview: bool = field(
        default=False, kw_only=True
    )  # and refuses at the update; see _preview.py
    options: Mapping[str, Any] = field(
        default_factory=dict, kw_only=True
    )  # JSON schema of its own configuration

    level = EnforcementLevel.MANDATORY

    def _policy_arguments(self) -> dict[str, Any]:
        return {
            "name": self.id,
            "description": self.why,
            "enforcement_level": self.level,
            "severity": self.severity,
            "remediation_steps": self.fix,
            "config_schema": PolicyConfigSchema({**EXCEPTIONS_PROPERTIES, **self.options}),
            "url": f"{DOCS}#{self.id}",
        }

    def report(self, findings: Iterable[Finding], config: Mapping[str, Any], tell: ReportViolation) -> None:
        """Violations first; then, in one advisory, everything that was unknown."""
        exceptions = Exceptions(config)
        unknowns: list[str] = []
        for finding in findings:
            if finding.outcome is Outcome.UNKNOWN:
                unknowns.append(f"{finding.name}: {finding.message}")
            elif not exceptions.covers(finding.name, finding.validator):
                note = exceptions.note(finding.name, finding.validator)
                by = f" [{finding.validator}]" if finding.validator else ""
                fix = finding.fix or self.fix
                tell(f"{finding.name}: {finding.message}{by}\nFix: {fix}{note}", finding.urn)
        if unknowns:
            raise _NotKnownYet(unknowns)


class _NotKnownYet(UnknownValueError):
    """The SDK turns this into an advisory, whatever the rule's level."""

    def __init__(self, paths: list[str]) -> None:
        super().__init__(UNKNOWN_STRING_VALUE, paths)
        self.message = "unknown until the update: " + "; ".join(paths)


@dataclass(frozen=True)
class ResourceRule(Rule):
    """Judges one resource by its inputs, as soon as the program declares it."""

    types: frozenset[str]
    judge: Callable[[ResourceValidationArgs], Iterator[Finding]]

    def policy(self) -> ResourceValidationPolicy:
        def validate(args: ResourceValidationArgs, tell: ReportViolation) -> None:
            if args.resource_type not in self.types:
                args.not_applicable("another resource type")
            self.report(self.judge(args), args.get_config(), tell)

        return ResourceValidationPolicy(validate=validate, **self._policy_arguments())


@dataclass(frozen=True)
class StackRule(Rule):
    """Judges resources together, after the whole program ran, by their outputs and dependencies."""

    types: frozenset[str]  # at least one resource of these must be there, else the rule does not apply
    judge: Callable[..., Iterator[Finding]]  # of the resources; with `options`, of the configuration too

    def policy(self) -> StackValidationPolicy:
        def validate(args: StackValidationArgs, tell: ReportViolation) -> None:
            if not any(resource.resource_type in self.types for resource in args.resources):
                args.not_applicable("no such resource in the stack")
            config = args.get_config()
            found = self.judge(args.resources, config) if self.options else self.judge(args.resources)
            self.report(found, config, tell)

        return StackValidationPolicy(validate=validate, **self._policy_arguments())


AnyRule = ResourceRule | StackRule
