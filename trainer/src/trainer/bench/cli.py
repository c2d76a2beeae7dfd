"""``trainer bench matmul|memory|allreduce|dataloader``: the self-check's benchmarks by themselves, and the loader's."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ConfigurationError, DriverError

if TYPE_CHECKING:
    from ..devices.reading import GpuReading
    from ..selfcheck.torch_build import TorchDevice
    from .report import BenchReport

DTYPES = ("fp32", "tf32", "fp16", "bf16", "fp8")
SIZE_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
LARGEST_CPU = 8192  # of the CPU beside a GPU: its time box ends it earlier


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    bench = subparsers.add_parser("bench", help="benchmarks of this machine")
    commands = bench.add_subparsers(dest="bench_command", metavar="COMMAND", required=True)
    matmul = _command(
        commands,
        "matmul",
        _matmul,
        "matrix products on all devices at once: TFLOPS, error, repeatability",
        "Random square matrices, the median of many runs, the error against float64, bit equality of the repeats and "
        "of the GPUs, clocks and power meanwhile. The size follows from the time budget, so that it ends on any "
        "machine. Beside a GPU the CPU is measured too.",
    )
    matmul.add_argument("--seconds", type=_seconds, default=3.0, help="time budget a dtype (default: 3)")
    matmul.add_argument("--dtype", action="append", choices=DTYPES, help="default: all that the device has")
    warm_up = "default: 5 on GPUs, 30 is a real verdict's"
    matmul.add_argument("--warm-up", type=_seconds, metavar="SECONDS", help=warm_up)
    memory = _command(
        commands,
        "memory",
        _memory,
        "a copy within the memory of all devices at once, GB/s read and written",
        "At least 512 MiB and four times the L2 cache on a GPU, 64 to 256 MiB on a CPU; the copy is compared.",
    )
    memory.add_argument("--seconds", type=_seconds, default=2.0, help="time budget (default: 2)")
    allreduce = _command(
        commands,
        "allreduce",
        _allreduce,
        "the sum over all devices: GB/s of bus bandwidth, exactness, NCCL's network",
        "A process a device over NCCL, or two processes over gloo on a CPU; under torchrun over all its ranks, also "
        "of several nodes: rank 0 reports. Held to 60 % of what NICs and NVLink allow, at 1 GB and more.",
    )
    allreduce.add_argument("--seconds", type=_seconds, default=2.0, help="time budget a size (default: 2)")
    size = "message, as 64M or 1G (default: several)"
    allreduce.add_argument("--size", action="append", type=_size, metavar="SIZE", help=size)
    efa_count = "EFA interfaces that NCCL must use (default: 0)"
    allreduce.add_argument("--efa-count", type=_count, default=0, help=efa_count)
    loader = _command(
        commands,
        "dataloader",
        _dataloader,
        "samples a second of a dataset folder, and the wait for them",
        "Reads the training split as a training does. With --step-ms the time that a step would compute is slept, and "
        "the share of time spent waiting for data is told: below 5 % is good, above 15 % data is the bottleneck.",
    )
    loader.add_argument(
        "folder", type=Path, help="of shards: a synced version, or one that was not published"
    )
    loader.add_argument("--seconds", type=_seconds, default=5.0, help="time budget (default: 5)")
    loader.add_argument("--batch-size", type=_size, default=64, help="samples a batch (default: 64)")
    workers = "loader processes; 0: none beside this one (default)"
    loader.add_argument("--workers", type=_count, default=0, help=workers)
    step = "what a step computes (default: 0, full speed)"
    loader.add_argument("--step-ms", type=_seconds, default=0.0, help=step)


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    measure: Callable[[argparse.Namespace], BenchReport | None],
    summary: str,
    description: str,
) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=summary, description=description)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    prometheus = "also write the figures as Prometheus text"
    parser.add_argument("--prometheus", type=Path, metavar="FILE", help=prometheus)
    parser.set_defaults(run=run, measure=measure)
    return parser


def run(arguments: argparse.Namespace) -> int:
    if arguments.prometheus is not None and not os.access(arguments.prometheus.parent, os.W_OK):
        raise ConfigurationError(
            f"--prometheus {arguments.prometheus}: its folder is not there or not yours to write"
        )
    report: BenchReport | None = arguments.measure(arguments)
    if report is None:  # another rank reports
        return 0
    from ..selfcheck.render import console
    from .report import show, write_prometheus

    if arguments.prometheus is not None:
        write_prometheus(report, arguments.prometheus)
    if arguments.json:
        print(report.to_json(), end="")
    else:
        show(report, console())
    return report.exit_code


def _matmul(arguments: argparse.Namespace) -> BenchReport:
    from ..devices.nvml import Nvml
    from ..devices.sampler import Sampler
    from ..selfcheck.matmul import judge, judge_load
    from ..selfcheck.torch_build import TorchDevice
    from .compare import against_cpu
    from .figures import choose_dtypes, load_by_device, load_figures, matmul_figures
    from .matmul import measure
    from .report import BenchReport

    began = time.monotonic()
    devices, readings = _devices()
    on_gpu = devices[0].device != "cpu"
    dtypes = choose_dtypes(devices[0], arguments.dtype)
    warm_up = arguments.warm_up if arguments.warm_up is not None else 5.0 if on_gpu else 0.0
    with Sampler(Nvml if readings else None) as sampler:
        measured = measure([device.device for device in devices], dtypes, arguments.seconds, warm_up)
    figures, load = matmul_figures(measured, devices, readings, {}), load_figures(sampler.loads)
    compared = []
    if on_gpu:
        cores, cpu = os.cpu_count() or 1, TorchDevice("cpu", "all cores")
        found = measure(["cpu"], ["fp32"], arguments.seconds, largest=LARGEST_CPU)
        compared = against_cpu(figures, matmul_figures(found, [cpu], (), {})[0], cores)
    return BenchReport(
        name="matmul",
        seconds=time.monotonic() - began,
        findings=judge(figures, {}, "full", load_by_device(load, devices, readings)) + judge_load(load),
        matmul=figures,
        load=load,
        against_cpu=compared,
    )


def _memory(arguments: argparse.Namespace) -> BenchReport:
    from ..selfcheck.bandwidth import judge_memory
    from .figures import memory_figures
    from .memory import measure_memory
    from .report import BenchReport

    began = time.monotonic()
    devices, readings = _devices()
    measured = measure_memory([device.device for device in devices], arguments.seconds)
    figures = memory_figures(measured, devices, readings)
    seconds = time.monotonic() - began
    return BenchReport(name="memory", seconds=seconds, findings=judge_memory(figures), memory=figures)


def _allreduce(arguments: argparse.Namespace) -> BenchReport | None:
    from ..selfcheck.bandwidth import judge_allreduce
    from .allreduce import default_sizes, measure_allreduce, measure_as_rank, under_torchrun
    from .figures import allreduce_figures
    from .network import efa_gigabytes_per_second
    from .report import BenchReport

    began = time.monotonic()
    devices, readings = _devices()
    sizes = arguments.size or default_sizes(devices[0].device)
    if under_torchrun(os.environ):
        device = "cpu" if devices[0].device == "cpu" else f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
        measured = measure_as_rank(device, sizes, arguments.seconds, os.environ)
        if os.environ["RANK"] != "0":
            return None
    elif len(devices) < 2 and devices[0].device != "cpu":
        raise ConfigurationError(
            "there is one GPU: nothing to reduce over; run it with torchrun on several nodes"
        )
    else:
        measured = measure_allreduce([device.device for device in devices], sizes, arguments.seconds)
    figures = allreduce_figures(measured, devices, readings, efa_gigabytes_per_second())
    return BenchReport(
        name="allreduce",
        seconds=time.monotonic() - began,
        findings=judge_allreduce(figures, measured.nccl, arguments.efa_count),
        allreduce=figures,
    )


def _dataloader(arguments: argparse.Namespace) -> BenchReport:
    from ..data.publish import manifest_of
    from .dataloader import measure_loader
    from .report import BenchReport, LoaderFigure

    manifest = manifest_of(arguments.folder)
    devices, _ = _devices()
    step = arguments.step_ms / 1000
    began = time.monotonic()
    found = measure_loader(
        arguments.folder,
        manifest,
        arguments.batch_size,
        arguments.workers,
        devices[0].device,
        arguments.seconds,
        step,
    )
    figure = LoaderFigure(
        dataset=f"{manifest.name}@{manifest.version}",
        batch_size=found.batch_size,
        workers=found.workers,
        batches=found.batches,
        samples_per_second=found.samples_per_second,
        bytes_per_second=found.samples_per_second * found.sample_bytes,
        step_seconds=step,
        data_wait_ratio=found.wait_ratio,
    )
    return BenchReport(name="dataloader", seconds=time.monotonic() - began, loader=figure)


def _devices() -> tuple[Sequence[TorchDevice], Sequence[GpuReading]]:
    """What torch can use and what NVML tells of this machine's GPUs; DriverError where CUDA does not start."""
    from ..selfcheck.devices import check_devices
    from ..selfcheck.torch_build import check_cuda, torch_devices
    from ..selfcheck.view import Host

    devices, fault = torch_devices()
    readings = check_devices(None, Host())[1].readings
    if fault and (found := check_cuda(None, devices, Host(), fault, readings)):
        raise DriverError(f"{found.message}; {found.cause}; {found.action}")
    return devices, readings


def _size(text: str) -> int:
    number, unit = (text[:-1], SIZE_UNITS[text[-1].upper()]) if text[-1:].upper() in SIZE_UNITS else (text, 1)
    if not number.isdecimal() or int(number) == 0:
        raise argparse.ArgumentTypeError(f'"{text}": a size such as 64M or 1G')
    return int(number) * unit


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f'"{text}": a number such as 0 or 4')
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f'"{text}": must be 0 or more')
    return value
