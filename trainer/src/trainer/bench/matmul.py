"""Square matrix products: how fast, how exact, and whether the same product gives the same bits again.

Method (each point answers a way in which such figures go wrong elsewhere): random inputs, since zeros read up to 15 %
too high; the output filled with random bits before each run, and on a GPU the L2 cache flushed; size found by a time
budget, since half precision on a CPU is hundreds of times slower than fp32; all devices at the same time, since they
share power and air; the median of many runs. The error is taken in float64 over a tile of rows and columns.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

SIZES = (128, 256, 512, 1024, 2048, 4096, 8192)  # multiples of 128: bf16 falls off where n mod 16 is 8
LARGEST_CPU = 1024
LEAST_REPEATS = 5
TILE = 128  # rows and columns that are compared with float64
FLUSH_BYTES = 256 << 20  # more than any L2 cache (Blackwell: 126 MiB)
TIMEOUT_SECONDS = 120.0  # for the others at the common start
# Allowed |C - R| / (|row of A| |column of B|): output rounding of fp16 and bf16, input rounding of tf32 (2^-11, both
# sides), accumulated rounding of fp32. A flipped high bit of one product is far above each of them.
TOLERANCE = {"fp32": 2.0**-20, "tf32": 2.0**-9, "fp16": 2.0**-10, "bf16": 2.0**-7}


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

    @property
    def tolerance(self) -> float:
        return TOLERANCE[self.dtype]

    def tflops(self, seconds: float) -> float:
        return 2.0 * self.n**3 / seconds / 1e12

    @property
    def tflops_median(self) -> float:
        return self.tflops(statistics.median(self.seconds))

    @property
    def spread_ratio(self) -> float:
        """(fastest - slowest) / median of the runs."""
        fastest, slowest = self.tflops(min(self.seconds)), self.tflops(max(self.seconds))
        return (fastest - slowest) / self.tflops_median


def applicable_dtypes(device: str, capability: tuple[int, int] | None) -> list[str]:
    """fp16 and bf16 are emulated on a CPU, bf16 and tf32 on GPUs before 8.0: neither would say anything."""
    if device == "cpu" or capability is None:
        return ["fp32"]
    return ["fp32", "tf32", "fp16", "bf16"] if capability >= (8, 0) else ["fp32", "fp16"]


def measure(
    devices: Sequence[str], dtypes: Sequence[str], budget_seconds: float, seed: int = 0
) -> list[Measured]:
    """Each dtype on all devices at once, at most about ``budget_seconds`` a dtype. Restores torch's global flags."""
    import torch

    results: list[Measured] = []
    matmul_flags = torch.backends.cuda.matmul
    before = (matmul_flags.allow_tf32, matmul_flags.allow_fp16_reduced_precision_reduction)
    try:
        matmul_flags.allow_fp16_reduced_precision_reduction = False
        for dtype in dtypes:
            matmul_flags.allow_tf32 = dtype == "tf32"
            start = threading.Barrier(len(devices))
            with ThreadPoolExecutor(len(devices)) as pool:
                jobs = [
                    pool.submit(_on_device, device, dtype, budget_seconds, seed, start) for device in devices
                ]
                results += [job.result() for job in jobs]
    finally:
        matmul_flags.allow_tf32, matmul_flags.allow_fp16_reduced_precision_reduction = before
    return results


def choose_size(seconds_of: dict[int, float], budget_seconds: float, largest: int) -> int | None:
    """The next size to try from the times so far, None when the last one stays.

    A product of twice the size takes about eight times as long; it is tried while a full set of repeats fits.
    """
    last = max(seconds_of, default=0)
    following = next((n for n in SIZES if last < n <= largest), None)
    if following is None:
        return None
    expected = seconds_of[last] * (following / last) ** 3 if last else 0.0
    return following if expected * (LEAST_REPEATS + 3) <= budget_seconds else None


def _on_device(device: str, dtype: str, budget: float, seed: int, start: threading.Barrier) -> Measured:
    import torch

    try:
        clock = _Clock(device)
        largest = LARGEST_CPU if device == "cpu" else SIZES[-1]
        seconds_of: dict[int, float] = {}
        a = b = c = _random(torch, SIZES[0], dtype, device, seed)
        while (n := choose_size(seconds_of, budget / 2, largest)) is not None:
            a, b = _random(torch, n, dtype, device, seed), _random(torch, n, dtype, device, seed + 1).t()
            c = torch.empty(n, n, dtype=a.dtype, device=device)
            # The shortest of three: the first is a warm-up, and on a busy machine one may be held up for long.
            seconds_of[n] = min(clock.time(lambda: torch.matmul(a, b, out=c)) for _ in range(3))  # noqa: B023
        n = max(seconds_of)
    except BaseException:
        start.abort()
        raise
    start.wait(TIMEOUT_SECONDS)
    reference = torch.matmul(
        a, b, out=c
    ).clone()  # the same output buffer each time: alignment may choose the kernel
    bits = torch.int32 if reference.element_size() == 4 else torch.int16
    repeatable, times = True, []
    began = time.monotonic()
    while len(times) < LEAST_REPEATS or time.monotonic() - began < budget / 2:
        clock.flush()
        c.view(bits).random_()
        times.append(clock.time(lambda: torch.matmul(a, b, out=c)))
        repeatable = repeatable and bool(torch.equal(c.view(bits), reference.view(bits)))
    return Measured(
        device=device,
        dtype=dtype,
        n=n,
        seconds=tuple(times),
        error=normalised_error(a, b, c),
        repeatable=repeatable,
        finite=bool(torch.isfinite(c).all()) and bool((c != 0).any()),
    )


def normalised_error(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> float:
    """Largest |C - R| / (|row of A| |column of B|) over the tile in the middle, R = A B in float64.

    ``a`` [m, k], ``b`` [k, n], ``c`` [m, n]; a value that is no number gives infinity.
    """
    rows = slice(max(0, (a.shape[0] - TILE) // 2), (a.shape[0] + TILE) // 2)
    columns = slice(max(0, (b.shape[1] - TILE) // 2), (b.shape[1] + TILE) // 2)
    left, right = a[rows].double(), b[:, columns].double()
    difference = (c[rows, columns].double() - left @ right).abs()
    scale = left.norm(dim=1, keepdim=True) * right.norm(dim=0, keepdim=True)
    error = float((difference / scale).max())
    return error if error == error else float("inf")  # NaN is not equal to itself


class _Clock:
    """Times one piece of work on a device: CUDA events on a GPU, the monotonic clock on a CPU."""

    def __init__(self, device: str) -> None:
        import torch

        self._torch: Any = torch
        self._device = device
        self._cuda = device != "cpu"
        self._waste = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device=device) if self._cuda else None

    def flush(self) -> None:
        if self._waste is not None:
            self._waste.zero_()

    def time(self, work: Any) -> float:
        if not self._cuda:
            began = time.perf_counter()
            work()
            return time.perf_counter() - began
        torch = self._torch
        with torch.cuda.device(self._device):
            began, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            began.record()
            work()
            ended.record()
            ended.synchronize()
            return began.elapsed_time(ended) / 1000


def _random(torch: Any, n: int, dtype: str, device: str, seed: int) -> torch.Tensor:
    kinds = {"fp32": torch.float32, "tf32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
    generator = torch.Generator(device=device).manual_seed(seed)
    return torch.randn(n, n, generator=generator, device=device, dtype=torch.float32).to(kinds[dtype])
