"""What a run may ask for beside the plain loop: each does what it says, and the same at any world size."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel
from trainer.contracts.run import AugmentSettings
from trainer.errors import ConfigurationError
from trainer.exit_codes import Exit
from trainer.file_store import FileStore
from trainer.models.dropout import SampleKeys
from trainer.models.load import build_model, cross_entropy, loss_function
from trainer.train import prepare
from trainer.train.augment import augment
from trainer.train.flops import Mfu, training_flops
from trainer.train.init_from import apply_weights, fetch_weights
from trainer.train.job import Job
from trainer.train.saved_state import SavedState
from trainer.train.schedule import make_optimizer, make_scheduler

from tests.trainer.train_kit import IMAGES, Outcome, config, train_ranks

PICTURES: dict[str, Any] = {"dataset": "pictures@v1", "model": "resnet18", "model_args": {"width": 4}}


def same_training(one: Outcome, other: Outcome, weights: float = 1e-4) -> None:
    assert one.losses == pytest.approx(other.losses, abs=1e-5) and len(one.losses) == 4
    for name, value in one.weights.items():
        torch.testing.assert_close(other.weights[name], value, rtol=0, atol=weights)


def test_activation_checkpointing_changes_nothing_but_memory_with_dropout_and_two_ranks(
    tmp_path: Path,
) -> None:
    arguments = {"layers": 2, "heads": 2, "width": 16, "dropout": 0.2}
    plain = train_ranks(tmp_path / "plain", 1, model_args=arguments)
    counted = train_ranks(
        tmp_path / "checkpointed",
        2,
        prepare=count_block_calls,
        model_args=arguments,
        activation_checkpointing=True,
        gradient_accumulation=2,
    )
    same_training(plain[0], counted[0])
    (note,) = counted[0].of_kind("note")
    # 4 steps x 2 micro-batches x (forward, again for backward), and the evaluation's forward.
    assert note["message"] == "17 calls of the first block"


def count_block_calls(job: Job) -> None:
    block, calls = job.model.layers[0].up, [0]  # type: ignore[index,union-attr]

    def count(*_: object) -> None:
        calls[0] += 1

    block.register_forward_hook(count)
    write = job.events.write

    def told(kind: Any, **fields: Any) -> None:
        if kind == "finished":
            write("note", message=f"{calls[0]} calls of the first block")
        write(kind, **fields)

    job.events.write = told  # type: ignore[method-assign]


def test_a_model_that_names_no_blocks_cannot_be_checkpointed(tmp_path: Path) -> None:
    (outcome,) = train_ranks(
        tmp_path, 1, model="tiny-vision", dataset="pictures@v1", activation_checkpointing=True
    )
    assert outcome.exit_code == Exit.CONFIGURATION
    assert 'model "tiny-vision" has no method blocks()' in str(outcome.fault)


def test_a_compiler_that_fails_is_told_and_the_training_goes_on_on_every_rank(tmp_path: Path) -> None:
    plain = train_ranks(tmp_path / "plain", 2)
    failed = train_ranks(tmp_path / "failed", 2, prepare=break_compiler_of_rank_1, compile=True)
    same_training(plain[0], failed[0])
    for outcome in failed:
        (note,) = outcome.of_kind("note")
        assert note["message"] == (
            "torch.compile failed on rank 1, trained without it: RuntimeError: no compiler here"
        )


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_what_a_compiler_is_tried_out_with_leaves_no_trace_and_is_a_micro_batch(
    tmp_path: Path, parallel: str
) -> None:
    """Neither in gradients, of which FSDP keeps whole ones, nor in buffers, nor in memory."""
    asked = {"parallel": parallel, "gradient_accumulation": 2}
    plain = train_ranks(tmp_path / "plain", 2, prepare=count_calls, **asked)
    compiled = train_ranks(tmp_path / "compiled", 2, prepare=count_calls, compile=True, **asked)
    assert compiled[0].fault is None and compiled[0].losses == pytest.approx(plain[0].losses, abs=1e-5)
    for outcome in (*plain, *compiled):
        assert [note["message"] for note in outcome.of_kind("note")] == ["8 calls of 2 samples"]


def count_calls(job: Job) -> None:
    """Compiles nothing; tells how often the model was called in training by a buffer of its own."""
    job.model.register_buffer("calls", torch.zeros(()))
    sizes = set()

    def call(model: nn.Module, inputs: tuple[torch.Tensor]) -> None:
        if model.training:
            sizes.add(len(inputs[0]))
            model.calls += 1  # type: ignore[operator]

    job.model.register_forward_pre_hook(call)
    job.model.compile = lambda **_: None  # type: ignore[method-assign,assignment]
    write = job.events.write

    def told(kind: Any, **fields: Any) -> None:
        if kind == "finished":
            write("note", message=f"{int(job.model.calls)} calls of {max(sizes)} samples")  # type: ignore[call-overload,arg-type]
        write(kind, **fields)

    job.events.write = told  # type: ignore[method-assign]


def break_compiler_of_rank_1(job: Job) -> None:
    def compiled(*_: object) -> None:
        if job.world.rank == 1:
            raise RuntimeError("no compiler\nhere")

    def use(**_: object) -> None:
        eager = job.model.forward

        def run(*inputs: Any) -> Any:
            compiled()
            return eager(*inputs)

        job.model._compiled_call_impl = run  # type: ignore[assignment]

    job.model.compile = use  # type: ignore[method-assign,assignment]


@pytest.mark.parametrize("accumulation", [1, 3])
def test_augmented_images_are_the_same_at_any_world_size(tmp_path: Path, accumulation: int) -> None:
    asked = {**PICTURES, "augment": {"flip": True, "crop_pixels": 2}}
    alone = train_ranks(tmp_path / "alone", 1, **asked)
    spread = train_ranks(tmp_path / "spread", 2, gradient_accumulation=accumulation, **asked)
    same_training(alone[0], spread[0], 2e-3)
    plain = train_ranks(tmp_path / "plain", 1, **PICTURES)
    assert plain[0].losses != pytest.approx(alone[0].losses, abs=1e-4)


def test_flips_and_shifts_are_those_of_the_sample_and_the_step() -> None:
    images = torch.arange(1, 1 + 8 * 1 * 5 * 5).to(torch.uint8).view(8, 1, 5, 5)
    keys, numbers = SampleKeys(3), torch.arange(8)

    def changed(step: int, settings: AugmentSettings, chosen: torch.Tensor = numbers) -> torch.Tensor:
        keys.begin(step, chosen)
        return augment(images[chosen], settings, keys)

    flipped = changed(0, AugmentSettings(flip=True))
    mirrored = [bool(torch.equal(one, image.flip(-1))) for one, image in zip(flipped, images, strict=True)]
    as_it_was = [bool(torch.equal(one, image)) for one, image in zip(flipped, images, strict=True)]
    assert all(a != b for a, b in zip(mirrored, as_it_was, strict=True)) and 1 <= sum(mirrored) <= 7

    settings = AugmentSettings(flip=True, crop_pixels=2)
    shifted = changed(1, settings)
    assert shifted.shape == images.shape and shifted.dtype == torch.uint8
    assert torch.equal(changed(1, settings, torch.tensor([6, 1])), shifted[[6, 1]])
    assert not torch.equal(changed(2, settings), shifted)
    padded = nn.functional.pad(images, (2, 2, 2, 2))
    for one, image in zip(changed(1, AugmentSettings(crop_pixels=2)), padded, strict=True):
        windows = [image[:, y : y + 5, x : x + 5] for y in range(5) for x in range(5)]
        assert any(torch.equal(one, window) for window in windows)


def test_labels_are_smoothed_while_training_only() -> None:
    logits, targets = torch.randn(4, 5), torch.tensor([0, 1, 2, 3])
    model = nn.Linear(1, 1)
    smoothed = loss_function(model, 0.2)(logits, targets)
    torch.testing.assert_close(smoothed, nn.functional.cross_entropy(logits, targets, label_smoothing=0.2))
    assert loss_function(model) is cross_entropy
    model.loss = cross_entropy  # type: ignore[assignment]
    with pytest.raises(ConfigurationError, match="a loss of its own; smooth it there"):
        loss_function(model, 0.2)


@pytest.mark.parametrize(("name", "kind"), [("adamw", torch.optim.AdamW), ("sgd", torch.optim.SGD)])
def test_weight_decay_is_for_matrices_alone(name: Any, kind: type) -> None:
    training = config(**PICTURES, optimizer=name, weight_decay=0.1)
    optimizer = make_optimizer(build_model(training, IMAGES), training)
    assert isinstance(optimizer, kind)
    decays = {
        parameter.ndim: group["weight_decay"]
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    assert decays == {1: 0.0, 2: 0.1, 4: 0.1}


@pytest.mark.parametrize(
    ("schedule", "warmup", "rates"),
    [
        ("constant", 2, [1 / 3, 2 / 3, 1, 1, 1, 1]),
        ("linear", 2, [1 / 3, 2 / 3, 1, 0.75, 0.5, 0.25]),
        ("cosine", 0, [1, 0.933, 0.75, 0.5, 0.25, 0.067]),
        ("one-cycle", 2, [0.04, 1, 0.8536, 0.5, 0.1464, 0]),
    ],
)
def test_the_rate_follows_its_schedule_also_after_a_resume(
    schedule: Any, warmup: int, rates: list[float]
) -> None:
    training = config(schedule=schedule, warmup_steps=warmup, learning_rate=1.0, optimizer="sgd")

    def made() -> tuple[torch.optim.Optimizer, Any]:
        optimizer = make_optimizer(nn.Linear(2, 2), training)
        return optimizer, make_scheduler(optimizer, training, 6)

    optimizer, scheduler = made()
    seen = []
    for step in range(6):
        if step == 3:
            saved = optimizer.state_dict(), scheduler.state_dict()
            optimizer, scheduler = made()
            optimizer.load_state_dict(saved[0])
            scheduler.load_state_dict(saved[1])
        seen.append(scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()
    assert seen == pytest.approx(rates, abs=1e-3)


@pytest.mark.parametrize("fields", [{"optimizer": "sgd", "schedule": "one-cycle"}, {"clip_norm": 0.1}])
def test_a_resumed_run_is_the_uninterrupted_one(tmp_path: Path, fields: dict[str, Any]) -> None:
    whole = train_ranks(tmp_path / "whole", 1, **fields)[0]
    train_ranks(tmp_path / "parts", 1, prepare=stop_after_2, **fields)
    rest = train_ranks(tmp_path / "parts", 2, generation=2, **fields)[0]
    assert rest.losses == pytest.approx(whole.losses[2:], abs=1e-5) and len(rest.losses) == 2
    for name, value in whole.weights.items():
        torch.testing.assert_close(rest.weights[name], value, rtol=0, atol=1e-4)


def stop_after_2(job: Job) -> None:
    real = job.stop.weight
    job.stop.weight = lambda: 1 if job.events.last_step == 1 else real()  # type: ignore[method-assign]


def count_exchanges(job: Job) -> None:
    exchanges: list[int] = []

    class Counting(DistributedDataParallel):
        def __init__(self, *arguments: object, **options: object) -> None:
            super().__init__(*arguments, **options)  # type: ignore[arg-type]

            def count(_state, bucket):  # not annotated: DDP compares annotations as objects
                if bucket.is_last():
                    exchanges.append(1)
                return default_hooks.allreduce_hook(None, bucket)  # type: ignore[arg-type]

            self.register_comm_hook(None, count)

    prepare.DistributedDataParallel = Counting  # type: ignore[misc]
    write = job.events.write

    def told(kind: Any, **fields: Any) -> None:
        if kind == "finished":
            write("note", message=f"{len(exchanges)} exchanges")
        write(kind, **fields)

    job.events.write = told  # type: ignore[method-assign]


def test_gradients_are_exchanged_once_a_step_however_many_micro_steps(tmp_path: Path) -> None:
    outcomes = train_ranks(tmp_path, 2, prepare=count_exchanges, gradient_accumulation=4)
    assert [outcome.of_kind("note")[0]["message"] for outcome in outcomes] == ["4 exchanges"] * 2


# --- memory ---------------------------------------------------------------------------------------------------------


def hungry(job: Job, rank: int, largest: int) -> None:
    forward = job.model.forward

    def limited(inputs: torch.Tensor) -> torch.Tensor:
        if job.world.rank == rank and job.model.training and len(inputs) > largest:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return forward(inputs)  # type: ignore[no-any-return]

    job.model.forward = limited  # type: ignore[method-assign]


def hungry_rank_1(job: Job) -> None:
    hungry(job, 1, 1)


def nothing_fits(job: Job) -> None:
    hungry(job, 1, 0)


def test_a_micro_batch_that_does_not_fit_one_rank_is_halved_on_all_and_the_result_is_the_same(
    tmp_path: Path,
) -> None:
    plain = train_ranks(tmp_path / "plain", 2)
    halved = train_ranks(tmp_path / "halved", 2, prepare=hungry_rank_1, micro_batch="auto")
    same_training(plain[0], halved[0])
    for outcome in halved:
        (note,) = outcome.of_kind("note")
        assert note["message"] == (
            "out of memory before the first step: gradient accumulation 1 became 4, the global batch stays 8"
        )


def test_a_rank_that_has_no_room_to_begin_with_keeps_the_others_from_no_try(tmp_path: Path) -> None:
    """Buffers are what replicas exchange before they go forward: the others would wait for it."""
    outcomes = train_ranks(tmp_path, 2, prepare=no_room_on_rank_1, micro_batch="auto")
    assert [outcome.exit_code for outcome in outcomes] == [Exit.DONE] * 2
    assert "gradient accumulation 1 became 2" in outcomes[0].of_kind("note")[0]["message"]


def no_room_on_rank_1(job: Job) -> None:
    job.model.register_buffer("average", torch.zeros(1))
    if job.world.rank == 1:
        plain = prepare.augment

        def limited(images: torch.Tensor, *rest: Any) -> torch.Tensor:
            if len(images) > 2:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
            return plain(images, *rest)

        prepare.augment = limited


def test_out_of_memory_names_the_setting_to_change(tmp_path: Path) -> None:
    (alone,) = train_ranks(tmp_path / "fixed", 1, prepare=hungry_rank_0)
    assert alone.exit_code == Exit.OUT_OF_MEMORY
    assert alone.fault == (
        "out of memory with micro-batches of 8 (globalBatchSize 8 over 1 ranks, gradientAccumulation 1): "
        "set training.gradientAccumulation to 2, or training.microBatch: auto"
    )
    outcomes = train_ranks(tmp_path / "auto", 2, prepare=nothing_fits, micro_batch="auto")
    assert {outcome.exit_code for outcome in outcomes} == {Exit.OUT_OF_MEMORY}
    assert "one sample is too much: set training.activationCheckpointing: true" in str(outcomes[0].fault)


def hungry_rank_0(job: Job) -> None:
    hungry(job, 0, 4)


# --- numbers that are none ------------------------------------------------------------------------------------------


def bad_at(job: Job, calls: set[int], rank: int = 1) -> None:
    """Training forward passes (from 1) that give no number, on one rank."""
    forward, made = job.model.forward, [0]

    def bad(inputs: torch.Tensor) -> torch.Tensor:
        outputs = forward(inputs)
        made[0] += job.model.training
        broken = job.model.training and made[0] in calls and job.world.rank == rank
        return outputs * float("nan") if broken else outputs  # type: ignore[no-any-return]

    job.model.forward = bad  # type: ignore[method-assign]


def bad_second_step(job: Job) -> None:
    bad_at(job, {2})


def bad_from_3(job: Job) -> None:
    bad_at(job, {3, 4})


def bad_for_good(job: Job) -> None:
    bad_at(job, set(range(3, 30)))


def test_a_step_without_a_number_is_left_out_by_all_ranks_and_counted(tmp_path: Path) -> None:
    outcomes = train_ranks(tmp_path, 2, prepare=bad_second_step, non_finite="skip")
    assert {outcome.exit_code for outcome in outcomes} == {Exit.DONE}
    steps = outcomes[0].of_kind("step")
    assert [step.get("skipped", False) for step in steps] == [False, True, False, False]
    assert steps[1]["loss"] is None and steps[1]["nonFinite"] is True
    for name, value in outcomes[0].weights.items():
        assert torch.equal(outcomes[1].weights[name], value) and torch.isfinite(value).all()
    (finished,) = outcomes[0].of_kind("finished")
    assert finished["step"] == 4 and finished["lastLoss"] is not None


def test_after_some_in_a_row_the_run_goes_back_once_and_a_passing_fault_leaves_no_trace(
    tmp_path: Path,
) -> None:
    asked: dict[str, Any] = {
        "steps": 5,
        "non_finite": "skip",
        "non_finite_limit": 2,
        "checkpoint": {"every_seconds": 1e-6},
    }
    plain = train_ranks(tmp_path / "plain", 2, steps=5)
    outcomes = train_ranks(tmp_path / "passing", 2, prepare=bad_from_3, **asked)
    starts = outcomes[0].of_kind("started")
    assert "after 2 steps without a number" in starts[1]["message"]
    back = starts[1]["step"]  # saves go on beside the steps: which is the newest then, the machine decides
    assert 1 <= back <= 3
    assert outcomes[0].exit_code == Exit.DONE
    assert [step["step"] for step in outcomes[0].of_kind("step")] == [1, 2, 3, 4, *range(back + 1, 6)]
    assert outcomes[0].losses[:2] == pytest.approx(plain[0].losses[:2], abs=1e-6)

    for_good = train_ranks(tmp_path / "for-good", 2, prepare=bad_for_good, **asked)
    assert {outcome.exit_code for outcome in for_good} == {Exit.NON_FINITE}
    assert len(for_good[0].of_kind("started")) == 2
    assert "is not finite on ranks [1]" in str(for_good[0].fault)


def test_without_a_checkpoint_there_is_nothing_to_go_back_to(tmp_path: Path) -> None:
    outcomes = train_ranks(tmp_path, 2, prepare=bad_for_good, steps=6, non_finite="skip", non_finite_limit=2)
    assert {outcome.exit_code for outcome in outcomes} == {Exit.NON_FINITE}
    assert "there is no checkpoint to go back to" in str(outcomes[0].fault)


def infinite_gradient(job: Job) -> None:
    job.model.layers[1].up.weight.register_hook(lambda gradient: gradient * float("inf"))  # type: ignore[index,union-attr]


def test_a_gradient_without_a_number_is_told_with_the_first_parameter_of_it(tmp_path: Path) -> None:
    (outcome,) = train_ranks(tmp_path, 1, prepare=infinite_gradient)
    assert outcome.exit_code == Exit.NON_FINITE
    assert outcome.fault is not None
    assert outcome.fault.startswith(
        "gradient of step 1 is not finite, first in the gradient of layers.1.up.weight"
    )


def huge_scale(job: Job) -> None:
    job.model.layers[0].up.weight.register_hook(  # type: ignore[index,union-attr]
        lambda gradient: gradient * (1 if float(gradient.abs().max()) < 0.5 else float("inf"))
    )


def test_fp16_overflows_are_left_out_until_the_scale_fits_and_the_scale_outlives_a_resume(
    tmp_path: Path,
) -> None:
    asked: dict[str, Any] = {"precision": "fp16", "steps": 14, "global_batch_size": 4}
    whole = train_ranks(tmp_path / "whole", 1, prepare=huge_scale, **asked)[0]
    skipped = [step["step"] for step in whole.of_kind("step") if step.get("skipped")]
    assert skipped == list(range(1, len(skipped) + 1)) and 1 <= len(skipped) < 14
    assert whole.exit_code == Exit.DONE and all(loss is not None for loss in whole.losses)

    train_ranks(tmp_path / "parts", 1, prepare=huge_scale_and_stop, **asked)
    rest = train_ranks(tmp_path / "parts", 1, generation=2, prepare=huge_scale, **asked)[0]
    assert not any(step.get("skipped") for step in rest.of_kind("step"))
    assert rest.losses == whole.losses[-len(rest.losses) :]


def huge_scale_and_stop(job: Job) -> None:
    huge_scale(job)
    real = job.stop.weight
    job.stop.weight = lambda: 1 if job.events.last_step == 12 else real()  # type: ignore[method-assign]


def test_a_run_that_is_over_before_the_scale_fits_is_done_and_has_no_loss(tmp_path: Path) -> None:
    asked: dict[str, Any] = {"precision": "fp16", "steps": 1, "global_batch_size": 4}
    (outcome,) = train_ranks(tmp_path, 1, prepare=huge_scale, **asked)
    assert outcome.exit_code == Exit.DONE and outcome.of_kind("step")[0]["skipped"]
    assert outcome.of_kind("finished")[0]["lastLoss"] is None


def test_fp16_that_overflows_at_any_scale_ends_with_30(tmp_path: Path) -> None:
    (outcome,) = train_ranks(
        tmp_path, 1, prepare=infinite_gradient, precision="fp16", steps=40, global_batch_size=4
    )
    assert outcome.exit_code == Exit.NON_FINITE
    assert outcome.fault == (
        "fp16 gradients overflow at any scale, step 17, first in the gradient of layers.1.up.weight; "
        "use bf16 or fp32"
    )
    assert sum(1 for step in outcome.of_kind("step") if step.get("skipped")) == 16


# --- fine-tuning ----------------------------------------------------------------------------------------------------


def test_a_run_begins_with_the_weights_it_is_given(tmp_path: Path) -> None:
    first = train_ranks(tmp_path / "first", 1)[0]
    torch.save(first.weights, tmp_path / "weights.pt")
    tuned = train_ranks(
        tmp_path / "tuned", 1, steps=1, learning_rate=1e-9, prepare=weights_beside, init_from="../weights.pt"
    )[0]
    assert tuned.exit_code == Exit.DONE, tuned.fault
    for name, value in first.weights.items():
        torch.testing.assert_close(tuned.weights[name], value, rtol=0, atol=1e-6)
    (started,) = tuned.of_kind("started")
    assert started["message"] == "fresh start with the weights of ../weights.pt"


def weights_beside(job: Job) -> None:
    folder = Path(job.checkpoints._local).parents[1]
    job.weights = lambda: fetch_weights(str(folder / "weights.pt"), None, "", folder)  # type: ignore[arg-type]


def test_all_ranks_of_a_node_fetch_a_runs_best_checkpoint_or_are_told_that_there_is_none(
    tmp_path: Path,
) -> None:
    first = train_ranks(tmp_path / "first", 1, eval_every_steps=2)[0]
    best = min(first.of_kind("eval"), key=lambda event: event["evalLoss"])
    store = FileStore(tmp_path / "first" / "store")
    with ThreadPoolExecutor(4) as ranks:
        fetched = list(
            ranks.map(lambda _: fetch_weights("run:run", store, "bucket", tmp_path / "init"), range(4))
        )
    (folder,) = (tmp_path / "first" / "checkpoints").glob(f"step-{best['step']:08d}/g0001")
    saved = SavedState(folder).weights()
    assert saved.keys() == first.weights.keys()
    for weights in fetched:
        assert all(torch.equal(weights[name], value) for name, value in saved.items())
    for source, told in (
        ("run:other", 'run "other" has no checkpoint'),
        ("absent.pt", "there is no such file on this machine"),
        (str(tmp_path / "first" / "store" / ".lock"), "cannot be read"),
    ):
        with pytest.raises(ConfigurationError, match=told):
            fetch_weights(source, store, "bucket", tmp_path / "init")


def test_weights_that_do_not_fit_are_named() -> None:
    def model(classes: int) -> nn.Module:
        return nn.ModuleDict({"body": nn.Linear(3, 4), "head": nn.Linear(4, classes)})

    old, new = model(2), model(5)
    before = new["head"].weight.clone()  # type: ignore[index]
    weights = {**old.state_dict(), "more": torch.zeros(1)}
    del weights["body.bias"]
    told = (
        r"shape: head.weight \[2, 4\] for \[5, 4\], head.bias \[2\] for \[5\]; missing: body.bias; "
        "not in the model: more"
    )
    with pytest.raises(ConfigurationError, match=told + "; training.initStrict: false takes what fits"):
        apply_weights(new, weights, strict=True)
    assert not torch.equal(new["body"].weight, old["body"].weight)  # type: ignore[index]
    assert apply_weights(new, weights, strict=False) is not None
    assert torch.equal(new["body"].weight, old["body"].weight)  # type: ignore[index]
    assert torch.equal(new["head"].weight, before)  # type: ignore[index]
    with pytest.raises(ConfigurationError, match="has no weight that fits"):
        apply_weights(new, {"other": torch.zeros(2)}, strict=False)


# --- MFU ------------------------------------------------------------------------------------------------------------


def test_mfu_is_told_only_where_the_peak_is_known_and_never_above_1() -> None:
    assert Mfu(1e9, [None]).of(10, 1.0) is None
    assert Mfu(1e9, [1e12, None]).of(10, 1.0) is None  # another GPU of the world is not known
    mfu = Mfu(flops=1e9, peaks=[1.5e12, 0.5e12])
    assert mfu.of(samples=500, seconds=1.0) == pytest.approx(0.25)
    assert mfu.of(samples=4000, seconds=1.0) is None
    assert mfu.fault is not None and mfu.fault.startswith(
        "MFU would be 200%: the peak of 2 TFLOP/s of all devices by the table"
    )
    assert mfu.of(samples=500, seconds=1.0) is None


def test_a_models_operations_are_counted_where_it_does_not_tell() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 10))
    assert training_flops(model, IMAGES) == 3 * 2 * 768 * 10
    model.training_flops = lambda: 5  # type: ignore[assignment]
    assert training_flops(model, IMAGES) == 5
