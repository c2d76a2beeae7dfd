"""However the ranks divide a model, it is one training: the losses, weights and checkpoints of a single process."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.tensor import DTensor
from trainer.contracts.run import TrainingConfig
from trainer.exit_codes import Exit
from trainer.train import evaluate
from trainer.train.job import Job
from trainer.train.saved_state import SavedState

from tests.trainer.test_train_features import stop_after_2
from tests.trainer.train_kit import Outcome, config, train_ranks

WAYS: dict[str, tuple[int, Any]] = {
    "fsdp": (2, "fsdp"),
    "tensor": (2, {"tensor": 2}),
    "data and tensor": (4, {"data": 2, "tensor": 2}),
}


def alone(tmp_path: Path, **fields: Any) -> Outcome:
    return train_ranks(tmp_path / "alone", 1, **fields)[0]


def saved_weights(root: Path) -> dict[str, torch.Tensor]:
    return SavedState(max((root / "checkpoints").glob("step-*/g*"))).weights()


def evaluate_one_by_one(_job: Job) -> None:
    """One rank has a batch less than another, and both must call the model as often."""
    evaluate.BATCH_TOKENS = 1


@pytest.mark.parametrize(
    ("way", "optimizer"), [("fsdp", "sgd"), ("tensor", "adamw"), ("data and tensor", "adamw")]
)
def test_a_divided_training_is_that_of_one_process(tmp_path: Path, way: str, optimizer: str) -> None:
    """Dropout, clipping and accumulation included, of a held-out split that no number of ranks divides."""
    asked: dict[str, Any] = {
        "model_args": {"layers": 2, "heads": 2, "width": 16, "dropout": 0.2},
        "clip_norm": 0.5,
        "gradient_accumulation": 2,
        "weight_decay": 0.1,
        "optimizer": optimizer,
    }
    reference = alone(tmp_path, prepare=evaluate_one_by_one, **asked)
    world, parallel = WAYS[way]
    outcomes = train_ranks(
        tmp_path / "divided", world, prepare=evaluate_one_by_one, parallel=parallel, **asked
    )
    assert [outcome.exit_code for outcome in outcomes] == [Exit.DONE] * world, outcomes[0].fault
    assert outcomes[0].losses == pytest.approx(reference.losses, abs=1e-5)
    norms = [[step["gradNorm"] for step in one.of_kind("step")] for one in (outcomes[0], reference)]
    assert norms[0] == pytest.approx(norms[1], rel=1e-4)
    sums = [[step["sampleSum"] for step in one.of_kind("step")] for one in (outcomes[0], reference)]
    assert sums[0] == sums[1]
    evaluations = [one.of_kind("eval")[0]["evalLoss"] for one in (outcomes[0], reference)]
    assert evaluations[0] == pytest.approx(evaluations[1], abs=1e-4)
    found = saved_weights(tmp_path / "divided")
    assert found.keys() == reference.weights.keys()
    for name, value in reference.weights.items():
        torch.testing.assert_close(found[name], value, rtol=0, atol=1e-4)


@pytest.mark.parametrize("parallel", ["fsdp", {"pipeline": 2}])
def test_no_device_holds_all_of_a_model_that_is_divided(tmp_path: Path, parallel: Any) -> None:
    asked: dict[str, Any] = {"steps": 1, "gradient_accumulation": 2, "parallel": parallel}
    for outcome in train_ranks(tmp_path, 2, prepare=tell_what_is_moved, **asked):
        assert outcome.fault is None and float(outcome.of_kind("note")[0]["message"]) < 0.6


def tell_what_is_moved(job: Job) -> None:
    """The share of the model's layers that a rank has when it moves what it has to its device."""
    move = job.model.to

    def told(*to: Any) -> Any:
        layers = job.model.get_submodule("layers").parameters()
        mine = sum((one.to_local() if isinstance(one, DTensor) else one).numel() for one in layers)
        job.events.write("note", message=f"{mine / whole}")
        return move(*to)

    whole = sum(one.numel() for one in job.model.get_submodule("layers").parameters())
    job.model.to = told  # type: ignore[method-assign,assignment]


@pytest.mark.parametrize("way", ["fsdp", "tensor", "data and tensor"])
def test_a_checkpoint_outlives_the_way_the_ranks_were_divided(tmp_path: Path, way: str) -> None:
    whole = alone(tmp_path)
    world, parallel = WAYS[way]
    ways = [(world, parallel), (1, "ddp"), (world, parallel)]
    for start, ((first_world, first), (then_world, then)) in enumerate(itertools.pairwise(ways)):
        root = tmp_path / f"start-{start}"
        train_ranks(root, first_world, prepare=stop_after_2, same_run=True, parallel=first)
        rest = train_ranks(root, then_world, generation=2, same_run=True, parallel=then)[0]
        assert rest.fault is None and rest.of_kind("started")[0]["step"] == 2
        assert rest.losses == pytest.approx(whole.losses[2:], abs=1e-5)


@pytest.mark.parametrize(
    ("world", "fields", "told"),
    [
        (1, {"parallel": {"tensor": 2}}, "1 x 1 x 2 ranks (data x pipeline x tensor) do not make the 1"),
        (2, {"parallel": {"data": 4}}, "4 x 1 x 1 ranks (data x pipeline x tensor) do not make the 2"),
        (1, {"parallel": "fsdp", "precision": "fp16"}, "fp16 needs parallel: ddp"),
        (1, {"parallel": "fsdp", "micro_batch": "auto"}, "microBatch: auto needs parallel: ddp"),
        (
            2,
            {
                "parallel": {"tensor": 2},
                "model": "resnet18",
                "model_args": {"width": 4},
                "dataset": "pictures@v1",
            },
            "only the model gpt is divided by layers",
        ),
        (
            2,
            {"parallel": {"tensor": 2}, "model_args": {"heads": 1, "width": 16, "layers": 1}},
            "1 heads do not divide among 2 ranks",
        ),
    ],
)
def test_what_cannot_be_divided_is_told(
    tmp_path: Path, world: int, fields: dict[str, Any], told: str
) -> None:
    outcomes = train_ranks(tmp_path, world, **fields)
    assert {outcome.exit_code for outcome in outcomes} == {Exit.CONFIGURATION}
    assert told in str(outcomes[0].fault)


def test_a_word_is_short_for_the_kind() -> None:
    assert config(parallel="fsdp") == config(parallel={"kind": "fsdp"})
    assert TrainingConfig.from_json(config(parallel="fsdp").to_json()).parallel.kind == "fsdp"
