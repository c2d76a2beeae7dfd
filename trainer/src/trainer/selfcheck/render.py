"""A self-check for people: a table of findings, a table of figures, one line of verdict."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..exit_codes import Exit
from .report import AllReduceFigure, LoadFigure, MatmulFigure, MemoryFigure, SelfCheckReport

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
    if report.matmul:
        console.print(matmul_table(report.matmul))
    if report.load:
        console.print(load_table(report.load))
    if report.memory:
        console.print(memory_table(report.memory))
    if report.allreduce:
        console.print(allreduce_table(report.allreduce))
    verdict = f"[{COLOURS[report.verdict]}]{report.verdict}[/]"
    code = f", exit code {report.exit_code} ({Exit(report.exit_code).name})" if report.exit_code else ""
    console.print(f"verdict: {verdict}{code}, {report.seconds:.1f} s")


def matmul_table(figures: Sequence[MatmulFigure]) -> Table:
    table = _table("matrix products", "device", "dtype", "n", "runs", "TFLOPS", "spread", "floor", "peak")
    for name in ("error (allowed)", "same bits"):
        table.add_column(name, no_wrap=True)
    for f in figures:
        table.add_row(
            f.device,
            f"{f.dtype} (emulated)" if f.emulated else f.dtype,
            str(f.n),
            str(f.repeats),
            f"{f.tflops_median:.3g}",
            f"{100 * f.spread_ratio:.0f} %",
            f"{f.floor_tflops:.3g}" if f.floor_tflops is not None else "none",
            f"{f.peak_tflops:.3g}" if f.peak_tflops is not None else "unknown",
            f"{f.error:.0e} ({f.tolerance:.0e})",
            "yes" if f.repeatable else "NO",
        )
    return table


def load_table(figures: Sequence[LoadFigure]) -> Table:
    table = _table("GPUs under load", "gpu", "clock", "power (limit)", "temperature", "PCIe", "held down by")
    for f in figures:
        power, limit = _or(f.power_watts, "{:.0f} W"), _or(f.power_limit_watts, "{:.0f} W")
        table.add_row(
            str(f.gpu),
            _or(f.clock_hertz and f.clock_hertz / 1e6, "{:.0f} MHz"),
            f"{power} ({limit})",
            _or(f.temperature_celsius, "{:.0f} °C"),
            f.pcie or "not told",
            ", ".join(f.held_by) or "nothing told",
        )
    return table


def memory_table(figures: Sequence[MemoryFigure]) -> Table:
    table = _table("memory, read and write", "device", "copied", "runs", "GB/s", "spread", "floor", "exact")
    for f in figures:
        table.add_row(
            f.device,
            f"{f.copied_bytes >> 20} MiB",
            str(f.repeats),
            f"{f.gigabytes_per_second:.3g}",
            f"{100 * f.spread_ratio:.0f} %",
            _or(f.floor_gigabytes_per_second, "{:.0f}", "none"),
            "yes" if f.exact else "NO",
        )
    return table


def allreduce_table(figures: Sequence[AllReduceFigure]) -> Table:
    table = _table(
        "all-reduce", "message", "ranks", "nodes", "over", "runs", "GB/s (bus)", "spread", "bound", "floor"
    )
    table.add_column("exact", no_wrap=True)
    for f in figures:
        table.add_row(
            f"{f.message_bytes >> 20} MiB",
            str(f.ranks),
            str(f.nodes),
            f"{f.backend}, {f.network}" if f.network else f.backend,
            str(f.repeats),
            f"{f.bus_gigabytes_per_second:.3g}",
            f"{100 * f.spread_ratio:.0f} %",
            _or(f.bound_gigabytes_per_second, "{:.0f}", "unknown"),
            _or(f.floor_gigabytes_per_second, "{:.0f}", "none"),
            "yes" if f.exact else "NO",
        )
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE)
    for name in columns:
        table.add_column(name, no_wrap=True)
    return table


def _or(value: float | None, form: str, absent: str = "not told") -> str:
    return form.format(value) if value is not None else absent
