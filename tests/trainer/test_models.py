"""Models: the built-in one, the user's own from a wheel, and every way in which one can be wrong."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode
from trainer.contracts import keys
from trainer.contracts.run import TrainingConfig
from trainer.data.dataset import DatasetInfo
from trainer.errors import ConfigurationError
from trainer.models.dropout import seed_dropout
from trainer.models.load import (
    BUILT_IN,
    IGNORED,
    build_model,
    cross_entropy,
    loss_function,
    targets_that_count,
)
from trainer.models.user_wheel import hashed_name, install_user_wheel

from tests.trainer.kit import Bench

EXAMPLE = Path(__file__).parents[2] / "trainer" / "examples" / "my_model"
INFO = DatasetInfo("shapes", "v1", classes=6, sample_shape=(3, 24, 24), train_samples=100, test_samples=10)


def config(model: str, **model_args: Any) -> TrainingConfig:
    return TrainingConfig(model=model, model_args=model_args, dataset="shapes@v1", steps=1)


@pytest.fixture
def user_module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("users_module")
    monkeypatch.setitem(sys.modules, "users_module", module)
    return module


def test_tiny_vision_treats_each_sample_by_itself() -> None:
    """No batch statistics: how a batch is spread over ranks cannot change the result."""
    model = build_model(config("tiny-vision"), INFO)
    images = torch.rand(6, 3, 24, 24)
    together = model(images)
    assert together.shape == (6, 6)
    apart = torch.cat([model(image[None]) for image in images])
    assert torch.allclose(together, apart, atol=1e-6)


def test_building_and_trying_out_leaves_the_random_state_and_the_mode_alone() -> None:
    build_model(config("tiny-vision"), INFO)
    torch.manual_seed(1)
    first = build_model(config("tiny-vision", dropout=0.5), INFO)
    after = torch.rand(1)
    torch.manual_seed(1)
    assert first.training
    build_plain = build_model(config("tiny-vision", dropout=0.5), INFO)
    assert torch.equal(torch.rand(1), after)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), build_plain.parameters(), strict=True))


@pytest.mark.parametrize(
    ("model", "arguments", "told"),
    [
        ("resnet", {}, r"not built in \(there is: gpt, resnet18, resnet50, tiny-vision\)"),
        ("gpt", {}, "shapes holds images; this model takes tokens"),
        ("resnet18", {"norm": "batch"}, 'norm must be one of group, sync-batch, not "batch"'),
        ("resnet18", {"width": 7}, "width must be even"),
        ("tiny-vision", {"width": 12}, "width must be a multiple of 8, not 12"),
        ("tiny-vision", {"depth": 3}, "unexpected keyword argument 'depth'"),
        ("no_such_module:build", {}, "no module no_such_module; the run names no userWheel: .*--wheel"),
        ("users_module.part:build", {}, "no module users_module.part; the run names no userWheel"),
        ("users_module:absent", {}, 'users_module has no callable "absent"'),
        ("users_module:wrong_type", {}, "returned str, not a torch.nn.Module"),
        ("users_module:wrong_classes", {}, r"returns \[2, 5\] for a batch of 2; logits of \[2, 6\]"),
        ("users_module:wrong_input", {}, r"fails on images of \[2, 3, 24, 24\]: RuntimeError"),
        ("users_module:not_finite", {}, "returns numbers that are not finite, before any training"),
        ("users_module:loss_not_finite", {}, "its first loss is inf; a finite scalar is needed"),
        (
            "users_module:odd_state",
            {},
            "keeps float64 under head._extra_state in its state_dict; a checkpoint holds tensors alone",
        ),
    ],
)
def test_a_model_that_does_not_fit_is_told_before_the_first_step(
    user_module: Any, model: str, arguments: dict[str, Any], told: str
) -> None:
    class NotFinite(nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return images.flatten(1)[:, :6] * float("nan")

    class LossNotFinite(nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return images.flatten(1)

        def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            return outputs.mean() / (targets.sum() * 0)  # type: ignore[no-any-return]

    class OddState(nn.Linear):
        def get_extra_state(self) -> Any:
            return np.float64(1)

    user_module.odd_state = lambda _dataset: nn.Sequential(
        OrderedDict(flat=nn.Flatten(), head=OddState(3 * 24 * 24, 6))
    )
    user_module.loss_not_finite = lambda _dataset: LossNotFinite()
    user_module.wrong_type = lambda _dataset: "model"
    user_module.wrong_classes = lambda _dataset: nn.Sequential(nn.Flatten(), nn.Linear(3 * 24 * 24, 5))
    user_module.wrong_input = lambda _dataset: nn.Linear(7, 6)
    user_module.not_finite = lambda _dataset: NotFinite()
    with pytest.raises(ConfigurationError, match=told) as raised:
        build_model(config(model, **arguments), INFO)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("model", "parameters"),
    [
        ("resnet18", 11_689_512),
        ("resnet50", 25_557_032),
    ],  # the published networks', with any norm of two a channel
)
def test_the_residual_networks_are_the_published_ones(model: str, parameters: int) -> None:
    info = DatasetInfo("imagenet", "v1", 1000, (3, 224, 224), 1, 0)
    with torch.device("meta"):
        built = BUILT_IN[model](info)
        with FlopCounterMode(display=False) as counter:
            assert built(torch.empty(2, 3, 224, 224)).shape == (2, 1000)
    assert sum(weight.numel() for weight in built.parameters()) == parameters
    if model == "resnet50":
        assert counter.get_total_flops() / 2 == pytest.approx(8.2e9, rel=0.01)


@pytest.mark.parametrize("size", [8, 32, 64])
def test_a_residual_network_treats_each_sample_by_itself_at_any_size(size: int) -> None:
    info = DatasetInfo("small", "v1", 5, (1, size, size), 1, 0)
    model = build_model(config("resnet18", width=8), info).eval()
    images = torch.rand(3, 1, size, size)
    together = model(images)
    assert together.shape == (3, 5) and together.std() > 0
    assert torch.allclose(together, torch.cat([model(image[None]) for image in images]), atol=1e-5)


def test_batch_statistics_over_ranks_are_asked_for_and_need_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match='norm "sync-batch" needs GPUs, and there is none'):
        build_model(config("resnet18", norm="sync-batch"), INFO)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    model = BUILT_IN["resnet18"](INFO, norm="sync-batch")
    kinds = {type(module) for module in model.modules()}
    assert nn.SyncBatchNorm in kinds and nn.GroupNorm not in kinds


TEXT = DatasetInfo("text", "v1", 50, (10,), 100, 10, kind="tokens", vocabulary=50, sequence_length=10)


def test_gpt_124m_is_as_large_as_gpt_2_and_needs_as_much_work_as_published() -> None:
    info = DatasetInfo("web", "v1", 50257, (1024,), 1, 0, "tokens", 50257, 1024)
    with torch.device("meta"):
        model = BUILT_IN["gpt"](info, preset="124m")
    assert sum(weight.numel() for weight in model.parameters()) == 124_439_808
    # 6N + 12 L H Q T a token, as nanoGPT counts it: without the table of places.
    flops = model.training_flops()  # type: ignore[operator]
    assert flops / 1024 == pytest.approx(6 * 123_653_376 + 12 * 12 * 768 * 1024)


def test_no_token_of_a_gpt_sees_a_later_one() -> None:
    model = build_model(config("gpt", width=32), TEXT).eval()
    tokens = torch.randint(50, (2, 10))
    changed = tokens.clone()
    changed[:, 6] = (changed[:, 6] + 1) % 50
    before, after = model(tokens), model(changed)
    assert before.shape == (2, 10, 50)
    assert torch.allclose(before[:, :6], after[:, :6], atol=1e-6)
    assert not torch.allclose(before[:, 6:], after[:, 6:], atol=1e-3)


def test_a_gpts_dropout_falls_by_sample_whatever_its_company() -> None:
    model = build_model(config("gpt", width=32, dropout=0.3), TEXT)
    keys = seed_dropout(model, 1)
    tokens, numbers = torch.randint(50, (4, 10)), torch.tensor([4, 9, 17, 3])
    keys.begin(2, numbers)
    together = model(tokens)
    keys.begin(2, numbers[1:2])
    assert torch.allclose(model(tokens[1:2])[0], together[1], atol=1e-5)
    keys.begin(3, numbers)
    assert not torch.allclose(model(tokens), together, atol=1e-3)


@pytest.mark.parametrize(
    ("model", "arguments", "told"),
    [
        ("tiny-vision", {}, "text holds tokens; this model takes images"),
        ("resnet50", {}, "text holds tokens; this model takes images"),
        ("gpt", {"preset": "huge"}, 'preset must be one of tiny, 124m, not "huge"'),
        ("gpt", {"heads": 3}, "width 128 must be a multiple of the 3 heads"),
        (
            "users_module:no_sequence",
            {},
            r"returns \[2, 50\] for .*logits of \[2, 10, 50\].*a vocabulary of 50",
        ),
    ],
)
def test_a_model_of_tokens_that_does_not_fit_is_told(
    user_module: Any, model: str, arguments: dict[str, Any], told: str
) -> None:
    user_module.no_sequence = lambda _dataset: nn.Sequential(
        nn.Embedding(50, 5), nn.Flatten(), nn.Linear(50, 50)
    )
    with pytest.raises(ConfigurationError, match=told):
        build_model(config(model, **arguments), TEXT)


def test_the_loss_is_a_mean_over_the_targets_that_count() -> None:
    logits = torch.randn(2, 3, 7)
    targets = torch.tensor([[1, IGNORED, IGNORED], [2, 3, IGNORED]])
    rows = [(0, 0, 1), (1, 0, 2), (1, 1, 3)]
    by_hand = sum(-logits[b, t].log_softmax(0)[target] for b, t, target in rows) / 3
    torch.testing.assert_close(cross_entropy(logits, targets), by_hand)
    assert cross_entropy(logits, torch.full((2, 3), IGNORED)) == 0
    assert targets_that_count(targets) == 3


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example of the documentation, built as its text says."""
    folder = tmp_path_factory.mktemp("my_model")
    shutil.copytree(EXAMPLE, folder / "source")
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--no-build-isolation",
    ]
    subprocess.run([*command, "-w", str(folder), str(folder / "source")], check=True, timeout=120)
    return next(folder.glob("*.whl"))


