"""Stages of the GPT on several ranks are one training: losses, weights and checkpoints of a single process."""

from __future__ import annotations

import itertools
import os
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from trainer.contracts.run import ParallelSettings
from trainer.errors import ConfigurationError
from trainer.exit_codes import Exit
from trainer.models.dropout import SampleKeys
from trainer.models.load import build_model
from trainer.train.job import Job
from trainer.train.parallel import Grid, check_parallel, make_grid
from trainer.train.pipeline import Stage
from trainer.train.precision import resolve_precision
from trainer.train.world import World

from tests.trainer.test_parallel import alone, evaluate_one_by_one, saved_weights
from tests.trainer.test_train_features import stop_after_2, weights_beside
from tests.trainer.train_kit import IMAGES, TOKENS, Outcome, config, train_ranks

STAGES: dict[str, Any] = {"parallel": {"pipeline": 2}, "gradient_accumulation": 2}
# Micro-batches of 2 and 3 samples with unequal numbers of targets that count, and a held-out split that no number of
# ranks divides.
EVERYTHING: dict[str, Any] = {
    "model_args": {"layers": 4, "heads": 2, "width": 16, "dropout": 0.2},
    "clip_norm": 0.5,
    "gradient_accumulation": 3,
    "label_smoothing": 0.1,
    "weight_decay": 0.1,
    "activation_checkpointing": True,
    "eval_every_steps": 2,
    "ignored": True,
    "prepare": evaluate_one_by_one,
}


