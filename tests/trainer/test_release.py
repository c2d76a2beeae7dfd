"""The release: equal bytes from equal inputs, installable without any index, rebuilt when something changed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from localcloud import packing, release
from localcloud.toolchain import places

SOURCE = places.ROOT / "trainer"
LOCK = places.REQUIREMENTS / "trainer.txt"
ABI = release.host_abi()


@pytest.fixture(scope="module")
def cache() -> Path:
    return places.cache()  # the wheels that `make release` has fetched already


@pytest.fixture
def source(tmp_path: Path) -> Path:
    copy = tmp_path / "trainer"
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


def test_two_builds_have_equal_bytes_and_a_second_call_does_nothing(
    source: Path, tmp_path: Path, cache: Path
) -> None:
    first = release.build(source, LOCK, tmp_path / "one", [ABI], cache)
    (source / "src" / "trainer" / "cli.py").touch()  # times do not count
    second = release.build(source, LOCK, tmp_path / "two", [ABI], cache)
    assert first == second
    name = first["artifacts"][ABI]["file"]
    assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    assert first["artifacts"]["host"] == first["artifacts"][ABI]
    assert name == f"trainer-{first['version']}-{ABI}-{first['artifacts'][ABI]['sha256'][:12]}.tar"
    manifest, tar = tmp_path / "one" / "release.json", tmp_path / "one" / name
    before = manifest.stat().st_mtime_ns, tar.stat().st_mtime_ns
    release.build(source, LOCK, tmp_path / "one", [ABI], cache)
    assert (manifest.stat().st_mtime_ns, tar.stat().st_mtime_ns) == before


def test_changed_source_is_another_release_and_the_old_one_is_kept(
    source: Path, tmp_path: Path, cache: Path
) -> None:
    out = tmp_path / "out"
    before = release.build(source, LOCK, out, [ABI], cache)
    with open(source / "src" / "trainer" / "cli.py", "a") as file:
        file.write("# changed\n")
    after = release.build(source, LOCK, out, [ABI], cache)
    assert after["artifacts"][ABI]["sha256"] != before["artifacts"][ABI]["sha256"]
    assert after["version"] != before["version"] and after["kept"] == [before]
    assert {path.name for path in out.glob("*.tar")} == {
        manifest["artifacts"][ABI]["file"] for manifest in (before, after)
    }
    assert json.loads((out / "release.json").read_text()) == after


def test_a_damaged_tar_is_built_again(source: Path, tmp_path: Path, cache: Path) -> None:
    out = tmp_path / "out"
    made = release.build(source, LOCK, out, [ABI], cache)["artifacts"][ABI]
    (out / made["file"]).write_bytes(b"short")
    assert release.build(source, LOCK, out, [ABI], cache)["artifacts"][ABI] == made
    assert (out / made["file"]).stat().st_size == made["bytes"]


def test_a_node_installs_it_without_any_index_and_every_byte_is_pinned(
    source: Path, tmp_path: Path, cache: Path
) -> None:
    made = release.build(source, LOCK, tmp_path / "out", [ABI], cache)["artifacts"][ABI]
    with tarfile.open(tmp_path / "out" / made["file"]) as archive:
        assert {(entry.mtime, entry.uid, entry.mode) for entry in archive.getmembers()} == {(0, 0, 0o644)}
    node, venv = tmp_path / "node", tmp_path / "venv"
    node.mkdir()
    subprocess.run(
        ["tar", "-xf", str(tmp_path / "out" / made["file"]), "-C", str(node)], check=True, timeout=60
    )
    pins = (node / "requirements.txt").read_text().splitlines()
    assert all(" --hash=sha256:" in pin for pin in pins) and pins[0].startswith("annotated-types==")
    assert len(pins) == len(list((node / "wheels").iterdir()))
    assert not any(pin.startswith("torch") for pin in pins)  # that is the image's
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True, timeout=120)
    install = [sys.executable, "-m", "pip", "--python", str(venv / "bin" / "python"), "install", "--quiet"]
    install += ["--no-index", "--require-hashes", "--no-compile", "--find-links", str(node / "wheels")]
    subprocess.run([*install, "-r", str(node / "requirements.txt")], check=True, timeout=120)
    done = subprocess.run(
        [str(venv / "bin" / "trainer"), "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == f"trainer {release.project_table(SOURCE / 'pyproject.toml')['version']}"


def test_the_wheel_holds_the_package_with_its_data_and_says_what_it_needs(
    source: Path, tmp_path: Path
) -> None:
    project = release.project_table(source / "pyproject.toml")
    target = tmp_path / packing.wheel_name(project)
    target.write_bytes(packing.wheel_bytes(project, release.package_files(source / "src")))
    with zipfile.ZipFile(target) as wheel:
        names = set(wheel.namelist())
        assert wheel.testzip() is None
        metadata = wheel.read("gpu_trainer-0.1.0.dist-info/METADATA").decode()
    assert {"trainer/__init__.py", "trainer/devices/gpu_floors.json", "trainer/contracts/run.py"} <= names
    assert "Requires-Dist: boto3>=1.40" in metadata and "torch>=2.6; extra == 'torch'" in metadata
    assert not [name for name in names if "__pycache__" in name or "tests" in name]


def test_the_version_is_told_once() -> None:
    text = (SOURCE / "src" / "trainer" / "__init__.py").read_text()
    assert f'__version__ = "{release.project_table(SOURCE / "pyproject.toml")["version"]}"' in text


def test_pins_are_those_of_the_nodes_interpreter_not_of_this_one() -> None:
    lock = (
        "here==1 ; python_full_version < '3.11' \\\n    --hash=sha256:aa\n    # via x\n"
        "there==2 ; python_full_version >= '3.11' \\\n    --hash=sha256:bb \\\n    --hash=sha256:cc\n"
        "windows==3 ; sys_platform == 'win32' \\\n    --hash=sha256:dd\n"
        "always==4 \\\n    --hash=sha256:ee\n"
    )
    assert release.pins_for(lock, "cp310") == ["here==1 --hash=sha256:aa", "always==4 --hash=sha256:ee"]
    assert release.pins_for(lock, "cp312") == [
        "there==2 --hash=sha256:bb --hash=sha256:cc",
        "always==4 --hash=sha256:ee",
    ]
    with pytest.raises(release.ReleaseError, match="no hash"):
        release.pins_for("bare==1\n", "cp312")


def test_every_image_profile_of_the_catalog_gets_its_artifact() -> None:
    assert {"cp312", ABI} <= set(release.wanted_abis()) and "host" not in release.wanted_abis()


def test_what_cannot_be_fetched_is_one_line_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    pins = [f"no-such-package-of-this-project==1 --hash=sha256:{'0' * 64}"]
    with pytest.raises(release.ReleaseError, match=r"wheels for cp312 could not be fetched: \S"):
        release.download(pins, "cp312", tmp_path)
    assert not list((tmp_path / "wheels").iterdir())
    with pytest.raises(release.ReleaseError, match="make lock"):
        release.build(SOURCE, tmp_path / "missing.txt", tmp_path / "out", ["cp312"], tmp_path)
