"""From launch to first step, by phase: from the lines that nodes write, as recorded, and never a zero for what was not
seen.
"""

from __future__ import annotations

import io
import json
from dataclasses import asdict, replace
from datetime import datetime, timezone
from typing import Any

import pytest
from rich.console import Console
from trainer.contracts.worker import WorkerEvent

from localcloud.launch import PHASES, LaunchPhases, launch_phases, print_launches

NODE = "i-0123456789abcdef0"
LAUNCHED = datetime(2026, 11, 30, 6, 0, 0, tzinfo=timezone.utc).timestamp()


def console_line(second: float, text: str) -> str:
    stamp = datetime.fromtimestamp(LAUNCHED + second, timezone.utc).isoformat(timespec="milliseconds")
    return f"{stamp.replace('+00:00', 'Z')} {text}"


def agent_line(second: float, event: str, **fields: Any) -> str:
    time = datetime.fromtimestamp(LAUNCHED + second, timezone.utc).isoformat().replace("+00:00", "Z")
    return json.dumps({"event": event, "instance": NODE, "level": "info", "time": time, **fields})


def event(second: float, kind: Any, **fields: Any) -> dict[str, Any]:
    return json.loads(WorkerEvent(kind=kind, time=LAUNCHED + second, **fields).to_line())


CONSOLE = [
    console_line(1.9, "Cloud-init v. 22.4.2 running 'modules:final'"),
    console_line(3.0, "bootstrap: identity from http://169.254.169.254"),
    console_line(3.1, f"bootstrap: instance {NODE} of group trainers in stack local"),
    console_line(3.1, "bootstrap: node document s3://bucket/groups/trainers/node-a1.json"),
    console_line(3.6, "bootstrap: attempt 1 of 5: Could not connect to the endpoint URL"),
    console_line(4.6, "bootstrap: schema of the node document"),
    console_line(4.7, "bootstrap: environment for release 1.0.0"),
    console_line(5.2, "bootstrap: fetch s3://bucket/releases/trainer/b2.tar"),
    console_line(6.0, "bootstrap: install trainer"),
    console_line(8.5, "bootstrap: torch of the image, from /opt/pytorch/lib/python3/site-packages"),
    console_line(8.6, "bootstrap: start the agent"),
    console_line(9.0, "bootstrap: done"),
]
AGENT = [
    "an older line of systemd's that is no JSON",
    agent_line(11.0, "selfcheck done", verdict="pass", seconds=2.0),
    agent_line(14.0, "run found", action="start", nodes=2),
    agent_line(14.1, "preparing", dataset="shapes@v1"),
    agent_line(15.1, "waiting", why="1 of 2 nodes are ready"),
    agent_line(16.5, "generation published", n=1, members=[NODE]),
    agent_line(16.6, "workers started", node_rank=0, members=2),
]
EVENTS = [
    event(20.0, "started", step=0, samples=0, world_size=2, total_steps=10),
    event(20.5, "step", step=1, loss=2.3, samples=64, seconds=0.5),
    event(20.9, "step", step=2, loss=2.2, samples=128, seconds=0.4),
]
WHOLE = LaunchPhases(
    node=NODE,
    boot=3.0,
    fetch=2.5,  # 3.0 to 4.7, and the release from 5.2 to 6.0
    install=3.1,  # 4.7 to 5.2, and 6.0 to 8.6
    selfcheck=2.4,
    wait=3.1,
    data=1.0,
    rendezvous=5.4,
    total=20.5,
)
NOTHING = LaunchPhases(NODE)


def phases(
    launched_at: float | None = LAUNCHED,
    console: list[str] = CONSOLE,
    agent: list[str] = AGENT,
    events: list[dict[str, Any]] = EVENTS,
) -> LaunchPhases:
    return launch_phases(NODE, launched_at, console, agent, events)


def test_each_phase_has_its_seconds_and_together_they_are_the_whole() -> None:
    assert phases() == WHOLE
    assert sum(asdict(WHOLE)[phase] for phase in PHASES if phase != "total") == pytest.approx(20.5)


def test_a_launch_as_a_machine_node_recorded_it() -> None:
    """Two nodes, and this is not the one with rank 0. Hashes are shortened, events of other kinds left out."""
    console = """\
2026-11-30T07:19:18.108Z Starting cloud-final.service - Execute cloud user/final scripts...
2026-11-30T07:19:18.113Z bootstrap: identity from http://169.254.169.254
2026-11-30T07:19:18.155Z bootstrap: instance i-6c7ba17af945bacc4 of group trainers in stack local
2026-11-30T07:19:18.155Z bootstrap: node document s3://gputrain-local-artifacts-123456789012/groups/trainers/node-b0.json
2026-11-30T07:19:18.727Z bootstrap: schema of the node document
2026-11-30T07:19:18.755Z bootstrap: environment for release 0.1.0
2026-11-30T07:19:18.929Z bootstrap: fetch s3://gputrain-local-artifacts-123456789012/releases/trainer/8c.tar
2026-11-30T07:19:20.119Z bootstrap: install trainer
2026-11-30T07:19:24.473Z bootstrap: torch of the image, from /opt/pytorch/lib/python3/site-packages
2026-11-30T07:19:24.492Z bootstrap: start the agent
2026-11-30T07:19:25.382Z Started trainer.service - Training agent of group trainers.
2026-11-30T07:19:25.394Z bootstrap: done""".splitlines()
    agent = """\
Started trainer.service - Training agent of group trainers.
{"verdict": "pass", "seconds": 3.027, "event": "selfcheck done", "level": "info", "time": "2026-11-30T07:19:31.262148Z"}
{"action": "start", "nodes": 2, "event": "run found", "level": "info", "time": "2026-11-30T07:19:34.555571Z"}
{"dataset": "shapes@v1", "event": "preparing", "level": "info", "time": "2026-11-30T07:19:34.555756Z"}
{"why": "1 of 2 members are ready", "event": "waiting", "level": "info", "time": "2026-11-30T07:19:35.048626Z"}
{"node_rank": 1, "event": "workers started", "level": "info", "time": "2026-11-30T07:19:36.291766Z"}
{"why": "training", "event": "waiting", "level": "info", "time": "2026-11-30T07:19:36.893763Z"}""".splitlines()
    events = [
        {"kind": "started", "time": 1796023198.1331718, "step": 0, "samples": 0, "worldSize": 2},
        {"kind": "step", "time": 1796023198.3208861, "step": 1, "loss": 1.764, "samples": 128},
    ]
    assert launch_phases("i-6c7ba17af945bacc4", 1796023154.6224184, console, agent, events) == LaunchPhases(
        node="i-6c7ba17af945bacc4",
        boot=3.491,
        fetch=1.832,
        install=4.547,
        selfcheck=6.77,
        wait=3.294,
        data=0.493,
        rendezvous=23.272,
        total=43.698,
    )


