"""Square matrix products: how fast, how exact, and whether the same product gives the same bits again.

Method (each point answers a way in which such figures go wrong elsewhere): random inputs, since zeros read up to 15 %
too high; the output filled with random bits before each run, and on a GPU the L2 cache flushed; size found by a time
budget, since half precision on a CPU is hundreds of times slower than fp32; a warm-up, since a cold GPU scores higher
than a hot one; all devices at the same time, since they share power and air; the median of many runs. The error is
taken in float64 over a tile of rows and columns.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from .product import TOLERANCE, Product
from .timing import Clock, Start, on_all

SIZES = (128, 256, 512, 1024, 2048, 4096, 8192)  # multiples of 128: bf16 falls off where n mod 16 is 8
LARGEST_CPU = 1024
LEAST_REPEATS = 5
MOST_TRIES = 10  # of one size, to find the largest that fits


@dataclass(frozen=True)
class Measured:
    """One dtype on one device. Times are seconds of one product, 2 n^3 operations."""

    device: str
    dtype: str
    n: int
    seconds: tuple[float, ...]
    error: float
    repeatable: bool
    finite: bool
    digest: str  # of the product's bits

    @property
    def tolerance(self) -> float:
        return TOLERANCE[self.dtype]

    def tflops(self, seconds: float) -> float:
        return 2.0 * self.n**3 / seconds / 1e12

    @property
    def tflops_median(self) -> float:
        return self.tflops(statistics.median(self.seconds))


def native_dtypes(device: str, capability: tuple[int, int] | None) -> list[str]:
    """fp16, bf16 and fp8 are emulated on a CPU, bf16 and tf32 on GPUs before 8.0, fp8 before 8.9.

    ``torch.cuda.is_bf16_supported`` says yes for emulation too (pytorch 124996): the compute capability decides.
    """
    if device == "cpu" or capability is None:
        return ["fp32"]
    if capability < (8, 0):
        return ["fp32", "fp16"]
    return ["fp32", "tf32", "fp16", "bf16", *(["fp8"] if capability >= (8, 9) else [])]


def can_run(dtype: str, device: str, capability: tuple[int, int] | None) -> bool:
    """Also by emulation. tf32 is a mode of tensor cores, fp8 on a GPU needs them as well."""
    return (
        dtype in native_dtypes(device, capability)
        or dtype in ("fp16", "bf16")
        or (dtype == "fp8" and device == "cpu")
    )


def measure(
    devices: Sequence[str],
    dtypes: Sequence[str],
    budget_seconds: float,
    warm_up_seconds: float = 0.0,
    seed: int = 0,
    largest: int | None = None,
) -> list[Measured]:
    """Each dtype on all devices at once and at one size, about ``budget_seconds`` a dtype after the warm-up.

    The warm-up is done with the first dtype that is measured. Restores torch's global flags. Raises BenchmarkFailed.
    """
    import torch

    results: list[Measured] = []
    flags, half = torch.backends.cuda.matmul, budget_seconds / 2
    before = (flags.allow_tf32, flags.allow_fp16_reduced_precision_reduction)
    try:
        flags.allow_fp16_reduced_precision_reduction = False
        for dtype in dtypes:
            flags.allow_tf32 = dtype == "tf32"
            sizes = on_all(devices, partial(_fitting_size, dtype=dtype, budget=half, largest=largest))
            warm_up = 0.0 if results else warm_up_seconds
            run = partial(_on_device, dtype=dtype, n=min(sizes), budget=half, warm_up=warm_up, seed=seed)
            results += on_all(devices, run)
    finally:
        flags.allow_tf32, flags.allow_fp16_reduced_precision_reduction = before
    return results


def choose_size(seconds_of: dict[int, float], budget_seconds: float, largest: int) -> int | None:
    """The next size to try from the times so far; None: the next would be too slow, or there is none.

    A product of twice the size takes up to eight times as long, and is tried while one such product fits. Whether a
    full set of repeats would, the trial shows: where threads wait for a core, small products take as long as larger
    ones, and their time says little.
    """
    last = max(seconds_of, default=0)
    following = next((n for n in SIZES if last < n <= largest), None)
    if following is None:
        return None
    expected = seconds_of[last] * (following / last) ** 3 if last else 0.0
    return following if expected <= budget_seconds else None


def fitting_size(seconds_of: dict[int, float], budget_seconds: float) -> int:
    """The largest size tried that leaves room for all its repeats; the smallest one where none does."""
    fitting = [n for n, seconds in seconds_of.items() if seconds * (LEAST_REPEATS + 3) <= budget_seconds]
    return max(fitting, default=min(seconds_of))


def _fitting_size(device: str, start: Start, dtype: str, budget: float, largest: int | None) -> int:
    clock = Clock(device)
    largest = largest or (LARGEST_CPU if device == "cpu" else SIZES[-1])
    seconds_of: dict[int, float] = {}
    while (n := choose_size(seconds_of, budget, largest)) is not None:
        product = Product.random(n, dtype, device, seed=0)
        if not seconds_of:
            clock.time(product.run)  # a library starts up
        # The shortest of some, since on a busy machine one may be held up for long; but of a slow one no second.
        tries = [clock.time(product.run)]
        while len(tries) < MOST_TRIES and sum(tries) + min(tries) < budget / (2 if len(tries) < 3 else 10):
            tries.append(clock.time(product.run))
        seconds_of[n] = min(tries)
    return fitting_size(seconds_of, budget)


def _on_device(
    device: str, start: Start, dtype: str, n: int, budget: float, warm_up: float, seed: int
) -> Measured:
    clock, product = Clock(device), Product.random(n, dtype, device, seed)
    product.run()
    reference = product.c.clone()
    start()
    began = time.monotonic()
    while time.monotonic() - began < warm_up:
        clock.time(product.run)
    repeatable, times = True, []
    began = time.monotonic()
    while len(times) < LEAST_REPEATS or time.monotonic() - began < budget:
        clock.flush()
        product.spoil()
        times.append(clock.time(product.run))
        repeatable = repeatable and product.same_as(reference)
    return Measured(
        device=device,
        dtype=dtype,
        n=n,
        seconds=tuple(times),
        error=product.error(),
        repeatable=repeatable,
        finite=product.done(),
        digest=product.digest(),
    )
