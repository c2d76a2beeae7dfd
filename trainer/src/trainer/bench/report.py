"""What a benchmark found, as JSON, as tables, and as Prometheus text for the node exporter's textfile collector."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import Field
from rich.console import Console
from rich.markup import escape

from ..contracts.base import Document
from ..obs.exporter import NodeState, as_text
from ..selfcheck.render import COLOURS, show_figures
from ..selfcheck.report import AllReduceFigure, Finding, LoadFigure, MatmulFigure, MemoryFigure, exit_code_of
from .compare import AgainstCpu


class LoaderFigure(Document):
    """Reading batches of a dataset folder, as a training does."""

    dataset: str
    batch_size: int
    workers: int
    batches: int
    samples_per_second: float
    bytes_per_second: float
    step_seconds: float  # what a step was taken to compute
    data_wait_ratio: float  # of the time; 1 where nothing is computed


class BenchReport(Document):
    name: str  # matmul, memory, allreduce, dataloader
    seconds: float
    findings: list[Finding] = Field(default_factory=list)
    matmul: list[MatmulFigure] = Field(default_factory=list)
    load: list[LoadFigure] = Field(default_factory=list)
    against_cpu: list[AgainstCpu] = Field(default_factory=list)
    memory: list[MemoryFigure] = Field(default_factory=list)
    allreduce: list[AllReduceFigure] = Field(default_factory=list)
    loader: LoaderFigure | None = None

    @property
    def exit_code(self) -> int:
        return exit_code_of(self.findings)


def show(report: BenchReport, console: Console) -> None:
    show_figures(report, console)
    for found in report.against_cpu:
        console.print(
            f"{found.gpu} in {found.dtype} (n = {found.gpu_n}) does {found.ratio:.3g} times what {found.cpu_cores} CPU "
            f"cores do in fp32 (n = {found.cpu_n})"
        )
    if report.loader is not None:
        loader = report.loader
        paced = f", {loader.data_wait_ratio:.1%} of the time waiting" if loader.step_seconds else ""
        console.print(
            f"{loader.dataset}: {_figure(loader.samples_per_second)} samples/s, "
            f"{_figure(loader.bytes_per_second / 1e6)} MB/s "
            f"(batches of {loader.batch_size}, {loader.workers} workers){paced}"
        )
    for finding in report.findings:
        text = f"{finding.message}{f'; {finding.cause}' if finding.cause else ''}"
        console.print(f"[{COLOURS[finding.verdict]}]{finding.verdict}[/] {escape(text)}")


def _figure(value: float) -> str:
    """Three digits that mean something, of small values too."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def write_prometheus(report: BenchReport, path: Path) -> None:
    """Replaces ``path`` at once: whoever collects it never reads half of it."""
    part = path.with_name(f".{path.name}.part")
    part.write_bytes(as_text(_series(report)))
    os.replace(part, path)


def _series(report: BenchReport) -> NodeState:
    state = NodeState()
    for product in report.matmul:
        place = {"device": product.device, "dtype": product.dtype}
        state.set("trainer_bench_matmul_tflops", product.tflops_median, **place)
        state.set("trainer_bench_matmul_error_ratio", product.error / product.tolerance, **place)
    for copy in report.memory:
        speed = copy.gigabytes_per_second * 1e9
        state.set("trainer_bench_memory_bytes_per_second", speed, device=copy.device)
    for reduced in report.allreduce:
        speed, size = reduced.bus_gigabytes_per_second * 1e9, str(reduced.message_bytes)
        state.set("trainer_bench_allreduce_bus_bytes_per_second", speed, message_bytes=size)
    if (loader := report.loader) is not None:
        state.set("trainer_bench_samples_per_second", loader.samples_per_second)
        waited = loader.data_wait_ratio if loader.step_seconds else None
        state.set("trainer_bench_data_wait_ratio", waited)
    return state
