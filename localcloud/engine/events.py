"""The engine's event log: what an operation did to each resource, and what was said about it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

STACK_TYPE = "pulumi:pulumi:Stack"


@dataclass(frozen=True)
class Step:
    """One resource: `op` is create, update, replace, delete, same …; `new` and `old` are its states."""

    op: str
    urn: str
    type: str
    keys: tuple[str, ...]  # the properties that force a replacement
    diffs: tuple[str, ...]  # the properties that changed
    new: dict[str, Any] | None
    old: dict[str, Any] | None


@dataclass(frozen=True)
class Violation:
    policy: str
    level: str  # mandatory | advisory
    urn: str
    message: str


@dataclass(frozen=True)
class Events:
    steps: tuple[Step, ...] = ()
    changes: dict[str, int] = field(default_factory=dict)  # op -> number of resources
    violations: tuple[Violation, ...] = ()
    errors: tuple[str, ...] = ()
    outputs: dict[str, Any] = field(
        default_factory=dict
    )  # the stack's; unknown yet: the engine's unknown value

    @classmethod
    def read(cls, path: Path) -> Events:
        """Read a log; a missing one has no events (the CLI ended before its engine began)."""
        steps: list[Step] = []
        changes: dict[str, int] = {}
        violations: list[Violation] = []
        errors: list[str] = []
        outputs: dict[str, Any] = {}
        text = path.read_text() if path.exists() else ""
        for event in (json.loads(line) for line in text.splitlines() if line.strip()):
            if "resourcePreEvent" in event:
                steps.append(_step(event["resourcePreEvent"]["metadata"]))
            elif "resOutputsEvent" in event:
                metadata = event["resOutputsEvent"]["metadata"]
                if metadata["type"] == STACK_TYPE:
                    outputs = (metadata.get("new") or {}).get("outputs") or {}
            elif "summaryEvent" in event:
                changes = event["summaryEvent"].get("resourceChanges") or {}
            elif "policyEvent" in event:
                violations.append(_violation(event["policyEvent"]))
            elif event.get("diagnosticEvent", {}).get("severity") == "error":
                errors.append(event["diagnosticEvent"]["message"].strip())
        return cls(tuple(steps), changes, tuple(violations), tuple(errors), outputs)


def _step(metadata: dict[str, Any]) -> Step:
    return Step(
        op=metadata["op"],
        urn=metadata["urn"],
        type=metadata["type"],
        keys=tuple(metadata.get("keys") or ()),
        diffs=tuple(metadata.get("diffs") or ()),
        new=metadata.get("new"),
        old=metadata.get("old"),
    )


def _violation(event: dict[str, Any]) -> Violation:
    return Violation(
        event["policyName"], event["enforcementLevel"], event.get("resourceUrn", ""), event["message"].strip()
    )
