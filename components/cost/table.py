"""An estimate as text for people: a line a thing, at creation and with every group full. Pure."""

from __future__ import annotations

from .estimate import Estimate
from .lines import HOURS_PER_MONTH, Line, Span

WHAT, COUNT, HOUR, MONTH = 46, 7, 18, 21  # widths of columns


def cost_table(stack: str, now: Estimate, full: Estimate) -> list[str]:
    """Fixed-width lines; what an empty group would cost shows in the columns of full groups."""
    dates = full.dates
    priced = f"list prices of {dates[0]} to {dates[1]}" if dates else "no price is known"
    out = [
        f"cost of {stack} in {full.region}, USD; {priced}; {HOURS_PER_MONTH} hours a month",
        f"{'':{WHAT}}{'at creation':>{COUNT + HOUR}}{'every group full':>{COUNT + HOUR + MONTH}}",
        f"{'':{WHAT}}{'count':>{COUNT}}{'an hour':>{HOUR}}{'count':>{COUNT}}{'an hour':>{HOUR}}{'a month':>{MONTH}}",
    ]
    at_creation = {line.what: line for line in now.lines}
    for line in full.lines:
        if line.kind != "usage":
            out.append(_row(line, at_creation.get(line.what)))
    month = full.total.times(HOURS_PER_MONTH)
    out.append(
        f"{'together, without what is by use or not known':{WHAT}}{'':>{COUNT}}{_range(now.total):>{HOUR}}"
        f"{'':>{COUNT}}{_range(full.total):>{HOUR}}{_range(month):>{MONTH}}"
    )
    out += ["", f"{'nodes of full groups, an hour':{WHAT}}{'nodes':>{COUNT}}"
            f"{'as bought':>{HOUR}}{'all on demand':>{HOUR}}{'all spot':>{HOUR}}"]  # fmt: skip
    out += [
        f"{group.group:{WHAT}}{group.nodes:>{COUNT}}{_range(group.as_bought):>{HOUR}}"
        f"{_range(group.all_on_demand):>{HOUR}}{_range(group.all_spot):>{HOUR}}"
        for group in full.groups
    ]
    by_use = [f"{line.what} {line.usd.high:g}" for line in full.lines if line.kind == "usage" and line.usd]
    out.append("")
    if by_use:
        out.append(f"by use, each: {', '.join(by_use)}")
    if full.unknown:
        out.append(f"no price is known for: {'; '.join(full.unknown)}")
    return [*out, *full.notes]


def _row(line: Line, at_creation: Line | None) -> str:
    month = None if line.usd is None else line.usd.times(HOURS_PER_MONTH)
    count = at_creation.count if at_creation else 0
    hour = "0.00" if at_creation is None else _range(at_creation.usd)
    return (
        f"{line.what:{WHAT}}{count:>{COUNT}g}{hour:>{HOUR}}"
        f"{line.count:>{COUNT}g}{_range(line.usd):>{HOUR}}{_range(month):>{MONTH}}"
    )


def _range(usd: Span | None) -> str:
    if usd is None:
        return "not known"
    digits = 2 if usd.high < 1000 else 0
    low, high = f"{usd.low:,.{digits}f}", f"{usd.high:,.{digits}f}"
    return low if low == high else f"{low} to {high}"
