"""Whole trainings of a few real processes, over data in memory and a folder in place of S3."""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.distributed.tensor import DTensor
from torch.utils.data import Dataset
from trainer.contracts.run import ParallelSettings, RunConfig, TrainingConfig
from trainer.data.dataset import Batch, DatasetInfo
from trainer.data.order import GlobalOrder
from trainer.errors import Fault
from trainer.file_store import FileStore
from trainer.models.dropout import seed_dropout
from trainer.models.load import build_model
from trainer.train.checkpoint import Checkpoints
from trainer.train.events import EventLog
from trainer.train.job import Job
from trainer.train.loop import train
from trainer.train.precision import resolve_precision
from trainer.train.stop import StopRequest
from trainer.train.world import join_world, leave_world
from trainer.worker import as_fault

from tests.trainer.kit import fork_context, free_port, rank_environment

VOCABULARY, LENGTH = 31, 12
IMAGES = DatasetInfo("pictures", "v1", classes=4, sample_shape=(3, 16, 16), train_samples=48, test_samples=7)
TOKENS = DatasetInfo(
    "words",
    "v1",
    classes=VOCABULARY,
    sample_shape=(LENGTH,),
    train_samples=48,
    test_samples=7,
    kind="tokens",
    vocabulary=VOCABULARY,
    sequence_length=LENGTH,
)


class MemorySplit(Dataset[Batch]):
    """Samples made of their numbers; with ``ignored``, the targets of a sample that do not count grow with it."""

    def __init__(self, info: DatasetInfo, samples: int, ignored: bool = False) -> None:
        generator = torch.Generator().manual_seed(3)
        self._samples = samples
        if info.kind == "tokens":
            windows = torch.randint(info.classes, (samples, info.sample_shape[0] + 1), generator=generator)
            self._inputs, self._targets = windows[:, :-1], windows[:, 1:].clone()
            if ignored:
                for number in range(samples):
                    self._targets[number, : number % info.sample_shape[0]] = -100
        else:
            shape = (samples, *info.sample_shape)
            self._inputs = torch.randint(256, shape, generator=generator).to(torch.uint8)
            self._targets = torch.randint(info.classes, (samples,), generator=generator)

    def __len__(self) -> int:
        return self._samples

    def __getitems__(self, indices: list[int]) -> Batch:
        return self.take(np.asarray(indices))

    def order(self, global_batch: int, seed: int) -> GlobalOrder:
        return GlobalOrder(self._samples, global_batch, seed)

    def take(self, indices: Any) -> Batch:
        numbers = torch.as_tensor(indices)
        return Batch(self._inputs[numbers], self._targets[numbers], numbers)


@dataclass(frozen=True)
class Outcome:
    """Of one rank: losses, gradients of the first step, and weights after the last one; or how it failed."""

    events: list[dict[str, Any]]
    weights: dict[str, torch.Tensor]
    fault: str | None = None
    exit_code: int | None = None

    @property
    def losses(self) -> list[float]:
        return [event["loss"] for event in self.events if event["kind"] == "step"]

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["kind"] == kind]


Prepare = Callable[[Job], None]  # in each rank, before the training; importable by its name


def in_memory(
    training: TrainingConfig, ignored: bool = False
) -> tuple[DatasetInfo, MemorySplit, MemorySplit]:
    info = TOKENS if training.dataset.startswith("words") else IMAGES
    return info, MemorySplit(info, info.train_samples, ignored), MemorySplit(info, info.test_samples, ignored)


def one_rank(
    root: Path,
    training: TrainingConfig,
    generation: int,
    ignored: bool,
    prepare: Prepare | None,
    same_run: bool,
) -> Outcome:
    """Train in this process, whose environment says which rank it is."""
    as_saved = training.model_copy(update={"parallel": ParallelSettings()}) if same_run else training
    rank = int(os.environ["RANK"])
    events = EventLog(root / f"gen-{generation}" / f"events-rank{rank}.jsonl")
    info, train_split, test_split = in_memory(training, ignored)
    run = RunConfig(name="run", groups=["local"], nodes=1, training=as_saved, created_at="now")
    fault: Fault | None = None
    weights: dict[str, torch.Tensor] = {}
    code = None
    try:
        torch.manual_seed(training.seed)
        model = build_model(training, info)
        dropout = seed_dropout(model, training.seed)
        world = join_world("cpu")
        job = Job(
            training=training,
            world=world,
            info=info,
            train_split=train_split,  # type: ignore[arg-type]
            test_split=test_split,  # type: ignore[arg-type]
            model=model,
            dropout=dropout,
            precision=resolve_precision(training.precision, "cpu", None),
            checkpoints=Checkpoints(
                FileStore(root / "store"), "bucket", run, generation, world.size, root / "checkpoints"
            ),
            stop=StopRequest(root / f"gen-{generation}"),
            events=events,
        )
        if prepare is not None:
            prepare(job)
        code = int(train(job))
        if not any(isinstance(one, DTensor) for one in job.model.parameters()):
            weights = {name: value.detach().clone() for name, value in job.model.state_dict().items()}
    except Exception as error:
        traceback.print_exc()
        fault = as_fault(error)
    finally:
        leave_world()
        events.close()
    lines = (root / f"gen-{generation}" / f"events-rank{rank}.jsonl").read_text().splitlines()
    return Outcome(
        [json.loads(line) for line in lines],
        weights,
        str(fault) if fault else None,
        int(fault.exit_code) if fault else code,
    )


def _rank_main(root: str, environment: dict[str, str], arguments: tuple[Any, ...]) -> None:
    os.environ.update(environment)
    torch.set_num_threads(1)
    outcome = one_rank(Path(root), *arguments)
    torch.save(outcome, Path(root) / f"outcome-{environment['RANK']}.pt")
    os._exit(0)


def train_ranks(
    root: Path,
    world: int,
    generation: int = 1,
    ignored: bool = False,
    prepare: Prepare | None = None,
    same_run: bool = False,
    **fields: Any,
) -> list[Outcome]:
    """A training of so many processes; ``fields`` are of TrainingConfig. What each rank came to.

    ``same_run``: checkpoints of it are taken for those of the run that differs in ``parallel`` alone.
    """
    root.mkdir(parents=True, exist_ok=True)
    training = config(**fields)
    context, port = fork_context(), free_port()
    processes = []
    for rank in range(world):
        environment = rank_environment(rank, world, port, None)
        arguments = (training, generation, ignored, prepare, same_run)
        process = context.Process(target=_rank_main, args=(str(root), environment, arguments))
        process.start()
        processes.append(process)
    try:
        for process in processes:
            process.join(90)
            assert process.exitcode == 0, f"a rank ended with {process.exitcode}"
    finally:
        for process in processes:
            if process.exitcode is None:
                process.kill()
                process.join()
    return [torch.load(root / f"outcome-{rank}.pt", weights_only=False) for rank in range(world)]


def config(**fields: Any) -> TrainingConfig:
    settings: dict[str, Any] = {
        "model": "gpt",
        "dataset": "words@v1",
        "steps": 4,
        "global_batch_size": 8,
        "learning_rate": 3e-3,
        "schedule": "constant",
        "seed": 5,
        "checkpoint": {"every_seconds": 3600, "keep": 2},
    }
    if fields.get("model", "gpt") == "gpt":
        settings["model_args"] = {"layers": 2, "heads": 2, "width": 16}
    return TrainingConfig(**{**settings, **fields})
