"""What a scrape of a node with 8 GPUs costs: its own time, and the training loop's. `python -m benchmarks.scrape`.

The exporter runs in a process of its own, as the agent does, over the tests' stand-in for NVML; a CPU loop runs in
another one. The loop is timed in turn with and without scrapes, so that both meet the same machine.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.sharedctypes import Synchronized
from typing import Any

GPUS = 8
SCRAPES = 400
P99_LIMIT_SECONDS = 0.050
SLOWED_LIMIT_RATIO = 0.005
SCRAPE_SECONDS = 15.0  # between two scrapes, as the stack's Prometheus does it
HURRIED_SECONDS = (
    1.0  # between two scrapes here: 15 times as often, so that the machine's own noise hides less
)
WINDOW_SECONDS = 3.0


@dataclass(frozen=True)
class Figures:
    scrape_seconds: tuple[float, ...]  # one by one, on a node at rest
    nvml_calls: int  # of one scrape
    answer_bytes: int
    cpu_seconds: float  # of the agent, a scrape
    # The loop's steps, scraped every HURRIED_SECONDS to not scraped, pair by pair: a second of the clock, which other
    # programs of this machine disturb, and a second of its own CPU time, which they disturb less.
    clock_ratios: tuple[float, ...]
    cpu_ratios: tuple[float, ...]

    @property
    def p99(self) -> float:
        return statistics.quantiles(self.scrape_seconds, n=100)[98]

    @property
    def slowed_at_most(self) -> float:
        """Share of one core that scrapes every SCRAPE_SECONDS take: all that a loop on that core can lose."""
        return self.cpu_seconds / SCRAPE_SECONDS


def _serve(pipe: Connection) -> None:
    """The agent's part: a full node state, its devices and its host."""
    from trainer.devices.metrics import DeviceMetrics
    from trainer.obs.exporter import Exporter, NodeState
    from trainer.obs.host import HostMetrics
    from trainer.obs.metrics import METRICS

    from tests.trainer.nvml_events_fake import Nvml
    from tests.trainer.nvml_fake import node

    state, module = NodeState(), Nvml(node("H100", GPUS))
    for metric in METRICS:
        if metric.kind == "histogram":
            state.observe(metric.name, 0.1)
        elif not metric.name.startswith(("trainer_gpu_", "trainer_disk_")):
            state.set(metric.name, 1.0, **dict.fromkeys(metric.labels, "x"))
    devices, host = DeviceMetrics(state, None, None, module), HostMetrics(state, list)

    def refresh() -> None:
        module.calls.clear()
        host.refresh()
        devices.refresh()

    exporter = Exporter(state, "127.0.0.1", 0, refresh)
    pipe.send(exporter.port)
    while pipe.recv() == "cpu":
        pipe.send((time.process_time(), len(module.calls)))
    exporter.close()


def _loop(steps: Synchronized[int], cpu: Synchronized[float], end: Any) -> None:
    """A training step's like: small matrix products on one thread, until told to end."""
    import torch

    torch.set_num_threads(1)
    weights, batch = torch.rand(256, 256), torch.rand(64, 256)
    while not end.is_set():
        for _ in range(20):
            batch = torch.tanh(batch @ weights)
        steps.value, cpu.value = steps.value + 1, time.process_time()


@contextmanager
def _process(target: Any, *arguments: Any) -> Iterator[None]:
    process = multiprocessing.get_context("spawn").Process(target=target, args=arguments, daemon=True)
    process.start()
    try:
        yield
    finally:
        process.join(5)
        if process.is_alive():
            process.kill()
            process.join()


