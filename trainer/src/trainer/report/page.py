"""The page: one file, no script, nothing fetched. Its own policy forbids the browser to fetch anything."""

from __future__ import annotations

import datetime
from collections.abc import Callable

from .. import __version__
from . import charts, sections, timeline
from .chart import percent, short
from .html import figure, span, text, tiles
from .progress import progress_of
from .record import Record
from .steps import Rates, Steps, merge
from .story import Chapter, TimeSpent, chapters, median, of_kind, time_spent
from .style import STYLE

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
STATES = {"finished": "good", "failed": "bad", "stopped": "warn"}


def render(record: Record, made_at: datetime.datetime) -> str:
    """The whole page; ``made_at`` in UTC."""
    steps, lost = merge(record.parts)
    rates = Rates.of(steps)
    life = chapters(record.parts, lost)
    spent = time_spent(record.parts)
    body = [
        head(record, life),
        tiles(figures(record, steps, rates, life, spent)),
        _charts("Learning", charts.learning(steps, record.parts, life)),
        '<p class="soft">Dashed lines: a new generation went on from there.</p>' if len(life) > 1 else "",
        _charts("Speed", charts.speed(steps, rates, life)),
    ]
    if life:
        body += ["<h2>Generations and interruptions</h2>"]
        body += [
            f"<figure><figcaption>Generations over time{_hint()}</figcaption>"
            f"{timeline.svg(life, record.parts)}</figure>"
        ]
        body += [f"<h3>Where the time went</h3>{sections.spent(spent)}" if spent and spent.total > 0 else ""]
        body += [sections.generations(life)]
        trouble = sections.incidents(record.parts)
        body += [f"<h3>Errors, unusable checkpoints, slow ranks</h3>{trouble}" if trouble else ""]
    body += ["<h2>Nodes and GPUs</h2>", health(record)]
    body += ["<h2>Checkpoints</h2>", sections.checkpoints(record)]
    body += ["<h2>Cost</h2>", sections.cost(record.cost)]
    body += ["<h2>Versions</h2>", f"<p>{text(versions(record))}</p>"]
    body += ["<h2>Configuration</h2>", sections.configuration(record)]
    made = made_at.strftime("%Y-%m-%d %H:%M UTC")
    body += [
        f"<footer>Made {made} by trainer {text(__version__)} from the run's own documents. All times are UTC.</footer>"
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{text(record.name)}: training report</title><style>{STYLE}</style></head>"
        f"<body>{''.join(body)}</body></html>\n"
    )


def head(record: Record, life: list[Chapter]) -> str:
    status = record.result.status if record.result else _status(life)
    colour = STATES.get(status, "soft")
    words = []
    if record.config is not None:
        training = record.config.training
        words = [training.model, f"on {training.dataset}", f"{training.global_batch_size} samples a step"]
        words += [f"{record.config.nodes} nodes" if record.config.nodes > 1 else "1 node"]
    message = f"<p>{text(record.result.message)}</p>" if record.result else ""
    return (
        f'<h1>{text(record.name)} <span class="state {colour}">{text(status)}</span></h1>'
        f'<p class="soft">{text(", ".join(words))}</p>{message}'
    )


def figures(
    record: Record, steps: Steps, rates: Rates, life: list[Chapter], spent: TimeSpent | None
) -> list[tuple[str, str, str]]:
    progress = progress_of(record.parts)
    seconds = [value for value in steps.columns["seconds"] if value == value]
    of_all = f"of {progress.total_steps}" if progress.total_steps else ""
    first, last = progress.first_loss, progress.last_loss
    rate, tokens = median(rates.samples), median(rates.tokens)
    mfu, usual = median(steps.columns["mfu"]), median(seconds)
    slow = sorted(seconds)[int(0.95 * (len(seconds) - 1))] if seconds else None
    saves = [event for _, event in of_kind(record.parts, "checkpoint")]
    save = median([event.seconds for event in saves if event.seconds is not None])
    lost = sum(one.lost_steps for one in life)
    price = record.cost if record.cost is not None and record.cost.prices_as_of else None
    wait = (
        spent.data_wait / (spent.steps + spent.data_wait) if spent and spent.steps + spent.data_wait else None
    )
    return [
        ("steps", str(progress.step), of_all),
        ("loss", short(last) if last is not None else "", f"from {short(first)}" if first is not None else ""),
        ("held-out loss", _or_none(progress.eval_loss, short), ""),
        ("held-out accuracy", _or_none(progress.eval_accuracy, percent), ""),
        ("samples a second", _or_none(rate, short), "median, all ranks"),
        ("tokens a second", _or_none(tokens, short), "median, all ranks"),
        ("time of a step", _or_none(usual, span), f"median; 95th percentile {span(slow)}" if slow else ""),
        ("waiting for data", _or_none(wait, percent), "of all steps' time"),
        ("MFU", _or_none(mfu, percent), "median"),
        ("from first to last event", span(spent.total) if spent else "", ""),
        ("recoveries", str(len(life) - 1) if life else "", f"{lost} steps lost" if life else ""),
        ("checkpoints", str(len(saves)) if saves else "", f"median {span(save)}" if save is not None else ""),
        ("cost", _cost(price.usd_low, price.usd_high) if price else "", "nodes, list prices"),
    ]  # fmt: skip


def health(record: Record) -> str:
    if not record.selfchecks:
        return '<p class="soft">No self-check of a node is kept with this run.</p>'
    note = (
        '<p class="soft">What the nodes found of themselves before they trained. Readings over time '
        "(temperature, power, XIDs) are in Prometheus.</p>"
    )
    return note + sections.nodes(record.selfchecks) + sections.matmul(record.selfchecks)


def versions(record: Record) -> str:
    found = record.generation.versions if record.generation else None
    if found is None:
        found = next((member.versions for member in record.members.values()), None)
    if found is None and record.checkpoints:
        return f"trainer {record.checkpoints[-1].trainer_version}"
    if found is None:
        return "not told"
    nccl = f", NCCL {found.nccl}" if found.nccl else ""
    return f"trainer {found.trainer}, torch {found.torch}{nccl}"


def _charts(title: str, found: list[charts.Chart]) -> str:
    if not found:
        return ""
    return f'<h2>{text(title)}</h2><div class="charts">{"".join(figure(chart) for chart in found)}</div>'


def _status(life: list[Chapter]) -> str:
    """A run on one machine has no result document: its last event tells."""
    ending = life[-1].ending if life else ""
    return next((word for word in ("finished", "stopped") if ending.startswith(word)), "no result yet")


def _hint() -> str:
    return "<span>notches: checkpoints; red: steps that were lost and done again</span>"


def _or_none(value: float | None, words: Callable[[float], str]) -> str:
    return "" if value is None else words(value)


def _cost(low: float, high: float) -> str:
    return f"USD {low:.2f}" if f"{low:.2f}" == f"{high:.2f}" else f"USD {low:.2f} to {high:.2f}"
