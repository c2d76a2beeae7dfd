"""The training loop with everything on against the bare PyTorch loop over the same model and the same tensors.

The two take turns, in one process, so that both meet the same machine; the ratio is that of a turn and its
neighbour. Bare means: tensors in memory, one forward, backward and optimizer step, nothing else. Ours reads samples
from shards by number, seeds each step, clips, looks for numbers that are none, writes an event a step; its optimizer is
PyTorch's fused one, which pays for all of that. Bare is PyTorch's default.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localcloud.toolchain import ROOT

TARGET_RATIO = 0.98
STEPS = 15  # of a turn: short ones meet the same moment of the machine
TURNS = 11
WARM_STEPS = 5
MODELS: dict[str, dict[str, Any]] = {
    "resnet18, width 16, 24x24": {
        "model": "resnet18",
        "model_args": {"width": 16},
        "dataset": "images@v1",
        "global_batch_size": 32,
    },
    "gpt tiny, 64 tokens": {
        "model": "gpt",
        "model_args": {"preset": "tiny"},
        "dataset": "tokens@v1",
        "global_batch_size": 16,
    },
}


@dataclass(frozen=True)
class Throughput:
    """Samples a second, turn by turn; of the clock, and of the processor's time, which other work does not touch."""

    model: str
    ours: tuple[float, ...]
    bare: tuple[float, ...]
    cpu_ratios: tuple[float, ...]

    @property
    def cpu_ratio(self) -> float:
        return statistics.median(self.cpu_ratios)

    @property
    def ratios(self) -> tuple[float, ...]:
        return tuple(one / other for one, other in zip(self.ours, self.bare, strict=True))

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)

    @property
    def spread(self) -> str:
        return f"{min(self.ratios):.3f} to {max(self.ratios):.3f}"


@dataclass(frozen=True)
class Rate:
    wall: float  # samples a second
    cpu: float  # samples a second of this process' processor time


