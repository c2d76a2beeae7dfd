"""Line charts as inline SVG: pure text, no library, no script; colours come from the page's style."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape

from .steps import Bin

WIDTH, HEIGHT = (
    480,
    220,
)  # of the view box: at this width text is as large as the page's, on a phone still readable
LEFT, RIGHT, TOP, BOTTOM = 54, 14, 12, 30
TICKS = 5
LOG_RATIO = 30.0  # from so much between lowest and highest on, a positive logarithmic chart shows more
OUTERMOST = 0.01  # of the points that an outlier-proof scale leaves out at each end

Format = Callable[[float], str]


def short(value: float) -> str:
    """``1.2M``, ``34k``, ``0.25``, ``2e-05``: at most four digits."""
    size = abs(value)
    for limit, sign in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size >= limit:
            return f"{value / limit:.3g}{sign}"
    return f"{value:.3g}"


def percent(value: float) -> str:
    return f"{100 * value:.3g} %"


def seconds(value: float) -> str:
    return f"{1000 * value:.3g} ms" if abs(value) < 1 else f"{value:.3g} s"


@dataclass(frozen=True)
class Line:
    name: str
    points: Sequence[Bin | None]  # None: a gap
    dots: bool = False  # each point is a value of its own, such as an evaluation


@dataclass(frozen=True)
class Chart:
    title: str
    lines: Sequence[Line]
    format: Format = short
    marks: Sequence[tuple[float, str]] = field(default_factory=tuple)  # x, what began there
    from_zero: bool = False
    may_log: bool = False
    without_outliers: bool = False


@dataclass(frozen=True)
class Scale:
    """Values to coordinates of the view box."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, at = (_log(v) if self.log else v for v in (self.low, self.high, value))
        ratio = (at - low) / (high - low) if high > low else 0.5
        return self.start + min(max(ratio, -1.0), 2.0) * (self.end - self.start)


def _log(value: float) -> float:
    return math.log10(max(value, 1e-300))


def nice_ticks(low: float, high: float, count: int = TICKS) -> list[float]:
    """Round values (1, 2, 2.5 or 5 times a power of ten apart) within the bounds."""
    if not high > low:
        return [low]
    raw = (high - low) / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(number * step, 12) for number in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [10.0**power for power in powers if low <= 10.0**power <= high]
    return ticks if len(ticks) >= 2 else [low, high]


def bounds(chart: Chart) -> tuple[float, float]:
    """Lowest and highest value that the chart shows."""
    points = [point for line in chart.lines for point in line.points if point is not None]
    lows, highs = sorted(point.low for point in points), sorted(point.high for point in points)
    low, high = lows[0], highs[-1]
    if chart.without_outliers and len(points) > 50:
        means = sorted(point.mean for point in points)
        cut = int(OUTERMOST * len(means))
        low, high = means[cut], means[-1 - cut]
        room = (high - low) * 0.25
        low, high = max(lows[0], low - room), min(highs[-1], high + room)
    if chart.from_zero:
        low = min(0.0, low)
    if high <= low:
        room = abs(high) * 0.1 or 1.0
        return (low if chart.from_zero and low == 0 else low - room), high + room
    return low, high


def is_cut(chart: Chart) -> bool:
    """Do some values lie outside of what it shows?"""
    low, high = bounds(chart)
    points = [point for line in chart.lines for point in line.points if point is not None]
    return any(point.high > high or point.low < low for point in points)


def svg(chart: Chart) -> str:
    """The chart as ``<svg>``. Needs at least one point; a chart without any is not drawn at all."""
    points = [point for line in chart.lines for point in line.points if point is not None]
    low, high = bounds(chart)
    log = chart.may_log and low > 0 and high / low > LOG_RATIO
    first, last = min(point.x for point in points), max(point.x for point in points)
    if first == last:
        first, last = first - 1, last + 1
    x = Scale(first, last, LEFT, WIDTH - RIGHT)
    y = Scale(low, high, HEIGHT - BOTTOM, TOP, log)
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(describe(chart), quote=True)}">'
    ]
    for tick in log_ticks(low, high) if log else nice_ticks(low, high):
        at = y(tick)
        parts.append(f'<path class="grid" d="M{LEFT} {at:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(
            f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{escape(chart.format(tick))}</text>'
        )
    for tick in nice_ticks(first, last, 6):
        if tick == int(tick):
            parts.append(
                f'<text x="{x(tick):.1f}" y="{HEIGHT - 10}" text-anchor="middle">{escape(short(tick))}</text>'
            )
    parts.append(f'<text x="{LEFT - 6}" y="{HEIGHT - 10}" text-anchor="end">step</text>')
    parts.append(
        f'<svg x="{LEFT}" y="{TOP - 4}" width="{WIDTH - LEFT - RIGHT}" height="{HEIGHT - BOTTOM - TOP + 8}" '
        f'viewBox="{LEFT} {TOP - 4} {WIDTH - LEFT - RIGHT} {HEIGHT - BOTTOM - TOP + 8}">'
    )
    for at, what in chart.marks:
        if first <= at <= last:
            parts.append(
                f'<path class="mark" d="M{x(at):.1f} 0V{HEIGHT}"><title>{escape(what)}</title></path>'
            )
    for number, line in enumerate(chart.lines):
        parts += _line(line, number, x, y)
    parts.append("</svg></svg>")
    return "".join(parts)


def _line(line: Line, number: int, x: Scale, y: Scale) -> list[str]:
    parts = []
    runs: list[list[Bin]] = [[]]
    for point in line.points:
        if point is None:
            runs.append([])
        else:
            runs[-1].append(point)
    bands, path, dots = [], [], []
    for run in (run for run in runs if run):
        if any(point.high > point.low for point in run):
            there = "L".join(f"{x(p.x):.1f} {y(p.high):.1f}" for p in run)
            back = "L".join(f"{x(p.x):.1f} {y(p.low):.1f}" for p in reversed(run))
            bands.append(f"M{there}L{back}Z")
        path.append("M" + "L".join(f"{x(p.x):.1f} {y(p.mean):.1f}" for p in run))
        if line.dots or len(run) == 1:
            dots += [f'<circle cx="{x(p.x):.1f}" cy="{y(p.mean):.1f}" r="2.5"/>' for p in run]
    if bands:
        parts.append(f'<path class="band s{number}" d="{"".join(bands)}"/>')
    parts.append(f'<path class="line s{number}" d="{"".join(path)}"/>')
    if dots:
        parts.append(f'<g class="dot s{number}">{"".join(dots)}</g>')
    return parts


def describe(chart: Chart) -> str:
    """In words, for whoever does not see it: first, last, lowest and highest value of each line."""
    words = []
    for line in chart.lines:
        points = [point for point in line.points if point is not None]
        if points:
            figures = (
                points[0].mean,
                points[-1].mean,
                min(p.low for p in points),
                max(p.high for p in points),
            )
            first, last, low, high = (chart.format(figure) for figure in figures)
            words.append(f"{line.name}: from {first} to {last}, lowest {low}, highest {high}")
    return f"{chart.title}. {'; '.join(words)}"
