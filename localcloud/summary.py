"""What `make up` found: facts in, verdict, table and `summary.json` out. Pure but for the printing."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

SCHEMA_FILE = Path(__file__).with_name("summary.schema.json")
LOSS_RATIO_LIMIT = 0.8  # the mean loss of the last tenth of the steps against that of the first tenth


@dataclass(frozen=True)
class NodeSelfCheck:
    verdict: str  # pass | info | warning | fail | unknown
    seconds: float | None
    matmulTflops: float | None  # the slowest device at its fastest dtype; None: not measured


@dataclass(frozen=True)
class NodeSummary:
    id: str
    group: str
    lifecycle: str
    selfcheck: NodeSelfCheck
    launch: dict[str, float | None] = field(default_factory=dict)  # seconds by phase, launch to first step


@dataclass(frozen=True)
class LossSummary:
    first: float | None
    last: float | None
    steps: int


@dataclass(frozen=True)
class CheckpointSummary:
    step: int | None
    sha256: str | None
    verified: bool


@dataclass(frozen=True)
class ScrapeSummary:
    declared: int
    up: int


@dataclass(frozen=True)
class Summary:
    """Field names are those of `summary.json`, whose schema is `summary.schema.json`."""

    stack: str
    run: str
    nodes: list[NodeSummary]
    loss: LossSummary
    checkpoint: CheckpointSummary
    scrape: ScrapeSummary
    seconds: dict[str, float] = field(default_factory=dict)

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Summary:
        data: dict[str, Any] = json.loads(text)
        return cls(
            stack=data["stack"],
            run=data["run"],
            nodes=[
                NodeSummary(**{**node, "selfcheck": NodeSelfCheck(**node["selfcheck"])})
                for node in data["nodes"]
            ],
            loss=LossSummary(**data["loss"]),
            checkpoint=CheckpointSummary(**data["checkpoint"]),
            scrape=ScrapeSummary(**data["scrape"]),
            seconds=data["seconds"],
        )

    def with_seconds(self, seconds: dict[str, float]) -> Summary:
        return replace(self, seconds={name: round(value, 2) for name, value in seconds.items()})


def faults(summary: Summary, declared_nodes: int) -> list[str]:
    """Every reason why this stack is not up; an empty list is the only success.

    Each line says what is wrong and what was expected.
    """
    found: list[str] = []
    if len(summary.nodes) != declared_nodes:
        found.append(f"{len(summary.nodes)} of {declared_nodes} declared nodes are in service")
    for node in summary.nodes:
        if node.selfcheck.verdict not in ("pass", "info", "warning"):
            found.append(f"node {node.id}: self-check verdict {node.selfcheck.verdict}, expected pass")
    first, last = summary.loss.first, summary.loss.last
    if first is None or last is None:
        found.append(f"run {summary.run}: no finite training loss was recorded")
    elif last > LOSS_RATIO_LIMIT * first:
        found.append(
            f"run {summary.run}: mean loss went from {first:.4f} (first tenth of {summary.loss.steps} steps) to "
            f"{last:.4f} (last tenth), expected at most {LOSS_RATIO_LIMIT} of the first"
        )
    if not summary.checkpoint.verified:
        found.append(f"run {summary.run}: no checkpoint in the bucket could be verified by its hash")
    if summary.scrape.up != declared_nodes:
        found.append(f"metrics of {summary.scrape.up} of {declared_nodes} declared nodes were scraped")
    return found


def _number(value: float | None, form: str) -> str:
    return "not measured" if value is None else format(value, form)


def print_table(summary: Summary, console: Console) -> None:
    nodes = Table(title=f"stack {summary.stack}", title_justify="left")
    for header in ("node", "group", "lifecycle", "self-check", "seconds", "TFLOPS"):
        nodes.add_column(header, no_wrap=True, justify="right" if header in ("seconds", "TFLOPS") else "left")
    for node in summary.nodes:
        check = node.selfcheck
        seconds, tflops = _number(check.seconds, ".1f"), _number(check.matmulTflops, ".3g")
        nodes.add_row(node.id, node.group, node.lifecycle, check.verdict, seconds, tflops)
    console.print(nodes)

    run = Table(title=f"run {summary.run}", title_justify="left", show_header=False)
    loss, saved = summary.loss, summary.checkpoint
    if loss.first is not None and loss.last is not None:
        ratio = loss.last / loss.first if loss.first else float("nan")
        run.add_row("loss", f"{loss.first:.4f} -> {loss.last:.4f} ({ratio:.0%}) over {loss.steps} steps")
    if saved.sha256 is not None:
        state = "verified by hash" if saved.verified else "NOT verified"
        run.add_row("checkpoint", f"step {saved.step}, sha256 {saved.sha256[:12]}…, {state}")
    run.add_row("metrics", f"{summary.scrape.up} of {summary.scrape.declared} nodes scraped")
    phases = ", ".join(f"{name} {value:.1f}" for name, value in summary.seconds.items() if name != "total")
    run.add_row("seconds", f"{summary.seconds.get('total', 0):.1f} in total ({phases})")
    console.print(run)
