"""XIDs of the kernel log: through the journal as the agent's user may, else from the device; never a false zero."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from trainer.devices.metrics import DeviceMetrics
from trainer.devices.xid import Xid, XidReader, parse_xid
from trainer.obs.exporter import NodeState

LIMIT_SECONDS = 10.0
# As `journalctl --dmesg --output=short-monotonic` prints them.
FELL_OFF = (
    "[ 5183.114072] ip-10-0-0-1 kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus."
)
DOUBLE_BIT = (
    "[ 5190.000001] ip-10-0-0-1 kernel: NVRM: Xid (PCI:0000:86:00): 48, pid='<unknown>', name=<unknown>"
)
OTHER = "[    9.871234] ip-10-0-0-1 kernel: NVRM: loading NVIDIA UNIX x86_64 Kernel Module  570.124.06"


class Journal:
    """A journalctl of its own on PATH: says how it was called, then prints what is appended to its log."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "log"
        self.log.touch()
        self.end = folder / "end"  # it ends once this exists
        program = folder / "journalctl"
        program.write_text(
            f'#!/bin/bash\necho "$*" >{folder}/called\necho $$ >{folder}/pid\n'
            f"trap 'exit 0' TERM\nexec 3<{self.log}\n"
            f"while [[ ! -e {self.end} ]]; do\n"
            "  while IFS= read -r -N 1 c <&3; do printf '%s' \"$c\"; done\n  sleep 0.02\ndone\n"
        )
        program.chmod(0o755)

    def write(self, text: str) -> None:
        with self.log.open("a") as file:
            file.write(text)

    @property
    def pid(self) -> int:
        wait(lambda: (self.folder / "pid").exists() and (self.folder / "pid").read_text().strip() != "")
        return int((self.folder / "pid").read_text())


def wait(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def read(reader: XidReader, count: int) -> list[Xid]:
    found: list[Xid] = []
    wait(lambda: found.extend(reader.new()) or len(found) >= count)
    return found


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Journal:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return Journal(folder)


@pytest.fixture
def reader(journal: Journal, tmp_path: Path) -> Iterator[XidReader]:
    kmsg = tmp_path / "kmsg"
    kmsg.write_text("6,1,2,-;NVRM: Xid (PCI:0000:ff:00): 31\n")
    found = XidReader.open(kmsg)
    assert found is not None
    yield found
    found.close()


def no_journalctl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")


def test_code_and_device_are_taken_from_the_drivers_line() -> None:
    assert parse_xid(FELL_OFF) == Xid("0000:3b:00", 79)
    assert parse_xid(OTHER) is None


def test_the_journal_is_followed_from_now_on(reader: XidReader, journal: Journal) -> None:
    assert journal.pid
    called = (journal.folder / "called").read_text().split()
    assert {"--dmesg", "--follow", "--lines=0"} <= set(called)
    assert reader.new() == [], "nothing is waited for, and the device is not read where there is a journal"
    journal.write(f"{OTHER}\n{FELL_OFF}\n{DOUBLE_BIT}\n")
    assert read(reader, 2) == [Xid("0000:3b:00", 79), Xid("0000:86:00", 48)]
    assert reader.new() == []


def test_a_line_that_comes_in_two_pieces_counts_once_and_whole(reader: XidReader, journal: Journal) -> None:
    cut = FELL_OFF.index("79") + 1
    journal.write(FELL_OFF[:cut])
    wait(lambda: reader.new() or reader._rest.decode() == FELL_OFF[:cut])
    journal.write(FELL_OFF[cut:] + "\n")
    assert read(reader, 1) == [Xid("0000:3b:00", 79)]


def test_xids_are_counted_by_code_and_none_is_no_zero(reader: XidReader, journal: Journal) -> None:
    state = NodeState()
    metrics = DeviceMetrics(state, None, reader)
    metrics.refresh()
    assert state.get("trainer_gpu_xid_total", xid="79") is None
    journal.write(f"{FELL_OFF}\n{FELL_OFF}\n")
    wait(lambda: metrics.refresh() or state.get("trainer_gpu_xid_total", xid="79") == 2)
    assert state.get("trainer_gpu_xid_total", xid="48") is None


def test_closing_it_ends_the_child(journal: Journal) -> None:
    reader = XidReader.open()
    assert reader is not None
    pid = journal.pid
    reader.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_journalctl_that_ends_is_told_once_and_nothing_is_read_any_more(
    reader: XidReader, journal: Journal, capsys: pytest.CaptureFixture[str]
) -> None:
    journal.write(f"{FELL_OFF}\n")
    assert len(read(reader, 1)) == 1
    journal.end.touch()
    assert reader.journalctl is not None
    reader.journalctl.wait(LIMIT_SECONDS)
    assert [reader.new() for _ in range(3)] == [[], [], []]
    assert capsys.readouterr().out.count("XIDs are not seen any more") == 1


def test_without_journalctl_the_device_is_read_from_now_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_journalctl(monkeypatch)
    kmsg = tmp_path / "kmsg"
    kmsg.write_text("6,1234,5678,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=1234\n")
    reader = XidReader.open(kmsg)
    assert reader is not None and reader.new() == []
    with kmsg.open("a") as file:
        file.write("6,1235,5679,-;NVRM: Xid (PCI:0000:3b:00): 48, pid=1234\n")
    assert reader.new() == [Xid("0000:3b:00", 48)]
    reader.close()


def test_a_log_that_is_not_there_is_never_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_journalctl(monkeypatch)
    kmsg = tmp_path / "kmsg"
    assert XidReader.open(kmsg) is None and not kmsg.exists()


@pytest.mark.machine
def test_the_real_journalctl_takes_the_arguments() -> None:
    reader = XidReader.open()
    assert reader is not None and reader.journalctl is not None
    time.sleep(0.3)  # wrong arguments would end it at once
    assert reader.journalctl.poll() is None
    reader.close()