class Stopwatch:
    """Runs from the end of the warm-up."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def rate(self, samples: int) -> Rate:
        return Rate(samples / (time.perf_counter() - self._wall), samples / (time.process_time() - self._cpu))


def measure(turns: int = TURNS, steps: int = STEPS) -> list[Throughput]:
    """Raises what torch raises."""
    sys.path.insert(0, str(ROOT / "trainer" / "src"))
    return [_measure(name, fields, turns, steps) for name, fields in MODELS.items()]


def _measure(name: str, fields: dict[str, Any], turns: int, steps: int) -> Throughput:
    ours: list[Rate] = []
    bare: list[Rate] = []
    with tempfile.TemporaryDirectory(prefix="gpu-training-bench-") as folder:
        data = _write_data(Path(folder))
        for turn in range(turns):
            # Each goes first as often as the other.
            order = (_ours, _bare) if turn % 2 == 0 else (_bare, _ours)
            for work in order:
                rate = work(Path(folder) / f"turn-{turn}", data, fields, steps)
                (ours if work is _ours else bare).append(rate)
    pairs = list(zip(ours, bare, strict=True))
    return Throughput(
        name,
        tuple(one.wall for one in ours),
        tuple(one.wall for one in bare),
        tuple(one.cpu / other.cpu for one, other in pairs),
    )


def _write_data(root: Path) -> Path:
    import numpy as np

    rng = np.random.default_rng(0)
    images, tokens = root / "data" / "images", root / "data" / "tokens"
    for folder in (images, tokens):
        folder.mkdir(parents=True)
    np.savez(
        images / "train-0.npz",
        images=rng.integers(0, 256, (2048, 3, 24, 24), dtype=np.uint8),
        labels=rng.integers(0, 6, 2048),
    )
    np.save(tokens / "train-0.npy", rng.integers(0, 256, 64 * 2048 + 1).astype(np.uint16))
    return root / "data"


def _parts(data: Path, fields: dict[str, Any], steps: int) -> tuple[Any, Any, Any, Any]:
    """Settings, what the dataset is, its training split and the model, built anew."""
    import torch
    from trainer.contracts.manifests import DatasetFacts
    from trainer.contracts.run import TrainingConfig
    from trainer.data.dataset import dataset_info, make_split
    from trainer.data.manifest import parse_name
    from trainer.data.publish import describe
    from trainer.models.load import build_model

    training = TrainingConfig(**{"steps": steps, "clip_norm": 1.0, "seed": 1, **fields})
    name = parse_name(training.dataset)
    facts = (
        DatasetFacts(sequence_length=64, vocabulary=256) if name.name == "tokens" else DatasetFacts(classes=6)
    )
    manifest = describe(data / name.name, name, facts)
    torch.manual_seed(1)
    info = dataset_info(manifest)
    return training, info, make_split(data / name.name, manifest, "train"), build_model(training, info)


def _ours(work: Path, data: Path, fields: dict[str, Any], steps: int) -> Rate:
    from trainer.contracts.run import RunConfig
    from trainer.contracts.worker import WorkerEvent
    from trainer.file_store import FileStore
    from trainer.models.dropout import seed_dropout
    from trainer.train.checkpoint import Checkpoints
    from trainer.train.events import EventLog
    from trainer.train.job import Job
    from trainer.train.loop import train
    from trainer.train.precision import resolve_precision
    from trainer.train.stop import StopRequest
    from trainer.train.world import join_world, leave_world

    training, info, split, model = _parts(data, fields, WARM_STEPS + steps)
    run = RunConfig(name="bench", groups=["local"], nodes=1, training=training, created_at="now")
    _be_alone(work / "meeting")
    world = join_world("cpu")
    watches: list[Stopwatch] = []
    rates: list[Rate] = []

    def look(event: WorkerEvent) -> None:
        if event.kind == "step" and event.step == WARM_STEPS:
            watches.append(Stopwatch())
        elif event.kind == "step" and event.step == WARM_STEPS + steps:
            rates.append(watches[0].rate(steps * training.global_batch_size))

    events = EventLog(work / "events.jsonl", look)
    try:
        train(
            Job(
                training=training,
                world=world,
                info=info,
                train_split=split,
                test_split=_Nothing(),  # type: ignore[arg-type]
                model=model,
                dropout=seed_dropout(model, 1),
                precision=resolve_precision("auto", "cpu", None),
                checkpoints=Checkpoints(FileStore(work / "store"), "b", run, 1, 1, work / "checkpoints"),
                stop=StopRequest(work),
                events=events,
            )
        )
    finally:
        leave_world()
        events.close()
    return rates[0]


def _bare(_work: Path, data: Path, fields: dict[str, Any], steps: int) -> Rate:
    import numpy as np
    import torch

    training, info, split, model = _parts(data, fields, WARM_STEPS + steps)
    batch_size = training.global_batch_size
    everything = split.take(np.arange(min(len(split), (WARM_STEPS + steps) * batch_size)))
    inputs = everything.inputs.float() / 255 if info.kind == "images" else everything.inputs
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model.train()
    watch = Stopwatch()
    for step in range(WARM_STEPS + steps):
        if step == WARM_STEPS:
            watch = Stopwatch()
        first = step * batch_size % (len(inputs) - batch_size + 1)
        logits = model(inputs[first : first + batch_size])
        targets = everything.targets[first : first + batch_size]
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return watch.rate(steps * batch_size)


class _Nothing:
    """A held-out split without samples."""

    def __len__(self) -> int:
        return 0


def _be_alone(file: Path) -> None:
    import os

    from trainer.local_launch import rank_environment

    file.parent.mkdir(parents=True, exist_ok=True)
    os.environ.update(rank_environment(0, 1, str(file)))


def rows(measured: list[Throughput]) -> list[tuple[str, str, str, str]]:
    """For the table of `make bench`."""
    return [
        (
            f"training to bare loop, {one.model}",
            f"{one.ratio:.3f} ({one.cpu_ratio:.3f} of processor time)",
            one.spread,
            f"at least {TARGET_RATIO}",
        )
        for one in measured
    ]


def to_json(measured: list[Throughput]) -> dict[str, Any]:
    return {
        one.model: {
            "samplesPerSecond": one.ours,
            "bareSamplesPerSecond": one.bare,
            "ratio": one.ratio,
            "cpuRatio": one.cpu_ratio,
            "limitRatio": TARGET_RATIO,
        }
        for one in measured
    }


if __name__ == "__main__":
    for row in rows(measure()):
        print(" | ".join(row))
