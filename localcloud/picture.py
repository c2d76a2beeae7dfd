"""A run as one SVG picture: the training loss above, each node's life below, on one time axis.

Pure: values in, text out. Colours are readable on white and on dark pages, since the picture brings its own ground.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, LEFT, RIGHT, TOP = 960, 150, 24, 56
LOSS_HEIGHT, LANE_HEIGHT, GAP = 220, 30, 34

# kind of a segment -> (fill, words in the legend), in the order of a node's life
KINDS = {
    "boot": ("#b9c4d0", "boot and install"),
    "selfcheck": ("#e0a83a", "self-check"),
    "wait": ("#e7ebef", "in service, waiting"),
    "train": ("#3d7fc1", "training"),
    "notice": ("#c8503c", "interruption notice"),
}


@dataclass(frozen=True)
class Segment:
    """A stretch of a node's life; times are seconds since the picture's zero."""

    start: float
    end: float
    kind: str


@dataclass(frozen=True)
class Lane:
    name: str
    note: str
    segments: Sequence[Segment]


@dataclass(frozen=True)
class Loss:
    """One recorded step. `generation` breaks the line: nothing was trained between two generations."""

    time: float
    step: int
    value: float
    generation: int


@dataclass(frozen=True)
class Mark:
    time: float
    label: str


def _ticks(highest: float, count: int) -> list[float]:
    """Round values (1, 2 or 5 times a power of ten apart) from 0 to `highest`, about `count` of them."""
    power = 10.0 ** math.floor(math.log10(highest / count))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= highest / count)
    return [step * i for i in range(int(highest / step) + 1)]


def draw(title: str, losses: Sequence[Loss], lanes: Sequence[Lane], marks: Sequence[Mark] = ()) -> str:
    """The picture as SVG text. Needs at least one lane; an empty `losses` leaves the curve out."""
    ends = [segment.end for lane in lanes for segment in lane.segments] + [loss.time for loss in losses]
    span = max([1.0, *ends])
    plot = WIDTH - LEFT - RIGHT
    lanes_top = TOP + LOSS_HEIGHT + GAP
    axis_y = lanes_top + LANE_HEIGHT * len(lanes)
    height = axis_y + 76

    def x(seconds: float) -> float:
        return LEFT + plot * seconds / span

    highest = max([loss.value for loss in losses], default=1.0) * 1.05

    def y(value: float) -> float:
        return TOP + LOSS_HEIGHT * (1 - value / highest)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" font-family="system-ui, sans-serif" font-size="12" fill="#26323d">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="30" font-size="17" font-weight="600">{escape(title)}</text>',
    ]
    for value in _ticks(highest, 4):
        out.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="#e3e7eb"/>'
        )
        out.append(f'<text x="{LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g}</text>')
    out.append(f'<text x="{LEFT - 8}" y="{TOP - 10}" text-anchor="end" fill="#5b6874">training loss</text>')

    for generation in sorted({loss.generation for loss in losses}):
        part = [loss for loss in losses if loss.generation == generation]
        points = " ".join(f"{x(loss.time):.1f},{y(loss.value):.1f}" for loss in part)
        out.append(f'<polyline points="{points}" fill="none" stroke="#3d7fc1" stroke-width="1.6"/>')
        last = part[-1]
        out.append(f'<circle cx="{x(last.time):.1f}" cy="{y(last.value):.1f}" r="3" fill="#3d7fc1"/>')
        anchor, shift = ("end", -6) if x(last.time) > LEFT + 80 else ("start", 6)
        place = f'x="{x(last.time) + shift:.1f}" y="{y(last.value) - 8:.1f}"'
        out.append(f'<text {place} text-anchor="{anchor}" fill="#3d7fc1">step {last.step}</text>')

    for row, lane in enumerate(lanes):
        top = lanes_top + row * LANE_HEIGHT
        out.append(f'<text x="{LEFT - 8}" y="{top + 13}" text-anchor="end">{escape(lane.name)}</text>')
        small = 'text-anchor="end" font-size="10" fill="#5b6874"'
        out.append(f'<text x="{LEFT - 8}" y="{top + 25}" {small}>{escape(lane.note)}</text>')
        for segment in lane.segments:
            width = max(1.0, x(segment.end) - x(segment.start))
            fill = KINDS[segment.kind][0]
            out.append(
                f'<rect x="{x(segment.start):.1f}" y="{top + 4}" width="{width:.1f}" height="20" rx="2" fill="{fill}"/>'
            )

    for place, mark in enumerate(marks):
        at = x(mark.time)
        out.append(
            f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{axis_y}" stroke="#c8503c" stroke-dasharray="4 3"/>'
        )
        anchor, shift = ("end", -5) if at > LEFT + plot * 0.6 else ("start", 5)
        out.append(
            f'<text x="{at + shift:.1f}" y="{TOP + 12 + 15 * (place % 4)}" text-anchor="{anchor}" '
            f'fill="#c8503c">{escape(mark.label)}</text>'
        )

    out.append(
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{axis_y + 6}" y2="{axis_y + 6}" stroke="#8b98a4"/>'
    )
    for seconds in _ticks(span, 10):
        out.append(f'<text x="{x(seconds):.1f}" y="{axis_y + 22}" text-anchor="middle">{seconds:g} s</text>')
    at = float(LEFT)
    for fill, words in KINDS.values():
        out.append(f'<rect x="{at:.0f}" y="{axis_y + 42}" width="12" height="12" rx="2" fill="{fill}"/>')
        out.append(f'<text x="{at + 17:.0f}" y="{axis_y + 52}">{words}</text>')
        at += 17 + 7.0 * len(words) + 22
    out.append("</svg>")
    return "\n".join(out) + "\n"
