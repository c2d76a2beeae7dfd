"""A self-check for people: a table of findings, a table of figures, one line of verdict."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..exit_codes import Exit
from .report import MatmulFigure, SelfCheckReport

COLOURS = {"pass": "green", "info": "cyan", "warning": "yellow", "unknown": "magenta", "fail": "red"}


def show(report: SelfCheckReport, console: Console) -> None:
    table = Table(
        "check", "verdict", "what was found", title="self-check", title_justify="left", box=box.SIMPLE
    )
    for finding in report.findings:
        more = [f"cause: {finding.cause}"] if finding.cause else []
        more += [f"to do: {finding.action}"] if finding.action else []
        text = "\n".join([finding.message, *more])
        colour = COLOURS[finding.verdict]
        table.add_row(finding.check, f"[{colour}]{finding.verdict}[/]", escape(text))
    console.print(table)
    if report.matmul:
        console.print(matmul_table(report.matmul))
    verdict = f"[{COLOURS[report.verdict]}]{report.verdict}[/]"
    code = f", exit code {report.exit_code} ({Exit(report.exit_code).name})" if report.exit_code else ""
    console.print(f"verdict: {verdict}{code}, {report.seconds:.1f} s")


def matmul_table(figures: Sequence[MatmulFigure]) -> Table:
    table = Table(title="matrix products", title_justify="left", box=box.SIMPLE)
    for name in ("device", "dtype", "n", "runs", "TFLOPS", "spread", "floor", "error (allowed)", "same bits"):
        table.add_column(name, no_wrap=True)
    for f in figures:
        table.add_row(
            f.device,
            f.dtype,
            str(f.n),
            str(f.repeats),
            f"{f.tflops_median:.3g}",
            f"{100 * f.spread_ratio:.0f} %",
            f"{f.floor_tflops:.3g}" if f.floor_tflops is not None else "none",
            f"{f.error:.0e} ({f.tolerance:.0e})",
            "yes" if f.repeatable else "NO",
        )
    return table