@pytest.fixture(scope="module")
def one_process(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return alone(tmp_path_factory.mktemp("one"), **EVERYTHING)


@pytest.mark.parametrize(
    ("world", "parallel"),
    [
        (2, {"pipeline": 2}),
        (4, {"data": 2, "pipeline": 2}),
        (4, {"kind": "fsdp", "pipeline": 2, "tensor": 2}),
    ],
    ids=["pipeline", "data and pipeline", "pipeline and tensor"],
)
def test_stages_train_as_one_process(
    tmp_path: Path, one_process: Outcome, world: int, parallel: dict[str, Any]
) -> None:
    outcomes = train_ranks(tmp_path, world, parallel=parallel, **EVERYTHING)
    assert [outcome.exit_code for outcome in outcomes] == [Exit.DONE] * world, outcomes[0].fault
    first = outcomes[0]
    assert first.losses == pytest.approx(one_process.losses, abs=1e-5) and len(first.losses) == 4
    for field in ("gradNorm", "sampleSum"):
        told, expected = ([step[field] for step in one.of_kind("step")] for one in (first, one_process))
        assert told == pytest.approx(expected, rel=1e-4)
    told, expected = ([one["evalLoss"] for one in each.of_kind("eval")] for each in (first, one_process))
    assert told == pytest.approx(expected, abs=1e-4) and len(told) == 2
    found = saved_weights(tmp_path)
    assert found.keys() == one_process.weights.keys()
    for name, value in one_process.weights.items():
        torch.testing.assert_close(found[name], value, rtol=0, atol=1e-4)


def test_the_table_of_tokens_stays_one_in_the_first_and_the_last_of_three_stages(tmp_path: Path) -> None:
    asked: dict[str, Any] = {
        "model_args": {"layers": 3, "heads": 2, "width": 16},
        "gradient_accumulation": 3,
    }
    reference = alone(tmp_path, **asked)
    first, middle, last = train_ranks(tmp_path / "stages", 3, parallel={"pipeline": 3}, **asked)
    assert first.losses == pytest.approx(reference.losses, abs=1e-5)
    assert torch.equal(first.weights["tokens.weight"], last.weights["tokens.weight"])
    assert middle.weights and all(name.startswith("layers.1.") for name in middle.weights)
    assert not last.weights.keys() & {"places.weight", "layers.1.up.weight"}


def test_a_checkpoint_goes_from_stages_to_replicas_and_back(tmp_path: Path) -> None:
    whole = alone(tmp_path, gradient_accumulation=2)
    ways: list[tuple[int, Any]] = [(2, {"pipeline": 2}), (2, "ddp"), (2, {"pipeline": 2}), (1, "ddp")]
    for start, ((world, first), (then_world, then)) in enumerate(itertools.pairwise(ways)):
        root = tmp_path / f"start-{start}"
        asked: dict[str, Any] = {"gradient_accumulation": 2, "same_run": True}
        train_ranks(root, world, prepare=stop_after_2, parallel=first, **asked)
        rest = train_ranks(root, then_world, generation=2, parallel=then, **asked)[0]
        assert rest.fault is None and rest.of_kind("started")[0]["step"] == 2
        assert rest.losses == pytest.approx(whole.losses[2:], abs=1e-5)


def test_each_stage_begins_with_its_part_of_the_weights_that_are_given(tmp_path: Path) -> None:
    given = alone(tmp_path).weights
    torch.save(given, tmp_path / "weights.pt")
    asked: dict[str, Any] = {"steps": 1, "learning_rate": 1e-9, "init_from": "../weights.pt"}
    stages = train_ranks(tmp_path / "tuned", 2, prepare=weights_beside, **asked, **STAGES)
    found = {name: value for stage in stages for name, value in stage.weights.items()}
    assert found.keys() == given.keys() and not stages[0].of_kind("note")
    for name, value in given.items():
        torch.testing.assert_close(found[name], value, rtol=0, atol=1e-6)


def test_a_stage_that_dies_is_a_lost_peer_to_the_others(tmp_path: Path) -> None:
    first, _ = train_ranks(tmp_path, 2, prepare=die_in_step_3, **STAGES)
    assert first.exit_code == Exit.PEER_LOST, first.fault
    assert len(first.losses) == 2


def die_in_step_3(job: Job) -> None:
    if job.world.rank == 1:
        at_layer(job, lambda: die_if(job.events.last_step == 2, Path(job.checkpoints._local).parent))


def die_if(now: bool, root: Path) -> None:
    if now:
        torch.save(Outcome([], {}), root / "outcome-1.pt")
        os._exit(0)


def test_a_stage_out_of_memory_names_the_setting(tmp_path: Path) -> None:
    first, last = train_ranks(tmp_path, 2, prepare=no_memory_for_the_last, **STAGES)
    assert last.exit_code == Exit.OUT_OF_MEMORY and "gradientAccumulation to 4" in str(last.fault)
    assert first.exit_code == Exit.PEER_LOST, first.fault


def no_memory_for_the_last(job: Job) -> None:
    def allocate() -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    if job.world.rank == 1:
        at_layer(job, allocate)


def at_layer(job: Job, do: Any) -> None:
    job.model.layers[1].register_forward_pre_hook(lambda *_: do())  # type: ignore[index,union-attr]


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"gradient_accumulation": 1}, "1 micro-batches do not fill the 2 stages"),
        ({"precision": "fp16"}, "fp16 needs parallel: ddp"),
        ({"micro_batch": "auto"}, "microBatch: auto needs parallel: ddp"),
        ({"compile": True}, "stages of parallel.pipeline are not compiled"),
    ],
)
def test_what_does_not_go_with_stages_is_told(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        asked = config(**{**STAGES, **fields})
        check_parallel(asked, asked.precision)


@pytest.mark.parametrize(
    ("size", "parallel", "told"),
    [
        (3, {"pipeline": 2}, "1 x 2 x 1 ranks (data x pipeline x tensor) do not make the 3 that there are"),
        (1, {"pipeline": 2}, "1 x 2 x 1 ranks (data x pipeline x tensor) do not make the 1 that there are"),
        (4, {"pipeline": 2, "tensor": 2, "data": 2}, "2 x 2 x 2 ranks"),
    ],
)
def test_ranks_that_make_no_grid_are_told(size: int, parallel: dict[str, Any], told: str) -> None:
    world = World(0, size, 0, torch.device("cpu"), None)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=re.escape(told)):
        make_grid(ParallelSettings(**parallel), world)


@pytest.mark.parametrize(
    ("fields", "stages", "told"),
    [
        ({"model_args": {"layers": 3, "heads": 1, "width": 16}}, 2, "3 layers do not divide among 2 stages"),
        ({}, 3, "2 layers do not divide among 3 stages"),
        (
            {"model": "resnet18", "model_args": {"width": 4}, "dataset": "pictures@v1"},
            2,
            "only the model gpt is divided into stages",
        ),
    ],
)
def test_a_model_that_makes_no_stages_is_told(fields: dict[str, Any], stages: int, told: str) -> None:
    training = config(**fields)
    model = build_model(training, IMAGES if "model" in fields else TOKENS)
    with pytest.raises(ConfigurationError, match=told):
        Stage(model, Grid(0, 1, stages, 1, None), SampleKeys(0), resolve_precision("fp32", "cpu", None), 0)
