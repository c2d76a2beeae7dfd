"""Cron text as Auto Scaling's scheduled actions take it: five fields, Unix's own. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


@dataclass(frozen=True)
class Field:
    """One of the five: its name, its range, and the words that may stand for its numbers, from the least on."""

    name: str
    least: int
    most: int
    words: tuple[str, ...] = ()


FIELDS = (
    Field("minute", 0, 59),
    Field("hour", 0, 23),
    Field("day of the month", 1, 31),
    Field("month", 1, 12, MONTHS),
    Field("weekday", 0, 7, WEEKDAYS),  # 0 and 7 are Sunday
)
_PART = re.compile(r"(?:\*|(?P<first>[0-9a-z]+)(?:-(?P<last>[0-9a-z]+))?)(?:/(?P<step>[0-9]+))?")


def cron_fault(text: str) -> str | None:
    """What is wrong with the text; None where nothing is."""
    given = text.lower().split()
    if len(given) != len(FIELDS):
        names = ", ".join(field.name for field in FIELDS)
        return f"{len(given)} fields, cron text has five: {names}"
    for field, value in zip(FIELDS, given, strict=True):
        for part in value.split(","):
            if fault := _part_fault(field, part):
                return f"{field.name} '{value}': {fault}"
    return None


def _part_fault(field: Field, part: str) -> str | None:
    found = _PART.fullmatch(part)
    if found is None:
        return "must be *, a number, a range, a list of these, or one of them with a step such as */15"
    ends = [_number(field, end) for end in (found["first"], found["last"]) if end is not None]
    for number in ends:
        if number is None or not field.least <= number <= field.most:
            return f"is not within {field.least} and {field.most}"
    if len(ends) == 2 and ends[0] > ends[1]:  # type: ignore[operator]
        return "the range ends before it begins"
    if found["step"] is not None and not 1 <= int(found["step"]) <= field.most:
        return f"the step is not within 1 and {field.most}"
    return None


def _number(field: Field, text: str) -> int | None:
    if text.isdecimal():
        return int(text)
    return field.words.index(text) + field.least if text in field.words else None
