"""Which tools are taken from the machine, and what is said or done when they are missing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from localcloud.toolchain import golang, paths, system
from localcloud.toolchain.places import ROOT, cache
from localcloud.toolchain.running import Failed, Work


def put(folder: Path, name: str, script: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def bin_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder with tools, beside the system's shell."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sh", "cat", "env", "chmod"):
        (folder / name).symlink_to(shutil.which(name) or name)
    monkeypatch.setenv("PATH", str(folder))
    return folder


class TestPulumi:
    def test_a_new_one_on_path_is_taken(self, bin_folder: Path):
        put(bin_folder, "pulumi", "echo v3.250.0")
        assert paths().pulumi == bin_folder / "pulumi"

    @pytest.mark.parametrize("answer", ["echo v3.249.9", "echo v2.999.0", "exit 1", "echo nonsense"])
    def test_an_old_or_broken_one_is_not(self, bin_folder: Path, answer: str):
        put(bin_folder, "pulumi", answer)
        assert paths().pulumi == golang.tool_path("pulumi")
        assert paths().pulumi.is_relative_to(cache())

    def test_its_own_language_host_is_used_where_it_has_one(self, bin_folder: Path, tmp_path: Path):
        installed = put(tmp_path / "installed", "pulumi", "echo v3.300.0")
        host = put(tmp_path / "installed", "pulumi-language-python", "exit 0")
        (bin_folder / "pulumi").symlink_to(installed)
        assert paths().language_host == host

    def test_a_built_one_has_none(self, bin_folder: Path):
        assert paths().language_host is None
        put(bin_folder, "pulumi", "echo v3.300.0")
        assert paths().language_host is None


class TestGo:
    def test_a_new_one_on_path_is_taken(self, bin_folder: Path):
        put(bin_folder, "go", "echo go1.99.0")
        assert paths().go == bin_folder / "go"

    def test_an_old_one_is_not(self, bin_folder: Path):
        put(bin_folder, "go", "echo go1.19.8")
        assert paths().go.is_relative_to(cache())


def test_paths_are_the_same_inside_an_environment_of_ours():
    question = "from localcloud.toolchain import paths; print(paths())"
    answers = {
        subprocess.run(
            [python, "-c", question],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for python in (sys.executable, str(paths().python_program), str(paths().python_image))
    }
    assert answers == {f"{paths()}\n"}


def test_an_old_python_is_told_so_in_one_line():
    program = "import sys; sys.version_info = (3, 9, 1); import localcloud.toolchain"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("setup: Python 3.10 or newer is needed, this is 3.9")
    assert done.stderr.count("\n") == 1


class TestSystemPackages:
    @pytest.fixture(autouse=True)
    def root(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr(os, "geteuid", lambda: 0)
        monkeypatch.setattr(system, "START_POLICY", tmp_path / "policy-rc.d")
        monkeypatch.setenv("GPU_TRAINING_CACHE", str(tmp_path / "cache"))
        monkeypatch.delenv("SETUP_SYSTEM", raising=False)

    def apt(self, bin_folder: Path, then: str) -> None:
        """An apt-get that notes its calls and whether services could start, and installs by `then`."""
        services = f"if [ -x {system.START_POLICY} ]; then s=off; else s=on; fi"
        note = f"{services}; echo $1 services $s >> {bin_folder}/calls"
        put(bin_folder, "apt-get", f"{note}\nif [ $1 = install ]; then {then}; fi")

    def install_all(self, bin_folder: Path) -> str:
        made = " ".join(f"{bin_folder}/{command}" for command in system.PACKAGES.values())
        return f"for f in {made}; do echo '#!/bin/sh' > $f; chmod +x $f; done"

    def test_without_being_asked_only_the_command_is_shown(
        self, bin_folder: Path, capfd: pytest.CaptureFixture[str]
    ):
        self.apt(bin_folder, "exit 1")
        system.provide_packages(Work())
        assert f"sudo apt-get install {' '.join(system.PACKAGES)}\n" in capfd.readouterr().err
        assert not (bin_folder / "calls").exists()

    def test_when_asked_they_are_installed_and_no_service_can_start(
        self, bin_folder: Path, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setenv("SETUP_SYSTEM", "1")
        self.apt(bin_folder, self.install_all(bin_folder))
        system.provide_packages(Work())
        assert (bin_folder / "calls").read_text().splitlines() == [
            "update services off",
            "install services off",
        ]
        assert not system.START_POLICY.exists()
        assert system.missing() == []

    def test_a_policy_of_the_machine_s_owner_stays(self, bin_folder: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setenv("SETUP_SYSTEM", "1")
        system.START_POLICY.write_text("theirs")
        self.apt(bin_folder, self.install_all(bin_folder))
        system.provide_packages(Work())
        assert system.START_POLICY.read_text() == "theirs"

    def test_a_failed_installation_is_a_fault_and_leaves_no_policy(
        self, bin_folder: Path, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setenv("SETUP_SYSTEM", "1")
        self.apt(bin_folder, "echo no such package; exit 100")
        with pytest.raises(Failed, match="no such package"):
            system.provide_packages(Work())
        assert not system.START_POLICY.exists()

    def test_without_root_and_sudo_it_is_a_fault(self, bin_folder: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setenv("SETUP_SYSTEM", "1")
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        with pytest.raises(Failed, match="needs root"):
            system.provide_packages(Work())


def test_a_second_call_makes_nothing_and_tells_where_the_tools_are():
    command = [
        sys.executable,
        "-m",
        "localcloud.toolchain",
        "ensure",
        "preview",
        "workbench",
        "mock",
        "--json",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    told = json.loads(done.stdout)
    assert told == json.loads(json.dumps(asdict(paths()), default=str))
    for name in (
        "pulumi",
        "language_exec",
        "metadata_mock",
        "python_program",
        "python_workbench",
        "python_image",
    ):
        assert Path(told[name]).exists(), name
    assert (Path(told["image_dir"]) / "lib" / "python3" / "site-packages" / "torch").is_dir()
