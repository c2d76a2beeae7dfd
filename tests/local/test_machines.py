"""Nodes as machines: booted by the launch template's own user data, in a network of their own, faulted and judged.

One laboratory serves the file: two machine nodes of the stack `local`, waits shortened by its time factor.
"""

from __future__ import annotations

import io
import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from localcloud import daemons
from localcloud.facts import Facts
from localcloud.faults import leavings
from localcloud.faults.catalog import FAULTS
from localcloud.faults.lab import Lab, lab_stack
from localcloud.faults.node import LiveNode
from localcloud.nodes import cgroups, control
from localcloud.processes import command_line
from localcloud.stack import LocalStack
from localcloud.story import read_launch
from localcloud.toolchain import paths

pytestmark = pytest.mark.machine
TIME_FACTOR = 0.1
SEED = 7
UNIT = "trainer.service"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    local = tmp_path_factory.mktemp("machines") / ".local"
    local.mkdir()
    before = leavings.host_traces(local)
    stack = lab_stack(LocalStack(paths(), local), "machine", TIME_FACTOR)
    with stack.alone(), Lab(stack, Console(file=io.StringIO()), SEED, TIME_FACTOR) as lab:
        yield lab
    assert daemons.find_leavings(local) == []
    assert leavings.host_traces(local) <= before, "namespaces, links and mounts end with the driver"


@pytest.fixture
def nodes(lab: Lab) -> list[LiveNode]:
    found = [LiveNode(lab.stack.local, id_) for group in lab.stack.groups() for id_ in group.in_service]
    assert len(found) >= 2, "some faults are about three nodes"
    return found


@pytest.fixture
def facts(lab: Lab) -> Facts:
    return lab.stack.facts()


def on_node(node: LiveNode, *command: str) -> str:
    """A command of the node itself, as its root would run it."""
    enter = ["nsenter", "--target", str(node.init), "--mount", "--net", "--pid", "--uts", "--ipc", "--"]
    done = subprocess.run([*enter, *command], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout} {done.stderr}"
    return done.stdout


