"""The pure parts of machine nodes: console lines, addresses, names of what the kernel keeps."""

from __future__ import annotations

from pathlib import Path

import pytest

from localcloud.nodes import cgroups
from localcloud.nodes.console import Console
from localcloud.nodes.machine import clean
from localcloud.nodes.network import endpoint_address, interface_of, resolver, router


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (b"[12705.123456] cloud-init[123]: bootstrap: fetch s3://b/k\n", "bootstrap: fetch s3://b/k"),
        (b'[    1.5] trainer[200]: {"event": "selfcheck done"}\r\n', '{"event": "selfcheck done"}'),
        (b"[    1.5] systemd[1]: Started trainer.service\n", "Started trainer.service"),
        (b"Debian GNU/Linux 12 host console\n", "Debian GNU/Linux 12 host console"),
        (b"error: no name and number before it: kept\n", "error: no name and number before it: kept"),
    ],
)  # fmt: skip
def test_a_console_line_is_what_the_program_said(line: bytes, text: str) -> None:
    assert clean(line) == text


def test_addresses_are_those_that_aws_keeps_in_a_network() -> None:
    assert router("10.40.16.0/20") == "10.40.16.1"
    assert resolver("10.40.0.0/16") == "10.40.0.2"
    assert endpoint_address("10.40.0.0/16") == "10.40.0.3"


def test_a_cable_s_name_fits_the_kernel_s_limit_and_differs_by_node() -> None:
    names = {interface_of(f"i-{number:017x}") for number in range(100)}
    assert len(names) == 100 and all(len(name) <= 15 for name in names)


def test_two_state_folders_have_control_groups_of_their_own(tmp_path: Path) -> None:
    assert cgroups.name_of(tmp_path / "a") != cgroups.name_of(tmp_path / "b")
    assert cgroups.name_of(tmp_path / "a") == cgroups.name_of(tmp_path / "b" / ".." / "a")


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ('{"code": 75, "name": "STOPPED_SAVED", "event": "leaving"}', 75),
        ('{"event": "agent ended", "code": 2, "name": "CONFIGURATION"}', 2),
        ("trainer.service: Main process exited, code=exited, status=70/n/a", 70),
        ('{"code": 32, "event": "workers ended"}', None),
    ],
)
def test_how_the_agent_ended_is_read_from_the_console(tmp_path: Path, line: str, code: int | None) -> None:
    console = Console(tmp_path / "console.log")
    console.path.write_text(f"2026-11-30T07:00:00.000Z {line}\n")
    console.read()
    assert console.agent_exit == code


def test_a_boot_after_the_first_one_is_known_by_its_unit(tmp_path: Path) -> None:
    console = Console(tmp_path / "console.log")
    console.path.write_text("2026-11-30T07:00:00.000Z Started trainer.service - Training agent of group g.\n")
    console.read()
    assert console.agent_started
