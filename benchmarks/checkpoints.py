"""What checkpoints cost against PyTorch's own calls, taking turns. `python -m benchmarks.checkpoints`.

- stop: how long the loop stands still for a save (copies are made beside the next step's passes), against
  `torch.save` of the same state to the same disk
- resume: from the process' start to the end of its first step, against a script that does `torch.load`
- recovery: from `kill -9` of a worker to the end of the next step, agent and torchrun and all, against a script that
  torchrun restarts by itself
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks import recovery
from localcloud.toolchain import ROOT

TARGETS = {"stop": 0.15, "resume": 1.2, "recovery": 1.0}
TURNS = {"stop": 9, "resume": 5, "recovery": 3}
WHAT = {
    "stop": "loop stopped for a checkpoint, to torch.save",
    "resume": "resume to the first step, to a script with torch.load",
    "recovery": "kill -9 of a worker to the next step, to torchrun's own restart",
}
SCRIPT = Path(__file__).with_name("plain_script.py")
MODEL: dict[str, Any] = {"layers": 4, "heads": 8, "width": 512}  # 12.7 million parameters: a state of 152 MB
FIELDS: dict[str, Any] = {
    "model": "gpt",
    "model_args": MODEL,
    "dataset": "tokens@v1",
    "global_batch_size": 4,
    "seed": 1,
    "schedule": "constant",
}


@dataclass(frozen=True)
class Race:
    """Seconds, turn by turn."""

    kind: str
    ours: tuple[float, ...]
    theirs: tuple[float, ...]

    @property
    def ratios(self) -> tuple[float, ...]:
        return tuple(one / other for one, other in zip(self.ours, self.theirs, strict=True))

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)


def measure(kinds: tuple[str, ...] = ("stop", "resume", "recovery")) -> list[Race]:
    """Each in a process of its own: what one leaves in the environment or in torch is not the next one's."""
    found = []
    for kind in kinds:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            found.append(pool.submit(_race, kind).result())
    return found


def _race(kind: str) -> Race:
    contestants = {"stop": _stop, "resume": _resume, "recovery": recovery.race}[kind]
    with TemporaryDirectory(prefix="gpu-training-bench-") as folder, ExitStack() as stack:
        ours, theirs = contestants(Path(folder), stack)
        told: dict[Callable[[], float], list[float]] = {ours: [], theirs: []}
        for turn in range(TURNS[kind] + 1):
            for work in (ours, theirs) if turn % 2 == 0 else (theirs, ours):
                seconds = work()
                if turn:  # the first one warms up caches, and our buffers
                    told[work].append(seconds)
    return Race(kind, tuple(told[ours]), tuple(told[theirs]))


def _state() -> Any:
    """A training state after one step."""
    import torch
    from trainer.train.state import TrainState

    model = _model()
    optimizer = torch.optim.AdamW(model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.rand_like(parameter)
    optimizer.step()
    scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer)
    return TrainState(model, optimizer, scheduler, torch.amp.GradScaler("cpu", enabled=False))


def _model() -> Any:
    from trainer.data.dataset import DatasetInfo
    from trainer.models.load import build_model

    info = DatasetInfo("tokens", "v1", 256, (64,), 1, 1, kind="tokens", vocabulary=256, sequence_length=64)
    return build_model(_run(1).training, info)


def _run(steps: int) -> Any:
    from trainer.contracts.run import RunConfig, TrainingConfig

    return RunConfig(
        name="bench",
        groups=["local"],
        nodes=1,
        training=TrainingConfig(steps=steps, **FIELDS),
        created_at="now",
    )


def _stop(root: Path, _stack: ExitStack) -> tuple[Callable[[], float], Callable[[], float]]:
    from types import SimpleNamespace

    import torch
    from trainer.data.order import GlobalOrder
    from trainer.file_store import FileStore
    from trainer.train.checkpoint import Checkpoints
    from trainer.train.saving import Saver, save
    from trainer.train.world import Writers

    state, order = _state(), GlobalOrder(1000, 4, 1)
    checkpoints = Checkpoints(FileStore(root / "store"), "b", _run(1000), 1, 1, root / "checkpoints")
    checkpoints.begin(1, lambda *_: None, lambda _: None)
    told: list[dict[str, Any]] = []
    events = SimpleNamespace(write=lambda kind, **fields: told.append(fields))
    job: Any = SimpleNamespace(
        world=SimpleNamespace(rank=0, device=torch.device("cpu")),
        saver=Saver(),
        saves=True,
        writers=Writers(),
        checkpoints=checkpoints,
        events=events,
    )

    tokens = torch.randint(0, 256, (16, 65))
    torch.set_num_threads(1)  # as on nodes that train on a CPU

    def ours() -> float:
        state.step += 1
        save(job, state, order, "periodic")
        logits = state.model(tokens[:, :-1])
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
        job.saver.let_copy()
        state.optimizer.step()
        job.saver.wait()
        return told[-1]["stopped_seconds"]

    def theirs() -> float:
        began = time.perf_counter()
        torch.save(state.capture().values, root / "plain.pt")
        return time.perf_counter() - began

    return ours, theirs


