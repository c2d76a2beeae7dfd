"""Several runs on one machine: each has GPUs and a folder of its own, and is refused another one's."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from trainer.devices.nvml import Nvml
from trainer.devices.reading import GpuReading, MigInstance
from trainer.devices.selection import choose
from trainer.errors import ConfigurationError

from tests.trainer.nvml_fake import FakeNvml, h100
from trainer import exclusive

GPUS = Nvml(FakeNvml(h100(4))).readings()
UUIDS = [gpu.uuid for gpu in GPUS]
PARTS = [replace(GPUS[0], mig=(MigInstance("MIG-a1"), MigInstance("MIG-b2"))), *GPUS[1:]]


def chosen(names: str | None, processes: int | None = None, **environment: str) -> list[str] | None:
    return choose(names, processes, GPUS, environment)


def test_gpus_are_named_by_nvmls_numbers_or_by_uuid_and_always_become_uuids() -> None:
    assert chosen("2,0") == [UUIDS[2], UUIDS[0]]
    assert chosen(f"{UUIDS[3]}, {UUIDS[1]}") == [UUIDS[3], UUIDS[1]]
    assert choose("MIG-b", None, PARTS, {}) == ["MIG-b2"]


def test_a_run_that_names_none_gets_the_first_ones_that_cuda_would_show_it() -> None:
    assert chosen(None) == UUIDS[:1]
    assert chosen(None, 2) == UUIDS[:2]
    assert chosen(None, 2, CUDA_VISIBLE_DEVICES=f"{UUIDS[3]},{UUIDS[1]}") == [UUIDS[3], UUIDS[1]]
    assert chosen(None, CUDA_VISIBLE_DEVICES="") == []
    mixed: list[GpuReading] = [GPUS[0], replace(GPUS[1], name="NVIDIA L4")]
    assert choose(None, None, mixed, {}) is None  # CUDA's order, by speed, is not known
    assert choose(None, None, mixed, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}) == UUIDS[:1]


@pytest.mark.parametrize(
    ("names", "processes", "environment", "told"),
    [
        ("0,4", None, {}, "there is no GPU 4; there is 0, 1, 2, 3"),
        ("1,1", None, {}, "twice"),
        (f"1,{UUIDS[1]}", None, {}, "twice"),
        ("a", None, {}, "a is no GPU here; numbers"),
        ("", None, {}, "an empty name"),
        ("GPU-", None, {}, "beginning of several"),
        ("0,1", 3, {}, "--devices 0,1 with 3 processes: each takes one"),
        (None, 5, {}, "--processes 5: 4 GPUs can be seen here"),
        ("0", None, {"CUDA_VISIBLE_DEVICES": UUIDS[2]}, f"which leaves {UUIDS[2]}"),
    ],
)
def test_a_choice_that_cannot_be_is_one_line(
    names: str | None, processes: int | None, environment: Mapping[str, str], told: str
) -> None:
    with pytest.raises(ConfigurationError, match=told):
        choose(names, processes, GPUS, environment)


def test_a_gpu_in_parts_is_named_by_one_of_them() -> None:
    with pytest.raises(ConfigurationError, match=r"GPU 0 is divided .* MIG-a1, MIG-b2"):
        choose("0", None, PARTS, {})
    with pytest.raises(ConfigurationError, match="one MIG part alone"):
        choose("MIG-a1,MIG-b2", None, PARTS, {})


def test_a_link_in_the_folder_of_all_users_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (mine := tmp_path / "mine").mkdir(mode=0o700)
    (key := mine / "key").write_text("secret")
    monkeypatch.setattr(exclusive, "GPU_LOCKS", tmp_path / "locks")
    (tmp_path / "locks").symlink_to(mine)
    with pytest.raises(ConfigurationError, match="is a link"), exclusive.hold("r", None, ["GPU-0"]):
        pass
    (tmp_path / "locks").unlink()
    (tmp_path / "locks").mkdir()
    (tmp_path / "locks" / "GPU-0").symlink_to(key)
    with (
        pytest.raises(ConfigurationError, match="GPU-0 cannot be opened"),
        exclusive.hold("r", None, ["GPU-0"]),
    ):
        pass
    assert (mine.stat().st_mode & 0o777, key.read_text()) == (0o700, "secret")


def test_a_run_folder_is_held_by_a_file_that_nfs_can_lock_and_a_system_without_locks_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with exclusive.hold("r", tmp_path, []) as (lock,):
        assert stat.S_ISREG(os.fstat(lock).st_mode)
        assert fcntl.fcntl(lock, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDWR

    def refuse(*_arguments: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(exclusive.fcntl, "flock", refuse)
    with (
        pytest.raises(ConfigurationError, match=r"No locks available.*--run-dir"),
        exclusive.hold("r", tmp_path, []),
    ):
        pass


HOLDER = """
import subprocess, sys
from pathlib import Path
from trainer import exclusive
exclusive.GPU_LOCKS = Path("locks")
with exclusive.hold("first", Path("here").absolute(), ["GPU-0", "GPU-1"]) as locks:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=locks)
    print(child.pid, flush=True)
    input()
"""


def test_a_killed_run_frees_its_gpus_and_folder_once_the_last_of_its_processes_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exclusive, "GPU_LOCKS", tmp_path / "locks")

    def hold(folder: str, *gpus: str) -> None:
        with exclusive.hold("second", tmp_path / folder, gpus):
            pass

    environment = {**os.environ, "PYTHONPATH": str(Path(exclusive.__file__).parents[1])}
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as first:
        assert first.stdout is not None
        child = int(first.stdout.readline())
        try:
            hold("there", "GPU-2")
            owner = rf"GPU GPU-1 is taken by run first \(process {first.pid}, in {re.escape(str(tmp_path))}/here\)"
            with pytest.raises(ConfigurationError, match=owner):
                hold("there", "GPU-2", "GPU-1")
            hold("there", "GPU-2")  # what was refused holds nothing
            with pytest.raises(ConfigurationError, match=r"under way in .*here"):
                hold("here")
            first.kill()
            first.wait()
            with pytest.raises(ConfigurationError, match="taken by run first"):
                hold("there", "GPU-1")
        finally:
            os.kill(child, signal.SIGKILL)
    for _ in range(200):  # the kernel takes a moment to end it
        try:
            return hold("here", "GPU-1", "GPU-0")
        except ConfigurationError:
            time.sleep(0.05)
    pytest.fail("its locks outlived the last process")
