"""The page of all validators, as Markdown: `python -m components.settings.validators`.

The rows of the settings come from their functions' names, levels and docstrings. Those of recorded inputs are the
policy pack's, which is read for this page only: the program knows nothing of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from .rules import essential_ids, validators

HEAD = """# Validators

What a preview judges before anything exists. All findings are told at once, each with what is wrong, where, what would
be right, and the id of the validator that found it. An `error` ends the preview; a `warning` and an `info` are printed
and stop nothing.

This page is written by `python -m components.settings.validators`.
"""
SETTINGS = """## Of the configuration

They judge the stack file. Keys that are misspelt and values of a wrong type are told too, without an id. A validator is
left out with its id and the reason, which every preview then prints:

    gpu-training:suppressValidators:
      zone-offers-the-type: "TICKET-7: a new zone, seen in the console"

Those marked with a star cannot be left out: nothing can be planned without what they demand.
"""
RECORDED = """## Of the resources

They judge what the program declares, by the rules `aws-would-refuse` (one resource) and `aws-would-refuse-together`
(several) of the [policy pack](policies.md): inputs that the provider lets pass and AWS refuses when it creates the
resource. A value that is not known at preview is judged at the update, before its resource is made. An exception in the
pack's configuration names the validator, the resource, the reason and its last day:
[policies.md](policies.md#exceptions) shows one.
"""


class Row(NamedTuple):
    """One validator of recorded inputs."""

    id: str
    text: str
    fix: str
    types: Iterable[str]


def page(recorded: Iterable[Row]) -> str:
    """The whole page; `recorded` are the policy pack's validators."""
    rows = sorted(recorded)
    levels = Counter(level for _, level, _ in validators())
    counts = ", ".join(f"{levels[level]} of level {level}" for level in ("error", "warning", "info"))
    lines = [HEAD, SETTINGS, f"{counts}.\n", "| id | level | what it is about |", "|---|---|---|"]
    starred = {id_: "\\*" if id_ in essential_ids() else "" for id_, _, _ in validators()}
    lines += [f"| `{id_}`{starred[id_]} | {level} | {_cell(text)} |" for id_, level, text in validators()]
    lines += [
        "",
        RECORDED,
        f"{len(rows)} of level error.\n",
        "| id | of | what it is about | fix |",
        "|---|---|---|---|",
    ]
    for row in rows:
        of = ", ".join(sorted({type_.rpartition(":")[2] for type_ in row.types}))
        shown = of if len(of) <= 60 else "many types"
        lines.append(f"| `{row.id}` | {shown} | {_cell(row.text)} | {_cell(row.fix)} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    from policies.rules.refusals import VALIDATORS, together

    every = [*VALIDATORS, *together.VALIDATORS]
    print(page(Row(one.id, one.text, one.fix, one.types) for one in every), end="")