def measure(pairs: int = 12) -> Figures:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    steps, cpu, end = context.Value("q", 0, lock=False), context.Value("d", 0.0, lock=False), context.Event()
    with _process(_serve, theirs):
        address = f"http://127.0.0.1:{ours.recv()}/metrics"

        def scrape() -> tuple[float, int]:
            before = time.perf_counter()
            with urllib.request.urlopen(address, timeout=5) as answer:
                size = len(answer.read())
            return time.perf_counter() - before, size

        def agent() -> tuple[float, int]:
            ours.send("cpu")
            return ours.recv()

        for _ in range(20):
            scrape()
        cpu_before, _ = agent()
        alone = [scrape() for _ in range(SCRAPES)]
        cpu_after, calls = agent()
        with _process(_loop, steps, cpu, end):
            while steps.value < 100:
                time.sleep(0.05)
            ratios = [_pair(steps, cpu, scrape, swapped=bool(number % 2)) for number in range(pairs)]
            end.set()
        ours.send("end")
    return Figures(
        scrape_seconds=tuple(seconds for seconds, _ in alone),
        nvml_calls=calls,
        answer_bytes=alone[-1][1],
        cpu_seconds=(cpu_after - cpu_before) / SCRAPES,
        clock_ratios=tuple(clock for clock, _ in ratios),
        cpu_ratios=tuple(own for _, own in ratios),
    )


def _pair(steps: Any, cpu: Any, scrape: Any, swapped: bool) -> tuple[float, float]:
    """The loop's rates with scrapes to those without, one window after the other; who is first takes turns."""
    rates: dict[bool, tuple[float, float]] = {}
    for scraped in (swapped, not swapped):
        began, done, used = time.perf_counter(), steps.value, cpu.value
        while (left := began + WINDOW_SECONDS - time.perf_counter()) > 0:
            if scraped:
                scrape()
            time.sleep(min(HURRIED_SECONDS, left))
        count = steps.value - done
        rates[scraped] = count / (time.perf_counter() - began), count / (cpu.value - used)
    with_, without = rates[True], rates[False]
    return with_[0] / without[0], with_[1] / without[1]


def rows(figures: Figures) -> list[tuple[str, str, str, str]]:
    """For the table of `make bench`: what, median, lowest to highest, held to."""
    times = sorted(figures.scrape_seconds)
    what = f"scrape, {GPUS} GPUs of a stand-in ({figures.nvml_calls} NVML calls, {figures.answer_bytes / 1000:.0f} kB)"
    return [
        (
            what,
            f"{1000 * statistics.median(times):.1f} ms",
            f"{1000 * times[0]:.1f} to {1000 * times[-1]:.1f} ms",
            "",
        ),
        (
            "scrape, 99th percentile",
            f"{1000 * figures.p99:.1f} ms",
            "",
            f"under {1000 * P99_LIMIT_SECONDS:.0f} ms",
        ),
        _ratio_row("of the clock", figures.clock_ratios),
        _ratio_row("of its CPU time", figures.cpu_ratios),
        (
            f"agent's CPU time of scrapes every {SCRAPE_SECONDS:.0f} s, of one core",
            f"{100 * figures.slowed_at_most:.3f} %",
            "",
            f"under {100 * SLOWED_LIMIT_RATIO} %",
        ),
    ]


def _ratio_row(of: str, ratios: Sequence[float]) -> tuple[str, str, str, str]:
    what = f"loop's steps a second {of}, scraped every {HURRIED_SECONDS:.0f} s to not scraped"
    return what, f"{statistics.median(ratios):.4f}", f"{min(ratios):.4f} to {max(ratios):.4f}", ""


def to_json(figures: Figures) -> dict[str, Any]:
    return {
        "gpus": GPUS,
        "scrapeSeconds": {"median": statistics.median(figures.scrape_seconds), "p99": figures.p99},
        "limitSeconds": P99_LIMIT_SECONDS,
        "nvmlCalls": figures.nvml_calls,
        "loopClockRatios": figures.clock_ratios,
        "loopCpuRatios": figures.cpu_ratios,
        "slowedRatioAtMost": figures.slowed_at_most,
        "limitRatio": SLOWED_LIMIT_RATIO,
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scrape", description=__doc__)
    parser.add_argument("--json", action="store_true", help="the figures as one JSON document")
    parser.add_argument("--pairs", type=int, default=12, help="windows with and without scrapes (default 12)")
    asked = parser.parse_args()
    figures = measure(asked.pairs)
    if asked.json:
        print(json.dumps(to_json(figures)))
    else:
        for row in rows(figures):
            print("  ".join(part for part in row if part))
    return 0


if __name__ == "__main__":
    sys.exit(main())