def wait_for(what: str, holds: object, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():  # type: ignore[operator]
        assert time.monotonic() < deadline, f"waited {seconds:.0f} s for {what}"
        time.sleep(0.2)


def test_disks_were_put_together_before_the_agent_started(nodes: list[LiveNode]) -> None:
    shown = on_node(nodes[0], "systemctl", "show", "trainer-disks.service", "--property=SubState,Result")
    assert set(shown.split()) == {"SubState=exited", "Result=success"}
    assert json.loads(on_node(nodes[0], "cat", "/run/trainer-disks.json"))["failures"] == {}


def test_a_node_has_the_address_and_the_name_that_ec2_reports(facts: Facts, nodes: list[LiveNode]) -> None:
    for node in nodes:
        answer = facts.ec2.describe_instances(InstanceIds=[node.instance_id])
        instance = answer["Reservations"][0]["Instances"][0]
        assert instance["PrivateIpAddress"] in on_node(node, "ip", "-4", "-br", "address", "show", "eth0")
        assert on_node(node, "hostname", "--fqdn").strip() == instance["PrivateDnsName"]
        for peer in nodes:
            name = facts.ec2.describe_instances(InstanceIds=[peer.instance_id])["Reservations"][0][
                "Instances"
            ][0]
            assert on_node(node, "getent", "hosts", name["PrivateDnsName"]).split()[0] == peer.address


def test_metadata_is_at_its_real_address_and_tells_each_node_who_it_is(nodes: list[LiveNode]) -> None:
    url = "http://169.254.169.254/latest"
    for node in nodes:
        put = [
            "curl",
            "-sf",
            "-X",
            "PUT",
            "-H",
            "X-aws-ec2-metadata-token-ttl-seconds: 60",
            f"{url}/api/token",
        ]
        token = on_node(node, *put)
        get = ["curl", "-sf", "-H", f"X-aws-ec2-metadata-token: {token}", f"{url}/meta-data/instance-id"]
        assert on_node(node, *get) == node.instance_id
        refused = on_node(
            node, "curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", f"{url}/meta-data/instance-id"
        )
        assert refused == "401", "no token, no answer"


def test_the_user_data_is_the_template_s_own_bytes(nodes: list[LiveNode]) -> None:
    for node in nodes:
        seed = node.folder / "root" / "var" / "lib" / "cloud" / "instance" / "user-data.txt"
        ran = on_node(node, "sha256sum", "/var/lib/cloud/instance/user-data.txt").split()[0]
        assert ran == node.record["userDataSha256"], seed


def test_no_packet_of_a_node_can_leave_by_the_host(nodes: list[LiveNode]) -> None:
    """The cloud's namespace has no way out: a public address is unreachable from it, and the host has no such link."""
    done = subprocess.run(
        ["nsenter", "--target", str(nodes[0].init), "--net", "--", "ip", "route", "get", "192.0.2.1"],
        capture_output=True, text=True, timeout=10, check=False,
    )  # fmt: skip
    assert "via 10.40." in done.stdout, "the node's route leads to the cloud's router"
    router = next(
        process
        for process in daemons.find_leavings(nodes[0].local)
        if command_line(process.pid).startswith("dnsmasq")
    )
    done = subprocess.run(
        ["nsenter", "--target", str(router.pid), "--net", "--", "ip", "route", "show", "default"],
        capture_output=True, text=True, timeout=10, check=False,
    )  # fmt: skip
    assert done.stdout == "", "and the router has none"
    links = Path("/proc/net/dev").read_text()
    assert not any(node.instance_id.removeprefix("i-")[-12:] in links for node in nodes)


def test_the_agent_is_nobody_special(nodes: list[LiveNode]) -> None:
    agent = nodes[0].agents()[0]
    status = Path(f"/proc/{agent.pid}/status").read_text()
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert fields["Uid"].split()[0] != "0"
    assert int(fields["CapEff"], 16) == 0 and int(fields["CapBnd"], 16) == 0
    assert fields["NoNewPrivs"] == "1"
    assert "trainer" not in on_node(nodes[0], "cat", "/etc/group").partition("sudo:")[2].partition("\n")[0]
    score = json.loads(on_node(nodes[0], "systemd-analyze", "security", "--json=short", "--no-pager", UNIT))
    assert score, "systemd judged the unit"
    words = on_node(nodes[0], "systemd-analyze", "security", "--no-pager", UNIT)
    exposure = float(words.rpartition("exposure level for")[2].split(":")[1].split()[0])
    assert exposure < 3.0, words


def test_nothing_listens_but_metrics_and_the_training_range(nodes: list[LiveNode]) -> None:
    for node in nodes:
        ports = {line.split()[3] for line in on_node(node, "ss", "-Hltn").splitlines()}
        outside = {port for port in ports if not port.startswith(("127.", "[::1]", "169.254.169.254:"))}
        assert outside == {f"{node.address}:9400", f"{node.address}:29500"}


def test_console_and_journal_lie_in_the_node_s_folder(nodes: list[LiveNode]) -> None:
    for node in nodes:
        console = (node.folder / "console.log").read_text()
        assert "cloud-init" in console.lower() or "Cloud-init" in console
        assert "bootstrap: done" in console
        journal = [
            "journalctl",
            "--directory",
            str(node.folder / "journal"),
            "--unit",
            UNIT,
            "--output",
            "cat",
        ]
        done = subprocess.run(journal, capture_output=True, text=True, timeout=30, check=False)
        assert '"selfcheck done"' in done.stdout


def test_a_reboot_keeps_what_the_node_wrote_and_runs_no_user_data_again(
    lab: Lab, nodes: list[LiveNode]
) -> None:
    node = nodes[0]
    on_node(node, "touch", "/var/lib/trainer/kept")
    before = (node.folder / "console.log").read_text()
    boot = on_node(node, "cat", "/proc/1/stat").rpartition(")")[2].split()[19]
    assert control.give_order(lab.stack.local, "reboot", node.instance_id)[0] == "done"
    wait_for("the reboot", lambda: node.record["reboots"] == 1 and node.record["state"] == "running", 90)
    assert on_node(node, "cat", "/proc/1/stat").rpartition(")")[2].split()[19] != boot
    on_node(node, "test", "-e", "/var/lib/trainer/kept")
    after = (node.folder / "console.log").read_text()[len(before) :]
    assert "Started trainer.service" in after
    assert "bootstrap:" not in after, "user data runs once in an instance's life"
    assert node.instance_id in lab.stack.groups()[0].in_service


def test_a_power_cut_leaves_nothing_of_the_machine_and_the_group_replaces_it(
    lab: Lab, nodes: list[LiveNode]
) -> None:
    node = nodes[0]
    assert cgroups.processes(lab.stack.local, node.instance_id)
    assert control.give_order(lab.stack.local, "crash", node.instance_id)[0] == "done"
    wait_for("its end", lambda: not cgroups.processes(lab.stack.local, node.instance_id), 15)
    wait_for("its replacement", lambda: node.instance_id not in lab.stack.groups()[0].in_service, 30)
    wait_for("two in service", lambda: len(lab.stack.groups()[0].in_service) == 2, 60)


def test_the_install_is_offline_and_the_phases_of_a_launch_are_told(lab: Lab, nodes: list[LiveNode]) -> None:
    for node in nodes:
        told = read_launch(node.folder, "none")
        assert told.boot and told.fetch and told.install and told.selfcheck
        assert told.rendezvous is None, "it has trained in no run yet"


@pytest.mark.parametrize("fault", ["reference", *[fault.name for fault in FAULTS if fault.fast]])
def test_a_run_bears_the_fault(lab: Lab, fault: str) -> None:
    found = next((f for f in FAULTS if f.name == fault), None)
    record = lab.run_reference(2) if found is None else lab.run(found)
    assert record.verdict.passed, (record.verdict, record.timing)


def test_make_up_killed_at_a_random_moment_leaves_nothing(lab: Lab) -> None:
    after = random.Random(SEED).uniform(2, 25)
    record = leavings.kill_once(lab.stack, "kill -9", signal.SIGKILL, after, Console(file=io.StringIO()))
    assert record.verdict.passed, record.verdict
    assert os.path.exists(lab.stack.local), "the laboratory's own stack lives on"


def test_machines_whose_driver_was_killed_are_found_and_ended(lab: Lab, nodes: list[LiveNode]) -> None:
    driver = daemons.running(lab.stack.local, "nodes")
    assert driver is not None and driver.identity.send(signal.SIGKILL)
    wait_for("the driver's end", lambda: not driver.identity.alive(), 10)
    assert lab.stack.end_everything(), "what is left is told"
    assert all(not cgroups.processes(lab.stack.local, node.instance_id) for node in nodes)
    assert daemons.find_leavings(lab.stack.local) == []