def _resume(root: Path, _stack: ExitStack) -> tuple[Callable[[], float], Callable[[], float]]:
    _train_here(root, 1, lambda: None)
    import torch

    state = _state()
    torch.save(
        {"model": state.model.state_dict(), "optimizer": state.optimizer.state_dict()}, root / "plain.pt"
    )
    generations = iter(range(2, 100))

    def ours() -> float:
        return _child(["-m", "benchmarks.checkpoints", "--resume", str(root), str(next(generations))])

    def theirs() -> float:
        return _child([str(SCRIPT), "resume", str(root / "plain.pt")])

    return ours, theirs


def _child(command: list[str]) -> float:
    """Until the moment that the process prints."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'trainer' / 'src'}", "OMP_NUM_THREADS": "2"}
    began = time.time()
    done = subprocess.run(
        [sys.executable, *command], env=environment, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    )
    return float(done.stdout.split()[-1]) - began


def _train_here(root: Path, generation: int, on_step: Callable[[], None]) -> None:
    """One rank, resumed where it was, for one step and its checkpoint; ``on_step``: once the step is done."""
    import numpy as np
    import torch
    from trainer.contracts.manifests import DatasetFacts
    from trainer.contracts.worker import WorkerEvent
    from trainer.data.dataset import dataset_info, make_split
    from trainer.data.manifest import DatasetName
    from trainer.data.publish import describe
    from trainer.file_store import FileStore
    from trainer.local_launch import rank_environment
    from trainer.models.dropout import seed_dropout
    from trainer.models.load import build_model
    from trainer.train.checkpoint import Checkpoints
    from trainer.train.events import EventLog
    from trainer.train.job import Job
    from trainer.train.loop import train
    from trainer.train.precision import resolve_precision
    from trainer.train.stop import StopRequest
    from trainer.train.world import join_world, leave_world

    data = root / "data"
    if not data.is_dir():
        data.mkdir()
        np.save(data / "train-0.npy", np.random.default_rng(0).integers(0, 256, 65 * 64).astype(np.uint16))
    manifest = describe(data, DatasetName("tokens", "v1"), DatasetFacts(sequence_length=64, vocabulary=256))
    run, info = _run(100), dataset_info(manifest)
    os.environ.update(rank_environment(0, 1, str(root / f"meeting-{generation}")))
    torch.manual_seed(1)
    model = build_model(run.training, info)
    stop = StopRequest(root)

    def look(event: WorkerEvent) -> None:
        if event.kind == "step":
            on_step()
            stop.ask()

    world = join_world("cpu")
    events = EventLog(root / "events.jsonl", look)
    split = make_split(data, manifest, "train")
    train(
        Job(
            training=run.training,
            world=world,
            info=info,
            train_split=split,
            test_split=make_split(data, manifest, "test"),
            model=model,
            dropout=seed_dropout(model, 1),
            precision=resolve_precision("auto", "cpu", None),
            checkpoints=Checkpoints(FileStore(root / "store"), "b", run, generation, 1, root / "checkpoints"),
            stop=stop,
            events=events,
        )
    )
    leave_world()
    events.close()


def rows(races: list[Race]) -> list[tuple[str, str, str, str]]:
    """For the table of `make bench`: what, median, lowest to highest, held to."""
    return [
        (
            f"{WHAT[race.kind]} ({statistics.median(race.ours):.3f} s to {statistics.median(race.theirs):.3f} s)",
            f"{race.ratio:.2f}",
            f"{min(race.ratios):.2f} to {max(race.ratios):.2f}",
            f"at most {TARGETS[race.kind]}",
        )
        for race in races
    ]


def to_json(races: list[Race]) -> dict[str, Any]:
    return {
        race.kind: {
            "ours": race.ours,
            "theirs": race.theirs,
            "ratio": race.ratio,
            "limitRatio": TARGETS[race.kind],
        }
        for race in races
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.checkpoints", description=__doc__)
    parser.add_argument("--json", action="store_true", help="the figures as one JSON document")
    parser.add_argument("--only", choices=sorted(TARGETS), help="one of the three")
    parser.add_argument("--resume", nargs=2, help=argparse.SUPPRESS)  # this program's own child
    asked = parser.parse_args()
    if asked.resume:
        root, generation = asked.resume
        _train_here(Path(root), int(generation), lambda: print(time.time(), flush=True))
        return 0
    races = measure((asked.only,) if asked.only else tuple(TARGETS))
    if asked.json:
        print(json.dumps(to_json(races)))
    else:
        for row in rows(races):
            print("  ".join(row))
    return 0


if __name__ == "__main__":
    sys.exit(main())
