"""torch as a second tar: of the lock file's pins, equal bytes each time, carried from release to release."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from localcloud import release, releases_kept, torch_release, wheels
from localcloud.toolchain import places

LOCK = (
    "tiny==1.0 ; platform_machine == 'x86_64' \\\n    --hash=sha256:aa\nsmall==2.0 \\\n    --hash=sha256:bb\n"
)
FETCHED: list[str] = []  # by the index of the bench, which empties it
NEWER = LOCK.replace("small==2.0", "small==2.1")


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A release in dist/, a lock file of two small wheels, and an index that has them."""
    dist = tmp_path / "dist"
    dist.mkdir()
    (dist / "trainer-1.tar").write_text("1")
    tar = {"file": "trainer-1.tar", "sha256": "1", "bytes": 1}
    row = {"version": "1-a", "artifacts": {"cp312": tar}, "inputsSha256": "1"}
    (dist / "release.json").write_text(json.dumps(row))
    (tmp_path / "torch.txt").write_text(LOCK)
    FETCHED.clear()

    def pip(target: wheels.Target, requirements: Path, folder: Path, limit_seconds: float) -> None:
        name, version = requirements.read_text().split(" ")[0].split("==")
        FETCHED.append(f"{name} {version} {target.machine}")
        (folder / f"{name}-{version}-py3-none-any.whl").write_text(f"{name} {version}")

    monkeypatch.setattr(torch_release, "pip_download", pip)
    monkeypatch.setattr(torch_release, "NEEDED_GIB", 0.0)
    return tmp_path


def add(bench: Path, abi: str = "cp312") -> dict[str, Any]:
    return torch_release.add(bench / "dist", abi, bench / "cache", bench / "torch.txt")


class TestTheTar:
    def test_holds_the_wheels_of_the_lock_each_pinned_as_a_node_installs_them(self, bench: Path) -> None:
        tar = add(bench)["torchArtifacts"]["cp312"]
        with tarfile.open(bench / "dist" / tar["file"]) as archive:
            names = archive.getnames()
            held = archive.extractfile("requirements.txt")
            assert held is not None
            pins = held.read().decode().splitlines()
        assert names == [
            "requirements.txt",
            "wheels/small-2.0-py3-none-any.whl",
            "wheels/tiny-1.0-py3-none-any.whl",
        ]
        assert [pin.split(" --hash=sha256:")[0] for pin in pins] == ["small==2.0", "tiny==1.0"]

    def test_has_equal_bytes_wherever_it_is_built(self, bench: Path) -> None:
        first = add(bench)
        (bench / "dist" / first["torchArtifacts"]["cp312"]["file"]).unlink()
        (bench / "dist" / "release.json").write_text(
            json.dumps({k: v for k, v in first.items() if k != "torchArtifacts"})
        )
        assert add(bench) == first

    def test_is_not_fetched_twice_and_its_wheels_go(self, bench: Path) -> None:
        add(bench)
        assert add(bench) and len(FETCHED) == 2
        assert not list((bench / "cache").rglob("*.whl"))

    def test_of_another_architecture_has_that_ones_wheels(self, bench: Path) -> None:
        add(bench, "cp312-arm64")
        assert FETCHED == ["small 2.0 aarch64"]

    def test_goes_on_where_an_interrupted_call_stopped(
        self, bench: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pip, calls = torch_release.pip_download, 0

        def interrupted(*arguments: Any) -> None:
            nonlocal calls
            calls += 1
            if calls == 2:
                raise KeyboardInterrupt
            pip(*arguments)

        with monkeypatch.context() as patch:
            patch.setattr(torch_release, "pip_download", interrupted)
            with pytest.raises(KeyboardInterrupt):
                add(bench)
        add(bench)
        assert sorted(FETCHED) == ["small 2.0 x86_64", "tiny 1.0 x86_64"]

    def test_new_pins_are_a_new_tar_and_the_old_one_goes(self, bench: Path) -> None:
        old = add(bench)["torchArtifacts"]["cp312"]["file"]
        (bench / "torch.txt").write_text(NEWER)
        new = add(bench)["torchArtifacts"]["cp312"]["file"]
        assert {path.name for path in (bench / "dist").glob("torch-*")} == {new} != {old}


class TestFromReleaseToRelease:
    def test_a_new_release_has_the_tar_as_long_as_the_pins_are_the_same(self, bench: Path) -> None:
        rows = [add(bench)]
        new = {"version": "2-b", "artifacts": rows[0]["artifacts"]}
        assert (
            torch_release.carried(new, rows, bench / "torch.txt")["torchArtifacts"]
            == rows[0]["torchArtifacts"]
        )
        (bench / "torch.txt").write_text(NEWER)
        assert "torchArtifacts" not in torch_release.carried(new, rows, bench / "torch.txt")

    def test_the_old_tar_stays_while_a_kept_release_names_it(self, bench: Path) -> None:
        rows = [add(bench)]
        new = {"version": "2-b", "artifacts": rows[0]["artifacts"]}
        releases_kept.write(bench / "dist" / "release.json", new, rows)
        assert len(list((bench / "dist").glob("torch-*.tar"))) == 1


@pytest.mark.parametrize(
    ("break_", "words"),
    [
        (
            lambda bench: (bench / "dist" / "release.json").unlink(),
            "release.json is missing: run 'make release'",
        ),
        (lambda bench: (bench / "torch.txt").write_text("bare==1\n"), "bare has no hash in the lock file"),
    ],
)
def test_what_is_missing_is_said(bench: Path, break_: Any, words: str) -> None:
    break_(bench)
    with pytest.raises(wheels.ReleaseError, match=words):
        add(bench)


@pytest.mark.parametrize("name", ["py3", "cp312-riscv", "cp3", "cp312-x86_64"])
def test_what_is_no_interpreter(bench: Path, name: str) -> None:
    with pytest.raises(wheels.ReleaseError, match="write one such as cp312 or cp312-arm64"):
        add(bench, name)


def test_too_little_disk_is_said_before_anything_is_fetched(
    bench: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_release, "NEEDED_GIB", 1e9)
    with pytest.raises(wheels.ReleaseError, match="torch needs 1000000000 GiB on the disk"):
        add(bench)
    assert FETCHED == []


def test_the_lock_has_torch_and_its_libraries_for_both_architectures() -> None:
    lock = (places.REQUIREMENTS / "torch.txt").read_text()
    for target in ("cp312", "cp312-arm64"):
        names = {pin.split("==")[0] for pin in release.pins_for(lock, target)}
        assert {"torch", "numpy", "triton", "nvidia-nccl-cu13", "nvidia-cublas"} <= names
        assert "awscli" not in names
