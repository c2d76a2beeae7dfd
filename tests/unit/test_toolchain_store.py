"""The cache's store: an entry is complete if it exists, whatever happened to whoever built it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from localcloud.toolchain.places import ROOT
from localcloud.toolchain.running import Failed, Work
from localcloud.toolchain.store import Entry, provide

LIMIT_SECONDS = 30.0

# Builds one entry slowly: says that it has begun, then waits for ever.
SLOW_BUILDER = """
import sys, time
from localcloud.toolchain.running import Work
from localcloud.toolchain.store import Entry, provide

def make(folder):
    folder.mkdir()
    (folder / "half").write_text("half of it")
    print("begun", flush=True)
    time.sleep(600)

provide(Entry("thing", ("one",)), Work(), make)
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path) -> Path:
    os.environ["GPU_TRAINING_CACHE"] = str(tmp_path / "cache")
    return tmp_path / "cache"


def whole(folder: Path) -> None:
    folder.mkdir()
    (folder / "all").write_text("all of it")


def start_slow_builder() -> subprocess.Popen[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW_BUILDER], env=env, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    return process


def test_an_entry_is_made_once(cache: Path):
    made: list[Path] = []

    def make(folder: Path) -> None:
        made.append(folder)
        whole(folder)

    entry = Entry("thing", ("one",))
    first = provide(entry, Work(), make)
    assert provide(entry, Work(), make) == first == entry.path
    assert (first / "all").read_text() == "all of it"
    assert len(made) == 1
    assert first.parent == cache


def test_every_input_and_the_kind_give_another_folder():
    entries = [
        Entry("thing", ("one",)),
        Entry("thing", ("two",)),
        Entry("other", ("one",)),
        Entry("thing", ("one", "")),
    ]
    assert len({entry.path.name for entry in entries}) == len(entries)


def test_a_failed_build_leaves_nothing_that_counts():
    entry = Entry("thing", ("one",))

    def broken(folder: Path) -> None:
        folder.mkdir()
        raise Failed("no network")

    with pytest.raises(Failed, match="no network"):
        provide(entry, Work(), broken)
    assert not entry.path.exists()
    assert (provide(entry, Work(), whole) / "all").exists()


def test_a_builder_killed_halfway_leaves_nothing_that_counts(cache: Path):
    builder = start_slow_builder()
    builder.kill()
    builder.communicate()
    entry = Entry("thing", ("one",))
    assert not entry.path.exists()
    made = provide(entry, Work(), whole)
    assert sorted(path.name for path in made.iterdir()) == ["all"]
    assert not list(cache.glob("*.partial")) and not list(cache.glob(".*.partial"))


def test_a_second_builder_waits_for_the_first(capfd: pytest.CaptureFixture[str]):
    builder = start_slow_builder()
    result: list[Path] = []
    second = threading.Thread(target=lambda: result.append(provide(Entry("thing", ("one",)), Work(), whole)))
    second.start()
    deadline = time.monotonic() + LIMIT_SECONDS
    seen = ""
    while "another run" not in seen and time.monotonic() < deadline:
        seen += capfd.readouterr().err
        time.sleep(0.05)
    assert "thing: another run is making it" in seen
    assert not result
    builder.send_signal(signal.SIGKILL)  # the kernel drops its lock
    builder.communicate()
    second.join(LIMIT_SECONDS)
    assert [path.name for path in result[0].iterdir()] == ["all"]