def test_a_users_wheel_becomes_the_runs_model(bench: Bench, wheel: Path, tmp_path: Path) -> None:
    name = hashed_name(wheel)
    bench.store.put(bench.bucket, keys.user_wheel(name), wheel.read_bytes())
    packages = install_user_wheel(bench.store, bench.bucket, name, tmp_path / "runs" / "mine")
    assert packages == tmp_path / "runs" / "mine" / "packages"
    try:
        model = build_model(config("my_model:build", width=16), INFO, packages)
        module = sys.modules["my_model"]
    finally:
        sys.modules.pop("my_model", None)
        sys.path.remove(str(packages))
    assert Path(str(module.__file__)).is_relative_to(packages)  # not in the shared environment
    bench.store.delete(bench.bucket, keys.user_wheel(name))
    again = install_user_wheel(bench.store, bench.bucket, name, tmp_path / "runs" / "mine")
    assert again == packages  # once a run, not once a rank
    outputs, targets = model(torch.rand(4, 3, 24, 24)), torch.zeros(4, dtype=torch.int64)
    assert loss_function(model) == model.loss  # the wheel brings its own
    assert torch.isfinite(loss_function(model)(outputs, targets))


def test_wheels_that_are_absent_altered_or_foreign_are_refused(
    bench: Bench, wheel: Path, tmp_path: Path
) -> None:
    def install(name: str, body: bytes | None) -> None:
        if body is not None:
            bench.store.put(bench.bucket, keys.user_wheel(name), body)
        install_user_wheel(bench.store, bench.bucket, name, tmp_path)

    altered = wheel.read_bytes() + b"x"
    with pytest.raises(ConfigurationError, match="there is no s3://"):
        install(f"{'0' * 64}/{wheel.name}", None)
    with pytest.raises(ConfigurationError, match=f"has SHA-256 {hashlib.sha256(altered).hexdigest()}"):
        install(hashed_name(wheel), altered)
    with pytest.raises(ConfigurationError, match=r"must be FILE\.whl or SHA256/FILE\.whl"):
        install("../../secrets.whl", None)
    with pytest.raises(ConfigurationError, match="cannot be installed on this node"):
        install("my_model-0.1.0-cp27-cp27m-win32.whl", wheel.read_bytes())
    assert not (tmp_path / "packages").exists()
