"""The node driver's decisions, as a table: what AWS shows, how the node is, what is done."""

from __future__ import annotations

from typing import Any

import pytest
from trainer.exit_codes import NEVER_REPLACE, Exit

from localcloud.nodes.driver import Do, Instance, Node, Phase, decide, exit_name


def instance(state: str = "InService", ec2: str = "running") -> Instance:
    return Instance("i-1", "group", state, ec2)


def node(phase: Phase, **changes: Any) -> Node:
    return Node("i-1", phase, **changes)


def done(found: Instance | None, known: Node | None, now: float = 0.0) -> Do | None:
    actions = decide([found] if found else [], [known] if known else [], now)
    assert len(actions) <= 1
    return actions[0].do if actions else None


@pytest.mark.parametrize("state", ["Pending", "Pending:Wait", "InService"])
def test_capacity_boots_a_node(state: str) -> None:
    assert done(instance(state), None) is Do.BOOT


@pytest.mark.parametrize(
    "found", [instance("Terminating:Wait"), instance("Detached"), instance(ec2="terminated"), None]
)
def test_what_leaves_is_not_booted(found: Instance | None) -> None:
    assert done(found, None) is None


@pytest.mark.parametrize("phase", [Phase.BOOTING, Phase.RUNNING])
def test_a_live_node_of_a_live_instance_is_left_alone(phase: Phase) -> None:
    assert done(instance(), node(phase)) is None


@pytest.mark.parametrize(
    ("phase", "do"),
    [
        (Phase.BOOTING, Do.STOP),
        (Phase.RUNNING, Do.STOP),
        (Phase.STOPPING, None),
        (Phase.EXITED, Do.CLEAR),
        (Phase.KILLED, Do.CLEAR),
        (Phase.STOPPED, Do.CLEAR),
        (Phase.GONE, None),
    ],
)
@pytest.mark.parametrize("found", [None, instance(ec2="terminated"), instance(ec2="shutting-down")])
def test_a_terminated_instance_ends_its_node(found: Instance | None, phase: Phase, do: Do | None) -> None:
    assert done(found, node(phase)) is do


@pytest.mark.parametrize(
    "found", [instance(ec2="stopped"), instance(ec2="stopping"), instance("Warmed:Stopped")]
)
@pytest.mark.parametrize(
    ("phase", "do"),
    [(Phase.RUNNING, Do.POWER_OFF), (Phase.STOPPING, None), (Phase.STOPPED, None), (Phase.GONE, None)],
)
def test_a_stopped_instance_is_powered_off_and_kept(found: Instance, phase: Phase, do: Do | None) -> None:
    assert done(found, node(phase)) is do


@pytest.mark.parametrize("state", ["Warmed:Pending:Wait", "Warmed:Running", "Pending:Wait", "InService"])
def test_a_started_instance_is_powered_on(state: str) -> None:
    assert done(instance(state), node(Phase.STOPPED)) is Do.POWER_ON


@pytest.mark.parametrize("state", ["Warmed:Pending", "Warmed:Pending:Wait", "Warmed:Running"])
def test_a_node_is_warmed_by_booting_it(state: str) -> None:
    assert done(instance(state), None) is Do.BOOT


def test_nothing_boots_an_instance_that_ec2_holds_stopped() -> None:
    assert done(instance("Warmed:Stopped", ec2="stopped"), None) is None


def test_every_call_to_reboot_is_obeyed_once() -> None:
    twice = Instance("i-1", "group", "InService", reboots=2)
    assert done(twice, node(Phase.RUNNING, reboots_obeyed=1)) is Do.REBOOT
    assert done(twice, node(Phase.RUNNING, reboots_obeyed=2)) is None


@pytest.mark.parametrize("code", list(Exit))
def test_every_exit_code_has_its_reaction_in_service(code: Exit) -> None:
    expected = {
        Exit.DEVICE: Do.REPORT_UNHEALTHY,
        Exit.RESET: Do.REPORT_UNHEALTHY,
        Exit.PERFORMANCE: Do.REPORT_UNHEALTHY,
        Exit.REBOOT: Do.REBOOT,
        Exit.DONE: Do.RELEASE,
    }.get(code, Do.SETTLE)
    assert done(instance(), node(Phase.EXITED, exit_code=int(code))) is expected


@pytest.mark.parametrize("code", sorted(NEVER_REPLACE))
def test_faults_that_a_new_node_would_meet_again_never_replace(code: Exit) -> None:
    for state in ("Pending:Wait", "InService"):
        assert done(instance(state), node(Phase.EXITED, exit_code=int(code))) is Do.SETTLE


def test_a_boot_fault_that_could_not_abandon_its_launch_is_reported() -> None:
    failed = node(Phase.EXITED, exit_code=int(Exit.BOOT_UNREACHABLE))
    assert done(instance("Pending:Wait"), failed) is Do.REPORT_UNHEALTHY
    assert done(instance("InService"), failed) is Do.SETTLE, "onFailure: report keeps the node"


def test_a_second_request_to_reboot_replaces() -> None:
    again = node(Phase.EXITED, exit_code=int(Exit.REBOOT), reboots=1)
    assert done(instance(), again) is Do.REPORT_UNHEALTHY


def test_an_exit_is_acted_upon_once() -> None:
    assert done(instance(), node(Phase.EXITED, exit_code=int(Exit.DEVICE), settled=True)) is None
    assert done(instance(), node(Phase.KILLED, exit_code=137, settled=True)) is None


@pytest.mark.parametrize("phase", [Phase.KILLED, Phase.GONE])
def test_a_crashed_machine_is_reported(phase: Phase) -> None:
    assert done(instance(), node(phase)) is Do.REPORT_UNHEALTHY


@pytest.mark.parametrize("phase", [Phase.KILLED, Phase.GONE, Phase.EXITED])
def test_nobody_waits_for_the_terminating_hook_of_a_dead_node(phase: Phase) -> None:
    assert done(instance("Terminating:Wait"), node(phase, exit_code=75, settled=True)) is Do.TERMINATE


def test_a_node_on_its_way_out_is_told_once() -> None:
    assert done(instance("Terminating:Wait"), node(Phase.RUNNING)) is Do.ANNOUNCE_TERMINATION
    assert done(instance("Terminating:Wait"), node(Phase.RUNNING, announced=True)) is None


@pytest.mark.parametrize("phase", [Phase.RUNNING, Phase.EXITED])
def test_a_spot_notice_runs_out(phase: Phase) -> None:
    noticed = node(phase, interrupt_at=100.0, announced=True, exit_code=75, settled=True)
    assert done(instance(), noticed, now=99.9) is None
    assert done(instance(), noticed, now=100.0) is Do.TERMINATE
    assert done(instance(ec2="terminated"), noticed, now=101.0) in (Do.STOP, Do.CLEAR)


def test_nodes_are_judged_each_by_itself() -> None:
    instances = [Instance(f"i-{n}", "group", "InService") for n in range(3)]
    nodes = [Node("i-1", Phase.RUNNING), Node("i-2", Phase.KILLED)]
    assert {(a.instance_id, a.do) for a in decide(instances, nodes, 0)} == {
        ("i-0", Do.BOOT),
        ("i-2", Do.REPORT_UNHEALTHY),
    }


def test_exit_codes_have_names() -> None:
    assert exit_name(55) == "55 BOOT_RELEASE_HASH"
    assert exit_name(9) == "9"
