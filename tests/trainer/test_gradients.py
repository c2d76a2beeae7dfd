"""However a global batch is spread over ranks and micro-batches, the gradient is that of the batch in one piece."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from trainer.data.dataset import ShardedSplit, dataset_info
from trainer.data.order import GlobalOrder
from trainer.data.verify import local_manifest
from trainer.exit_codes import Exit
from trainer.models.dropout import seed_dropout
from trainer.models.load import build_model
from trainer.train.lineage import fetch_files, newest_complete
from trainer.train.saved_state import SavedState

from tests.trainer import recorder
from tests.trainer.kit import Bench, Ranks, run_config
from tests.trainer.train_kit import config, in_memory, train_ranks

SEED, DROPOUT, STEPS = 5, 0.3, 3


def in_one_piece(folder: Path, batch: int) -> tuple[float, dict[str, torch.Tensor]]:
    """Loss and gradient of the first step's whole batch, by plain torch and nothing of the training loop."""
    manifest = local_manifest(folder)
    order = GlobalOrder(96, batch, SEED)
    images, labels, numbers = ShardedSplit(folder, manifest, "train").take(order.step_batch(0))
    torch.manual_seed(SEED)
    model = recorder.build(dataset_info(manifest), dropout=DROPOUT)
    seed_dropout(model, SEED).begin(0, numbers)
    loss = torch.nn.functional.cross_entropy(model(images.float() / 255), labels)
    loss.backward()
    return float(loss.detach()), {
        name: value.grad for name, value in model.named_parameters() if value.grad is not None
    }


def weights_of(bench: Bench, run: str) -> dict[str, torch.Tensor]:
    manifest = newest_complete(bench.store, bench.bucket, run)
    assert manifest is not None and manifest.step == STEPS
    return SavedState(fetch_files(bench.store, bench.bucket, manifest, bench.root / run)).weights()


@pytest.mark.parametrize(("batch", "accumulation"), [(64, 1), (64, 3), (7, 1), (7, 3)])
def test_gradients_losses_and_weights_are_the_same_at_any_world_size(
    trained: Bench, batch: int, accumulation: int
) -> None:
    loss, gradients = in_one_piece(trained.root / "data" / "numbers" / "v1", batch)
    order = GlobalOrder(96, batch, SEED)
    sums = [int(order.step_batch(step).sum()) for step in range(STEPS)]
    arguments = {"dropout": DROPOUT, "gradients": True}
    settings: dict[str, Any] = {"steps": STEPS, "seed": SEED, "model_args": arguments}
    settings |= {"global_batch_size": batch, "gradient_accumulation": accumulation}
    losses, weights = {}, {}
    for world in [ranks for ranks in (1, 2, 3, 5) if ranks * accumulation <= batch]:
        name = f"world-{world}"
        ranks = Ranks(trained, run_config(name, **settings), 1, world)
        assert ranks.wait() == [Exit.DONE] * world, ranks.log.read_text()
        for rank in range(world):
            found = torch.load(ranks.record / f"rank{rank}.gradients", weights_only=True)
            assert found.keys() == gradients.keys()
            for key, value in gradients.items():
                torch.testing.assert_close(found[key], value, rtol=1e-4, atol=1e-6)
            assert [event["sampleSum"] for event in ranks.events(rank, "step")] == sums
        losses[world], weights[world] = ranks.losses(), weights_of(trained, name)
        assert losses[world][0] == pytest.approx(loss, abs=1e-6)
        assert losses[world] == pytest.approx(losses[1], abs=1e-5)
        for key, value in weights[1].items():
            torch.testing.assert_close(weights[world][key], value, rtol=0, atol=1e-4)


@pytest.mark.parametrize("accumulation", [1, 2])
def test_every_target_that_counts_weighs_the_same_wherever_it_is(tmp_path: Path, accumulation: int) -> None:
    """Sequences of which 0 to 11 of 12 targets do not count: the loss is the mean over the global batch's others."""
    training = config(steps=1)
    info, split, _ = in_memory(training, ignored=True)
    batch = split.take(GlobalOrder(info.train_samples, 8, training.seed).step_batch(0))
    torch.manual_seed(training.seed)
    model = build_model(training, info)
    logits = model(batch.inputs)
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch.targets.flatten(), ignore_index=-100)
    loss.backward()
    norm = torch.nn.utils.get_total_norm(
        [value.grad for value in model.parameters() if value.grad is not None]
    )
    weights = {}
    for world in (1, 2):
        outcomes = train_ranks(
            tmp_path / f"{world}", world, ignored=True, steps=1, gradient_accumulation=accumulation
        )
        (step,) = outcomes[0].of_kind("step")
        assert step["loss"] == pytest.approx(float(loss.detach()), abs=1e-5)
        assert step["gradNorm"] == pytest.approx(float(norm), rel=1e-4)
        assert step["tokens"] == 8 * 12
        weights[world] = outcomes[0].weights
    for name, value in weights[1].items():
        torch.testing.assert_close(weights[2][name], value, rtol=0, atol=1e-4)
