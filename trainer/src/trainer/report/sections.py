"""The report's tables: generations, nodes and GPUs, checkpoints, cost, configuration."""

from __future__ import annotations

import json
from collections.abc import Sequence

from ..agent.cost import describe_cost
from ..contracts.cost import RunCost
from ..selfcheck.report import SelfCheckReport
from .html import Cell, size, span, table, text, when
from .record import Record
from .steps import Part
from .story import Chapter, TimeSpent, code_name, of_kind

MOST_ROWS = 100
COLOURS = {"pass": "good", "info": "", "warning": "warn", "unknown": "warn", "fail": "bad"}


def generations(chapters: Sequence[Chapter]) -> str:
    rows = [
        (
            str(one.generation),
            Cell(when(one.begin_at), "t"),
            Cell(span(one.seconds), "t"),
            str(one.world_size) if one.world_size is not None else "",
            f"{one.first_step} to {one.last_step}",
            str(one.lost_steps) if one.lost_steps else "",
            one.instance_id,
            Cell(one.ending, "" if one.ending.startswith(("finished", "stopped")) else "warn"),
        )
        for one in _last(chapters)
    ]
    heads = ("", "began, UTC", "lasted", "ranks", "steps", "lost", "rank 0 on", "ended")
    return _more(chapters, "generations") + table(heads, rows, frozenset({3, 5}))


def spent(time: TimeSpent) -> str:
    """A bar of what the hours went into, and the same in words."""
    shares = (
        ("steps", time.steps),
        ("waiting for data", time.data_wait),
        ("saving", time.saves),
        ("evaluating", time.evaluations),
        ("between generations", time.between),
        ("starting and the rest", time.other),
    )
    total = time.total or 1.0
    bar = "".join(
        f'<i style="--c:var(--t{place});width:{100 * seconds / total:.2f}%"></i>'
        for place, (_, seconds) in enumerate(shares)
        if seconds > 0
    )
    keys = "".join(
        f'<span class="key" style="--c:var(--t{place})">{text(name)} {span(seconds)} '
        f"({100 * seconds / total:.1f} %)</span>"
        for place, (name, seconds) in enumerate(shares)
        if seconds > 0
    )
    return f'<div class="spent">{bar}</div><div class="keys">{keys}</div>'


def incidents(parts: Sequence[Part]) -> str:
    """Errors, checkpoints that could not be used, slow ranks, remarks."""
    rows = []
    found = of_kind(parts, "error", "fallback", "straggler", "note")
    for generation, event in _last(found):
        if event.kind == "straggler":
            words = f"rank {event.slow_rank} takes {event.ratio or 0:.2f} times as long as the median rank"
        elif event.kind == "error":
            words = f"{code_name(event.code)}: {event.message or ''}"
        else:
            words = event.message or ""
        step = "" if event.step is None else str(event.step)
        rows.append((Cell(when(event.time), "t"), str(generation), step, event.kind, words))
    if not rows:
        return ""
    heads = ("UTC", "generation", "step", "what", "")
    return _more(found, "events") + table(heads, rows, frozenset({1, 2}))


def nodes(checks: dict[str, SelfCheckReport]) -> str:
    """One row a node, then whatever is not a plain pass."""
    rows, remarks = [], []
    for id_, check in sorted(checks.items()):
        best = f"{check.matmul_tflops:.4g}" if check.matmul_tflops is not None else "not measured"
        versions = ", ".join(f"{name} {version}" for name, version in sorted(check.versions.items()))
        rows.append(
            (
                id_,
                Cell(check.verdict, COLOURS[check.verdict]),
                check.level,
                f"{check.seconds:.1f}",
                best,
                versions,
            )
        )
        for finding in check.findings:
            if finding.verdict != "pass":
                cause = [f"cause: {finding.cause}"] if finding.cause else []
                words = "; ".join([finding.message, *cause])
                remarks.append((id_, finding.check, Cell(finding.verdict, COLOURS[finding.verdict]), words))
    heads = ("node", "verdict", "level", "seconds", "TFLOPS", "versions")
    out = table(heads, rows, frozenset({3, 4}))
    if remarks:
        out += "<h3>Findings that are more than a pass</h3>"
        out += _more(remarks, "findings", first=True)
        out += table(("node", "check", "verdict", "what was found"), remarks[:MOST_ROWS])
    return out


def matmul(checks: dict[str, SelfCheckReport]) -> str:
    rows = [
        (
            id_,
            figure.device,
            figure.name,
            figure.dtype,
            f"{figure.tflops_median:.4g}",
            f"{100 * figure.spread_ratio:.1f} %",
            f"{figure.floor_tflops:.4g}" if figure.floor_tflops is not None else "none",
            f"{figure.error:.0e}",
            Cell("yes") if figure.repeatable else Cell("NO", "bad"),
        )
        for id_, check in sorted(checks.items())
        for figure in check.matmul
    ]
    if not rows:
        return ""
    heads = ("node", "device", "", "dtype", "TFLOPS", "spread", "floor", "error", "same bits")
    out = _more(rows, "figures", first=True) + table(heads, rows[:MOST_ROWS], frozenset({4, 5, 6, 7}))
    return f"<h3>Matrix products</h3>{out}"


def checkpoints(record: Record) -> str:
    saves = of_kind(record.parts, "checkpoint")
    there = {manifest.step for manifest in record.checkpoints}
    named = {
        name: pointer.step
        for name, pointer in (("latest", record.latest), ("best", record.best))
        if pointer is not None
    }
    rows = []
    for generation, event in _last(saves):
        step = event.step if event.step is not None else -1
        words = [name for name, at in named.items() if at == step] + (["kept"] if step in there else [])
        rows.append(
            (
                Cell(when(event.time), "t"),
                str(generation),
                str(step),
                event.reason or "",
                span(event.seconds) if event.seconds is not None else "",
                size(event.size_bytes) if event.size_bytes is not None else "",
                Cell((event.sha256 or "")[:12], "code"),
                ", ".join(words),
            )
        )
    if not rows:
        return '<p class="soft">No checkpoint was told.</p>'
    heads = ("UTC", "generation", "step", "why", "took", "size", "SHA-256 begins", "now")
    return _more(saves, "checkpoints") + table(heads, rows, frozenset({1, 2, 4, 5}))


def cost(found: RunCost | None) -> str:
    if found is None:
        return '<p class="soft">No node told its time: the run was not on nodes of a stack, or of an older release.</p>'
    rows = [
        (kind.instance_type, kind.life_cycle, str(kind.nodes), f"{kind.hours:.2f}")
        for kind in found.node_hours
    ]
    words = f"<p>{text(describe_cost(found))}. Nodes only: no disks, network or storage.</p>"
    return words + table(("instance type", "bought", "nodes", "hours"), rows, frozenset({2, 3}))


def configuration(record: Record) -> str:
    if record.config is None:
        return '<p class="soft">The run\'s configuration is not in this folder.</p>'
    data = record.config.model_dump(mode="json", by_alias=True, exclude_none=True)
    return f"<pre>{text(json.dumps(data, indent=2))}</pre>"


def _last(rows: Sequence) -> Sequence:  # type: ignore[type-arg]
    return rows[-MOST_ROWS:]


def _more(rows: Sequence[object], what: str, first: bool = False) -> str:
    if len(rows) <= MOST_ROWS:
        return ""
    which = "first" if first else "last"
    return f'<p class="soft">The {which} {MOST_ROWS} of {len(rows)} {text(what)}.</p>'
