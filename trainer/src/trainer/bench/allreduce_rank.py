"""One rank of the all-reduce benchmark: ``python -m trainer.bench.allreduce_rank OPTIONS``; rank 0 prints JSON."""

from __future__ import annotations

import ctypes
import datetime
import json
import signal
import sys
import time
from dataclasses import asdict, dataclass

from .timing import Clock

PR_SET_PDEATHSIG = 1
TIMEOUT = datetime.timedelta(seconds=120)
LEAST_REPEATS, MOST_REPEATS = 3, 50
ELEMENT_BYTES = 4
NUMBERS = 1000  # whole numbers below it: their sum over any number of ranks is exact in float32


@dataclass(frozen=True)
class RankOptions:
    backend: str  # nccl, gloo
    device: str  # cuda:0..., cpu
    rank: int
    world: int
    init: str  # init_process_group's init_method
    sizes: tuple[int, ...]  # bytes
    budget_seconds: float  # a size

    def to_argument(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_argument(cls, text: str) -> RankOptions:
        given = json.loads(text)
        return cls(**{**given, "sizes": tuple(given["sizes"])})


def run_rank(options: RankOptions) -> list[dict[str, object]]:
    """On every rank the same: bytes, seconds of each run (those of the slowest rank), exact (on all ranks)."""
    import torch
    import torch.distributed as dist

    if options.device != "cpu":
        torch.cuda.set_device(options.device)
    dist.init_process_group(
        options.backend,
        init_method=options.init,
        rank=options.rank,
        world_size=options.world,
        timeout=TIMEOUT,
    )
    try:
        return [_one_size(size, options) for size in options.sizes]
    finally:
        dist.destroy_process_group()


def _one_size(size: int, options: RankOptions) -> dict[str, object]:
    import torch
    import torch.distributed as dist

    count, clock = max(1, size // ELEMENT_BYTES), Clock(options.device)

    def part(rank: int) -> torch.Tensor:
        generator = torch.Generator(device=options.device).manual_seed(rank)
        drawn = torch.randint(
            NUMBERS, (count,), generator=generator, device=options.device, dtype=torch.int32
        )
        return drawn.float()

    mine = part(options.rank)
    work = mine.clone()
    dist.all_reduce(work)  # the warm-up, whose result is checked
    expected = mine
    for rank in range(options.world):
        if rank != options.rank:
            expected = expected + part(rank)
    exact = torch.tensor(float(torch.equal(work, expected)), device=options.device)
    dist.all_reduce(exact, op=dist.ReduceOp.MIN)
    work.zero_()  # sums of zeros stay zeros: no overflow in however many runs
    seconds: list[float] = []
    began = time.monotonic()
    going = True
    while going:
        seconds.append(_slowest(clock.time(lambda: dist.all_reduce(work)), options.device))
        enough = len(seconds) >= LEAST_REPEATS and time.monotonic() - began >= options.budget_seconds
        # All ranks must stop after the same run: the slowest one's clock decides.
        going = _slowest(float(not enough), options.device) > 0 and len(seconds) < MOST_REPEATS
    return {"bytes": count * ELEMENT_BYTES, "seconds": seconds, "exact": bool(exact.item())}


def _slowest(value: float, device: str) -> float:
    import torch
    import torch.distributed as dist

    told = torch.tensor(value, device=device, dtype=torch.float64 if device == "cpu" else torch.float32)
    dist.all_reduce(told, op=dist.ReduceOp.MAX)
    return float(told.item())


def main(argv: list[str]) -> int:
    if sys.platform == "linux":  # whoever measures may be killed: no rank stays on its GPU
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    options = RankOptions.from_argument(argv[0])
    results = run_rank(options)
    if options.rank == 0:
        print(json.dumps(results))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
