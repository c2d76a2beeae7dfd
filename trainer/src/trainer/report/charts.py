"""Which charts a run has: one for each thing that its steps and evaluations told, none for what they did not."""

from __future__ import annotations

from collections.abc import Sequence

from .chart import Chart, Format, Line, percent, seconds, short
from .html import size
from .steps import Bin, Part, Rates, Steps, thin
from .story import Chapter, of_kind

POINTS = 200  # of a line: more is noise at this width


def learning(steps: Steps, parts: Sequence[Part], chapters: Sequence[Chapter]) -> list[Chart]:
    marks = _marks(chapters)
    held_out = evaluations(parts, "eval_loss")
    dots = len(held_out) <= 60
    losses = [Line("training", thin(steps.numbers, steps.columns["loss"], POINTS))]
    if held_out:
        losses.append(Line("held-out", held_out, dots=dots))
    accuracy, perplexity = (evaluations(parts, f"eval_{name}") for name in ("accuracy", "perplexity"))
    return _with_points(
        [
            Chart("Loss", losses, marks=marks, may_log=True),
            Chart("Held-out accuracy", [Line("accuracy", accuracy, dots)], percent, marks),
            Chart("Held-out perplexity", [Line("perplexity", perplexity, dots)], short, marks, may_log=True),
            _of(steps, "learning_rate", "Learning rate", marks, short, from_zero=True),
            _of(steps, "grad_norm", "Norm of the gradient", marks, short, may_log=True),
        ]
    )


def speed(steps: Steps, rates: Rates, chapters: Sequence[Chapter]) -> list[Chart]:
    marks = _marks(chapters)

    def line(name: str, values: Sequence[float]) -> list[Line]:
        return [Line(name, thin(steps.numbers, values, POINTS))]

    waits = line("data wait", rates.data_wait)
    return _with_points(
        [
            Chart(
                "Samples a second, all ranks",
                line("samples", rates.samples),
                short,
                marks,
                True,
                without_outliers=True,
            ),
            Chart(
                "Tokens a second, all ranks",
                line("tokens", rates.tokens),
                short,
                marks,
                True,
                without_outliers=True,
            ),
            Chart(
                "Time of a step",
                line("step", steps.columns["seconds"]),
                seconds,
                marks,
                True,
                without_outliers=True,
            ),
            Chart("Share of a step spent waiting for data", waits, percent, marks, True),
            _of(steps, "mfu", "MFU", marks, percent, from_zero=True),
            _of(
                steps,
                "device_peak_bytes",
                "Most device memory that was allocated",
                marks,
                size,
                from_zero=True,
            ),
        ]
    )


def evaluations(parts: Sequence[Part], name: str) -> list[Bin | None]:
    """Held-out figures by step; one that was made twice counts as its last time."""
    found: dict[int, float] = {}
    for _, event in of_kind(parts, "eval", "finished"):
        value = getattr(event, name)
        if value is not None and event.step is not None:
            found[event.step] = value
    xs = sorted(found)
    return thin(xs, [found[x] for x in xs], POINTS)


def _of(
    steps: Steps, column: str, title: str, marks: Sequence[tuple[float, str]], format_: Format, **more: bool
) -> Chart:
    return Chart(
        title, [Line(title, thin(steps.numbers, steps.columns[column], POINTS))], format_, marks, **more
    )


def _marks(chapters: Sequence[Chapter]) -> list[tuple[float, str]]:
    """Where generations after the first went on; more than a chart can show are left out."""
    found = [
        (float(one.first_step), f"generation {one.generation} goes on from here") for one in chapters[1:]
    ]
    return found if len(found) <= 40 else []


def _with_points(charts: Sequence[Chart]) -> list[Chart]:
    return [
        chart for chart in charts if any(point is not None for line in chart.lines for point in line.points)
    ]
