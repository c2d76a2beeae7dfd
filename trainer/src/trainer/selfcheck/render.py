"""A self-check for people: a table of findings, a table of figures, one line of verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..exit_codes import Exit
from .report import SelfCheckReport

if TYPE_CHECKING:
    from ..bench.report import BenchReport

PLAIN_WIDTH = 120  # into a file or a pipe, where there is no terminal's
COLOURS = {"pass": "green", "info": "cyan", "warning": "yellow", "unknown": "magenta", "fail": "red"}


def console() -> Console:
    found = Console()
    return found if found.is_terminal else Console(width=PLAIN_WIDTH)


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
    show_figures(report, console)
    verdict = f"[{COLOURS[report.verdict]}]{report.verdict}[/]"
    code = f", exit code {report.exit_code} ({Exit(report.exit_code).name})" if report.exit_code else ""
    console.print(f"verdict: {verdict}{code}, {report.seconds:.1f} s")


def show_figures(report: SelfCheckReport | BenchReport, console: Console) -> None:
    """A table of each kind of figure that there is."""
    yes = {True: "yes", False: "NO"}
    if report.matmul:
        names = (
            "device",
            "dtype",
            "n",
            "runs",
            "TFLOPS",
            "spread",
            "floor",
            "peak",
            "error (allowed)",
            "same bits",
        )
        table = _table("matrix products", *names)
        for f in report.matmul:
            table.add_row(
                f.device,
                f"{f.dtype} (emulated)" if f.emulated else f.dtype,
                str(f.n),
                str(f.repeats),
                f"{f.tflops_median:.3g}",
                f"{f.spread_ratio:.0%}",
                _or(f.floor_tflops, "{:.3g}", "none"),
                _or(f.peak_tflops, "{:.3g}", "unknown"),
                f"{f.error:.0e} ({f.tolerance:.0e})",
                yes[f.repeatable],
            )
        console.print(table)
    if report.load:
        names = ("gpu", "clock", "power (limit)", "temperature", "PCIe", "held down by")
        table = _table("GPUs under load", *names)
        for f in report.load:
            table.add_row(
                str(f.gpu),
                _or(f.clock_hertz and f.clock_hertz / 1e6, "{:.0f} MHz"),
                f"{_or(f.power_watts, '{:.0f} W')} ({_or(f.power_limit_watts, '{:.0f} W')})",
                _or(f.temperature_celsius, "{:.0f} °C"),
                f.pcie or "not told",
                ", ".join(f.held_by) or "nothing told",
            )
        console.print(table)
    if report.memory:
        names = ("device", "copied", "runs", "GB/s", "spread", "floor", "exact")
        table = _table("memory, read and write", *names)
        for f in report.memory:
            table.add_row(
                f.device,
                f"{f.copied_bytes >> 20} MiB",
                str(f.repeats),
                f"{f.gigabytes_per_second:.3g}",
                f"{f.spread_ratio:.0%}",
                _or(f.floor_gigabytes_per_second, "{:.0f}", "none"),
                yes[f.exact],
            )
        console.print(table)
    if report.allreduce:
        names = (
            "message",
            "ranks",
            "nodes",
            "over",
            "runs",
            "GB/s (bus)",
            "spread",
            "bound",
            "floor",
            "exact",
        )
        table = _table("all-reduce", *names)
        for f in report.allreduce:
            table.add_row(
                f"{f.message_bytes >> 20} MiB",
                str(f.ranks),
                str(f.nodes),
                f"{f.backend}, {f.network}" if f.network else f.backend,
                str(f.repeats),
                f"{f.bus_gigabytes_per_second:.3g}",
                f"{f.spread_ratio:.0%}",
                _or(f.bound_gigabytes_per_second, "{:.0f}", "unknown"),
                _or(f.floor_gigabytes_per_second, "{:.0f}", "none"),
                yes[f.exact],
            )
        console.print(table)


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE)
    for name in columns:
        table.add_column(name, no_wrap=True)
    return table


def _or(value: float | None, form: str, absent: str = "not told") -> str:
    return form.format(value) if value is not None else absent
