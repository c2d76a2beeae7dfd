"""The generations of a run over time, as SVG: a bar each, with what was lost of it and when it saved."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from .chart import Scale, nice_ticks
from .html import span, when
from .steps import Part
from .story import Chapter

WIDTH, LEFT, RIGHT, ROW, AXIS = 480, 10, 10, 22, 26
MOST_ROWS = 14  # with more generations than that they share the rows
MOST_TICKS = 400


def svg(chapters: Sequence[Chapter], parts: Sequence[Part]) -> str:
    """Needs at least one chapter."""
    begin, end = min(c.begin_at for c in chapters), max(c.end_at for c in chapters)
    x = Scale(0.0, max(end - begin, 1e-3), LEFT, WIDTH - RIGHT)
    rows = min(len(chapters), MOST_ROWS)
    height = rows * ROW + AXIS
    words = f"{len(chapters)} generations over {span(end - begin)}"
    out = [f'<svg class="time" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(words)}">']
    for tick in nice_ticks(0.0, end - begin, 4):
        at = x(tick)
        out.append(f'<path class="grid" d="M{at:.1f} 0V{rows * ROW}"/>')
        anchor = "start" if at < LEFT + 12 else "end" if at > WIDTH - RIGHT - 24 else "middle"
        out.append(
            f'<text x="{at:.1f}" y="{height - 8}" text-anchor="{anchor}">{escape(span(tick) if tick else "0")}</text>'
        )
    for place, chapter in enumerate(chapters):
        top = place % MOST_ROWS * ROW + 3
        left, right = x(chapter.begin_at - begin), x(chapter.end_at - begin)
        width = max(right - left, 2.0)
        title = (
            f"generation {chapter.generation}: {when(chapter.begin_at)}, {span(chapter.seconds)}, steps "
            f"{chapter.first_step} to {chapter.last_step}, {chapter.lost_steps} lost; {chapter.ending}"
        )
        out.append(
            f'<g><title>{escape(title)}</title><rect class="gen" x="{left:.1f}" y="{top}" '
            f'width="{width:.1f}" height="16" rx="2"/>'
        )
        done = chapter.last_step - chapter.first_step
        if chapter.lost_steps and done > 0:
            lost = max(1.5, width * min(1.0, chapter.lost_steps / done))
            out.append(
                f'<rect class="gen lost" x="{left + width - lost:.1f}" y="{top}" width="{lost:.1f}" height="16"/>'
            )
        label = str(chapter.generation)
        if width > 8 * len(label) + 8:
            out.append(f'<text class="in" x="{left + 5:.1f}" y="{top + 12}">{label}</text>')
        out.append("</g>")
    saves = [
        (place, e.time) for place, part in enumerate(parts) for e in part.events if e.kind == "checkpoint"
    ]
    thinned = saves[:: max(1, len(saves) // MOST_TICKS)]
    ticks = "".join(
        f"M{x(at - begin):.1f} {place % MOST_ROWS * ROW + 12}v7"
        for place, at in thinned
        if begin <= at <= end
    )
    if ticks:
        out.append(f'<path class="tick" d="{ticks}"/>')
    return "".join([*out, "</svg>"])
