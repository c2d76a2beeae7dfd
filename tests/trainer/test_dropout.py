"""Dropout by step and sample: the same mask for a sample wherever it is taken, and a fair one."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from trainer.models.dropout import SampleKeys, SeededDropout, seed_dropout


def seeded(*layers: nn.Module, seed: int = 3) -> tuple[nn.Sequential, SampleKeys]:
    model = nn.Sequential(*layers)
    return model, seed_dropout(model, seed)


def mask(model: nn.Module, keys: SampleKeys, step: int, numbers: list[int], *shape: int) -> torch.Tensor:
    """1 where an element stays, of [b, *shape]."""
    keys.begin(step, torch.tensor(numbers))
    return (model(torch.ones(len(numbers), *shape)) != 0).float()


def test_a_samples_mask_does_not_depend_on_its_company() -> None:
    model, keys = seeded(nn.Dropout(0.4), nn.Dropout(0.2))
    together = mask(model, keys, 7, [5, 90, 2, 31], 6, 9)
    for rows, numbers in (([2, 0], [2, 5]), ([3], [31]), ([1], [90])):
        assert torch.equal(mask(model, keys, 7, numbers, 6, 9), together[rows])


def test_masks_differ_by_seed_step_sample_and_layer() -> None:
    masks = []
    for seed, layer in itertools.product((0, 1), (0, 1)):
        model, keys = seeded(nn.Dropout(0.5), nn.Dropout(0.5), seed=seed)
        for step in range(4):
            masks += list(mask(model[layer], keys, step, [0, 1, 2], 64))
    different = {tuple(one.tolist()) for one in masks}
    assert len(different) == len(masks) == 48
    agreement = [(a == b).float().mean() for a, b in itertools.combinations(masks, 2)]
    assert 0.45 < float(torch.stack(agreement).mean()) < 0.55  # as unrelated masks do


def test_a_module_that_serves_two_places_draws_two_masks() -> None:
    shared = nn.Dropout(0.5)
    model, keys = seeded(shared, nn.Identity(), shared)
    assert model[0] is model[2]
    keys.begin(0, torch.tensor([1]))
    once, twice = model[0](torch.ones(1, 64)), model[0](torch.ones(1, 64))
    assert not torch.equal(once, twice)
    keys.begin(0, torch.tensor([1]))
    assert torch.equal(model[0](torch.ones(1, 64)), once)


@pytest.mark.parametrize("p", [0.05, 0.5, 0.9])
def test_the_share_that_falls_is_p_and_what_stays_is_scaled(p: float) -> None:
    model, keys = seeded(nn.Dropout(p))
    keys.begin(0, torch.arange(1000))
    outputs = model(torch.ones(1000, 400))
    values = outputs.unique()
    assert values.tolist() == pytest.approx([0, 1 / (1 - p)])
    kept = (outputs != 0).double()
    deviation = (p * (1 - p)) ** 0.5
    assert abs(float(kept.mean()) - (1 - p)) < 5 * deviation / 400_000**0.5
    # No sample and no place is favoured, and neighbours fall independently.
    for means, others in ((kept.mean(dim=1), 400), (kept.mean(dim=0), 1000)):
        assert float((means - (1 - p)).abs().max()) < 5 * deviation / others**0.5
    centred = kept - (1 - p)
    for a, b in ((centred[:, 1:], centred[:, :-1]), (centred[1:], centred[:-1])):
        assert abs(float((a * b).mean())) < 5 * deviation**2 / 399_000**0.5


@pytest.mark.parametrize(("p", "expected"), [(0.0, 1.0), (1.0, 0.0)])
def test_all_or_nothing(p: float, expected: float) -> None:
    model, keys = seeded(nn.Dropout(p))
    assert mask(model, keys, 0, [0, 1], 8).unique().tolist() == [expected]


def test_outside_of_training_it_does_nothing() -> None:
    model, keys = seeded(nn.Dropout(0.5))
    keys.begin(0, torch.arange(2))
    inputs = torch.rand(2, 8)
    assert model.eval()(inputs) is inputs


def test_gradients_pass_where_values_do() -> None:
    model, keys = seeded(nn.Dropout(0.5))
    keys.begin(0, torch.arange(4))
    inputs = torch.rand(4, 32, requires_grad=True)
    outputs = model(inputs)
    outputs.sum().backward()
    assert inputs.grad is not None and torch.equal(inputs.grad, (outputs != 0) * 2.0)


@pytest.mark.parametrize(
    ("layer", "shape"), [(nn.Dropout1d, (6, 5)), (nn.Dropout2d, (6, 4, 5)), (nn.Dropout3d, (6, 2, 4, 5))]
)
def test_channels_fall_as_a_whole(layer: Callable[..., nn.Module], shape: tuple[int, ...]) -> None:
    model, keys = seeded(layer(0.5))
    channels = mask(model, keys, 2, list(range(40)), *shape).flatten(2)
    assert torch.equal(channels.amin(dim=2), channels.amax(dim=2))
    assert 0.4 < float(channels.mean()) < 0.6
    assert torch.equal(mask(model, keys, 2, [11], *shape).flatten(2), channels[[11]])


def test_flattened_rows_belong_to_their_sample() -> None:
    model, keys = seeded(nn.Dropout(0.5))
    keys.begin(0, torch.tensor([8, 3]))
    rows = model(torch.ones(2 * 7, 5)).view(2, 7, 5)
    keys.begin(0, torch.tensor([3]))
    assert torch.equal(model(torch.ones(7, 5)), rows[1])


def test_what_has_no_samples_first_is_drawn_from_the_generator_and_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model, keys = seeded(nn.Dropout(0.5), nn.Dropout1d(0.5))
    keys.begin(0, torch.arange(4))
    with caplog.at_level(logging.WARNING):
        drawn = []
        for _ in range(2):
            torch.manual_seed(1)
            drawn.append(model[0](torch.ones(7, 30)))
    assert torch.equal(*drawn) and 0.3 < float((drawn[0] != 0).float().mean()) < 0.7
    assert len(caplog.records) == 1 and "dropout 0: its input [7, 30]" in caplog.text
    model[1](torch.ones(4, 8))  # no [b, c, l]
    assert "dropout 1: its input [4, 8]" in caplog.text


def test_recomputed_activations_meet_the_same_mask() -> None:
    """Activation checkpointing runs the forward pass again while gradients flow."""
    model, keys = seeded(nn.Linear(16, 16), nn.Dropout(0.5), nn.Linear(16, 16), nn.Dropout(0.3))
    inputs = torch.rand(4, 16)

    def gradients(run: Callable[[torch.Tensor], Any]) -> list[torch.Tensor]:
        model.zero_grad()
        keys.begin(5, torch.arange(4))
        run(inputs).square().sum().backward()
        return [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]

    plain = gradients(model)
    again = gradients(lambda x: checkpoint(model, x, use_reentrant=False))
    assert len(plain) == 4 and all(torch.equal(a, b) for a, b in zip(plain, again, strict=True))

    shared = nn.Dropout(0.5)
    model, keys = seeded(nn.Linear(16, 16), shared, nn.Linear(16, 16), shared)
    with pytest.raises(RuntimeError, match="dropout 1 is called 2 times a forward pass"):
        gradients(lambda x: checkpoint(model, x, use_reentrant=False))


def test_only_torchs_own_dropout_modules_are_replaced() -> None:
    class Mine(nn.Dropout):
        pass

    model = nn.ModuleDict(
        {"a": nn.Sequential(nn.Dropout(0.1)), "mine": Mine(0.1), "alpha": nn.AlphaDropout()}
    )
    before = list(model.state_dict())
    seed_dropout(model, 0)
    kinds = [type(module) for module in model.modules() if not isinstance(module, nn.Sequential)]
    assert kinds == [nn.ModuleDict, SeededDropout, Mine, nn.AlphaDropout]
    assert list(model.state_dict()) == before


def test_masks_never_change_between_releases() -> None:
    """A run resumed by a newer trainer must draw on as the older one would have."""
    model, keys = seeded(nn.Dropout(0.5), seed=-1)
    places = mask(model, keys, 9, [3, 2**40], 12).int().numpy()
    assert np.packbits(places, axis=1).tolist() == [[80, 96], [139, 176]]
