"""The ranks of a run and the few words they exchange beside gradients.

Two process groups: the default one carries gradients (NCCL on GPUs, gloo on CPUs) with a time-out meant for
steps; the control group (always gloo, on CPU memory, so that it never waits for a GPU) carries decisions and
is where ranks wait while rank 0 saves or loads, with a time-out meant for that. The NCCL way has not run on a
GPU yet.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist

from ..errors import Fault

T = TypeVar("T")

# A collective of a step that takes longer has lost a peer that did not even close its connection.
STEP_TIMEOUT = timedelta(minutes=10)
# Start-up (packages, CUDA, a large checkpoint coming down) and saves may differ that much between ranks.
CONTROL_TIMEOUT = timedelta(minutes=30)

# Names a file that does not exist yet: ranks of one machine meet in it rather than at a port, which another run may
# take in the seconds between its choice and its use.
MEETING_FILE_VARIABLE = "TRAINER_MEETING_FILE"

# Not every message of gloo names it: "Application timeout caused pair closure" is what follows a first time-out.
_PEER_WORDS = re.compile(
    r"gloo|connection (closed|reset) by peer|connection (refused|timed out)|broken pipe"
    r"|timed out waiting|application timeout",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Writers:
    """The ranks that save a state together, each its part, in a thread of each: by a group that nobody else uses, so
    that no step's collective comes in between."""

    rank: int = 0
    leads: bool = True  # one rank of a node sees to what all its ranks wrote
    group: dist.ProcessGroup | None = None  # none: this rank has the whole state, and asks nobody

    def all(self, work: Callable[[], T]) -> list[T]:
        """What ``work`` gave on each rank; where it failed on one, all raise that. Collective."""
        if self.group is None:
            return [work()]
        own: Exception | None = None
        mine: Any = None
        try:
            mine = work()
        except Exception as error:
            own = error
            mine = error if isinstance(error, Fault) else RuntimeError(f"{type(error).__name__}: {error}")
        told: list[Any] = [None] * dist.get_world_size(self.group)
        dist.all_gather_object(told, mine, group=self.group)
        if own is not None:
            raise own
        for one in told:
            if isinstance(one, Exception):
                raise one
        return told


@dataclass(frozen=True)
class World:
    rank: int
    size: int
    local_rank: int
    device: torch.device
    control: dist.ProcessGroup

    def gather(self, values: list[float]) -> torch.Tensor:
        """Every rank's values, on every rank: float64 [size, len(values)]."""
        mine = torch.tensor(values, dtype=torch.float64)
        if self.size == 1:  # no need to wake a thread of gloo's
            return mine[None]
        table = [torch.empty_like(mine) for _ in range(self.size)]
        dist.all_gather(table, mine, group=self.control)
        return torch.stack(table)

    def from_rank0(self, word: Any) -> Any:
        """Rank 0's word on every rank; the others wait for it as long as a save may take."""
        words = [word]
        dist.broadcast_object_list(words, src=0, group=self.control)
        return words[0]

    def everybodys(self, word: Any) -> list[Any]:
        """Every rank's word, on every rank."""
        words: list[Any] = [None] * self.size
        dist.all_gather_object(words, word, group=self.control)
        return words

    def wait(self) -> None:
        """Until every rank is here."""
        dist.barrier(group=self.control)

    def writers(self, together: bool) -> Writers:
        """``together``: every rank has a part of the state; else rank 0 has all of it. Collective."""
        group = dist.new_group(backend="gloo", timeout=CONTROL_TIMEOUT) if together else None
        return Writers(self.rank, self.local_rank == 0, cast("dist.ProcessGroup | None", group))


def join_world(device_type: str) -> World:
    """Meet the other ranks; torchrun's environment says where. Raises what torch.distributed raises."""
    local_rank = int(os.environ["LOCAL_RANK"])
    where: dict[str, Any] = {}
    if file := os.environ.get(MEETING_FILE_VARIABLE):
        rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        where = {"init_method": f"file://{file}", "rank": rank, "world_size": size}
    if device_type == "cuda":
        device = torch.device("cuda", local_rank)
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", timeout=STEP_TIMEOUT, device_id=device, **where)
    else:
        device = torch.device("cpu")
        dist.init_process_group("gloo", timeout=STEP_TIMEOUT, **where)
    control = cast(dist.ProcessGroup, dist.new_group(backend="gloo", timeout=CONTROL_TIMEOUT))
    return World(dist.get_rank(), dist.get_world_size(), local_rank, device, control)


def leave_world() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def is_peer_loss(error: BaseException) -> bool:
    """Did a collective fail because somebody else is gone? gloo tells it by RuntimeError and words only."""
    if isinstance(error, dist.DistError):
        return True
    return isinstance(error, RuntimeError) and _PEER_WORDS.search(str(error)) is not None