def test_a_console_that_holds_the_agents_lines_as_well_tells_the_same() -> None:
    """A node without systemd has one log for both."""
    mixed = CONSOLE + [console_line(99.0, line) for line in AGENT]
    assert phases(console=mixed, agent=mixed) == WHOLE


@pytest.mark.parametrize(
    ("given", "known"),
    [
        ({"console": [], "agent": [], "events": []}, {}),
        ({"console": CONSOLE[:1], "agent": [], "events": []}, {}),
        # Fetching and installing take turns: neither is known before both are over.
        ({"console": CONSOLE[:10], "agent": [], "events": []}, {"boot"}),
        ({"agent": [], "events": []}, {"boot", "fetch", "install"}),
        ({"agent": AGENT[:2], "events": []}, {"boot", "fetch", "install", "selfcheck"}),
        ({"agent": AGENT[:4], "events": []}, {"boot", "fetch", "install", "selfcheck", "wait"}),
        ({"agent": AGENT[:5], "events": EVENTS}, {"boot", "fetch", "install", "selfcheck", "wait", "data"}),
        ({"events": EVENTS[:1]}, {"boot", "fetch", "install", "selfcheck", "wait", "data"}),
        ({"launched_at": None}, set(PHASES) - {"boot", "total"}),
    ],
)
def test_what_was_not_come_through_is_unknown(given: dict[str, Any], known: set[str]) -> None:
    expected = replace(NOTHING, **{phase: getattr(WHOLE, phase) for phase in known})
    assert phases(**given) == expected


def test_a_boot_that_fails_has_no_phases_after_it() -> None:
    failed = [*CONSOLE[:4], console_line(4.0, "bootstrap: FAILED 51 BOOT_DOCUMENT_MISSING: does not exist")]
    assert phases(console=failed, agent=[], events=[]) == replace(NOTHING, boot=3.0)


def test_a_reboot_and_a_later_generation_change_nothing_of_the_launch() -> None:
    later = 500.0
    agent = [
        *AGENT,
        agent_line(later, "selfcheck done", verdict="pass", seconds=2.0),
        agent_line(later + 1, "preparing", dataset="shapes@v1"),
        agent_line(later + 2, "workers started", node_rank=0, members=2),
    ]
    console = [*CONSOLE, console_line(later - 5, "bootstrap: start the agent")]
    assert phases(console=console, agent=agent, events=[*EVENTS, event(later + 5, "step", step=3)]) == WHOLE


def test_steps_of_others_before_this_node_took_part_are_not_its_first() -> None:
    """Rank 0's events go back to the run's start, this node may have come later."""
    earlier = [event(2.0, "step", step=n) for n in (1, 2)]
    assert phases(events=[*earlier, *EVENTS]) == WHOLE


def test_a_wait_before_the_data_was_asked_for_does_not_make_the_node_ready() -> None:
    agent = [*AGENT[:3], agent_line(14.05, "waiting", why="an earlier run of this node"), *AGENT[3:]]
    assert phases(agent=agent) == WHOLE


def test_a_release_that_is_there_already_is_installed_in_no_time_but_some() -> None:
    kept = [
        line for line in CONSOLE if not any(w in line for w in ("environment", "fetch", "install", "torch"))
    ]
    kept.insert(6, console_line(4.7, "bootstrap: release 1.0.0 is installed already"))
    assert phases(console=kept).install == pytest.approx(3.9) and phases(console=kept).fetch == 1.7


def test_the_table_shows_every_phase_and_a_dash_for_the_unknown() -> None:
    shown = io.StringIO()
    print_launches(
        [WHOLE, replace(NOTHING, node="i-2", boot=0.04)], Console(file=shown, width=140, color_system=None)
    )
    rows = [
        line.replace("│", " ").replace("┃", " ").split()
        for line in shown.getvalue().splitlines()
        if "│" in line or "┃" in line
    ]
    assert rows[0] == ["phase", NODE, "i-2"]
    assert [row[0] for row in rows[1:]] == list(PHASES)
    assert [row[1] for row in rows[1:]] == ["3.0", "2.5", "3.1", "2.4", "3.1", "1.0", "5.4", "20.5"]
    assert [row[2] for row in rows[1:]] == ["0.0", *["-"] * 7]
