"""Models: the built-in one, the user's own from a wheel, and every way in which one can be wrong."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn
from trainer.contracts import keys
from trainer.contracts.run import TrainingConfig
from trainer.data.dataset import DatasetInfo
from trainer.errors import ConfigurationError
from trainer.models.load import build_model, loss_function
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
        ("resnet", {}, r"not built in \(there is: tiny-vision\)"),
        ("tiny-vision", {"width": 12}, "width must be a multiple of 8, not 12"),
        ("tiny-vision", {"depth": 3}, "unexpected keyword argument 'depth'"),
        ("no_such_module:build", {}, "cannot import no_such_module.*the run names no userWheel"),
        ("users_module:absent", {}, 'users_module has no callable "absent"'),
        ("users_module:wrong_type", {}, "returned str, not a torch.nn.Module"),
        ("users_module:wrong_classes", {}, r"returns \[2, 5\] for a batch of 2; logits of \[2, 6\]"),
        ("users_module:wrong_input", {}, r"fails on images of \[2, 3, 24, 24\]: RuntimeError"),
        ("users_module:not_finite", {}, "its first loss is nan; a finite scalar is needed"),
    ],
)
def test_a_model_that_does_not_fit_is_told_before_the_first_step(
    user_module: Any, model: str, arguments: dict[str, Any], told: str
) -> None:
    class NotFinite(nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return images.flatten(1)[:, :6] * float("nan")

    user_module.wrong_type = lambda _dataset: "model"
    user_module.wrong_classes = lambda _dataset: nn.Sequential(nn.Flatten(), nn.Linear(3 * 24 * 24, 5))
    user_module.wrong_input = lambda _dataset: nn.Linear(7, 6)
    user_module.not_finite = lambda _dataset: NotFinite()
    with pytest.raises(ConfigurationError, match=told) as raised:
        build_model(config(model, **arguments), INFO)
    assert "\n" not in str(raised.value)


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
