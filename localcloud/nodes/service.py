"""The driver's loop: look, decide, act; control files; one driver for a `.local`."""

from __future__ import annotations

import difflib
import fcntl
import hashlib
import json
import logging
import socket
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import IO

from botocore.exceptions import BotoCoreError, ClientError

from ..processes import end, marked
from .cloud import Cloud, InstanceFacts
from .control import Order, take_orders
from .driver import Action, Do, Phase, decide
from .handle import NodeHandle
from .metadata import PORT, MetadataFailed, Show
from .network import NetworkFailed
from .process import NODE_MARKER, NodeProcess
from .site import SHUTDOWN_SECONDS, Site

POLL_SECONDS = 0.5
MAX_NODES = 16  # alive at one time; a laptop is no region

log = logging.getLogger("nodes")


class AnotherDriver(Exception):
    """A driver for the same `.local` runs already."""


def lock(site: Site) -> IO[str]:
    """Held as long as the returned file is open. Raises AnotherDriver."""
    site.nodes.mkdir(parents=True, exist_ok=True)
    file = (site.nodes / "driver.lock").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise AnotherDriver(f"another node driver runs for {site.local}") from None
    return file


def addresses(local: Path) -> Iterator[str]:
    """Loopback addresses for nodes: the second octet from the folder's path, so that two local clouds on one
    machine keep apart; an address whose metadata port is taken is passed over."""
    octet = 64 + hashlib.sha256(str(local).encode()).digest()[0] % 128
    for number in range(1, 256 * 250):
        address = f"127.{octet}.{number // 250}.{number % 250 + 2}"
        with socket.socket() as probe:
            try:
                probe.bind((address, PORT))
            except OSError:
                continue
        yield address


MakeNode = Callable[[str, str], NodeHandle]  # instance id, loopback address


class Service:
    def __init__(
        self, site: Site, cloud: Cloud, spot_notice_seconds: float, make_node: MakeNode | None = None
    ):
        """`make_node`: how a new node is made; a process tree if nothing else is said."""
        self.site = site
        self.cloud = cloud
        self.spot_notice_seconds = spot_notice_seconds
        self.make_node: MakeNode = make_node or (lambda id_, address: NodeProcess(site, id_, address))
        self.nodes: dict[str, NodeHandle] = {}
        self._addresses = addresses(site.local)
        self._unreachable_since: float | None = None
        self._told: set[str] = set()
        self._find_earlier_nodes()

    def _find_earlier_nodes(self) -> None:
        """Nodes of a driver that was killed died with it; what is left of them is ended, and they count as
        gone: their instances, if the cloud still has them, are reported and replaced."""
        for path in sorted(self.site.nodes.glob("*/node.json")):
            instance_id = path.parent.name
            left = marked(NODE_MARKER, instance_id)
            end(left, grace_seconds=0)
            try:
                record = json.loads(path.read_text())
                node = NodeProcess(self.site, instance_id, record["address"])
            except (ValueError, KeyError):
                log.warning("%s: node.json cannot be read, the node is left out", instance_id)
                continue
            if record.get("state") != Phase.GONE.value:
                log.info("%s: left by an earlier driver (%d processes ended)", instance_id, len(left))
            node.record, node.phase = record, Phase.GONE
            node.write()
            self.nodes[instance_id] = node

    def step(self, now: float) -> None:
        """One round. The nodes are looked at before AWS: an exit that is seen then has had its last calls, such
        as the answer to the launching hook, done."""
        for instance_id, node in self.nodes.items():
            try:
                node.watch(now)
            except (
                MetadataFailed,
                NetworkFailed,
                OSError,
            ) as fault:  # at a reboot: it does not come up again
                log.error("%s: %s: %s", instance_id, type(fault).__name__, fault)
                node.phase = Phase.KILLED
                node.write()
        for order in take_orders(self.site.local):
            self._obey(order, now)
        try:
            descriptions = {found["InstanceId"]: found for found in self.cloud.instances()}
        except (BotoCoreError, ClientError) as fault:
            if self._unreachable_since is None:
                log.warning("the AWS API at %s does not answer: %s", self.site.endpoint, fault)
                self._unreachable_since = now
            return
        if self._unreachable_since is not None:
            log.info("the AWS API answers again after %.1f s", now - self._unreachable_since)
            self._unreachable_since = None
        instances = [self.cloud.instance(found) for found in descriptions.values()]
        for action in decide(instances, [node.view() for node in self.nodes.values()], now):
            try:
                facts = None
                if action.do in (Do.BOOT, Do.REBOOT):
                    facts = self.cloud.facts(descriptions[action.instance_id])
                self._act(action, facts, now)
            except (BotoCoreError, ClientError, MetadataFailed, NetworkFailed, OSError, KeyError) as fault:
                text = f"{action.instance_id}: {action.do.value} failed: {type(fault).__name__}: {fault}"
                if text not in self._told:  # it is tried again every round
                    self._told.add(text)
                    log.error("%s", text)

    def _act(self, action: Action, facts: InstanceFacts | None, now: float) -> None:
        instance_id = action.instance_id
        if action.do is Do.BOOT:
            if facts is not None:
                self._boot(facts)
            return
        log.info("%s: %s: %s", instance_id, action.do.value, action.why)
        node = self.nodes[instance_id]
        if action.do is Do.REBOOT:
            if node.phase is Phase.EXITED:
                node.agent_reboots += 1
            elif facts is not None:
                node.reboots_obeyed = facts.instance.reboots
            node.reboot()
        elif action.do is Do.POWER_OFF:
            node.power_off(now)
        elif action.do is Do.POWER_ON:
            node.power_on()
        elif action.do is Do.RELEASE:
            self._release(instance_id, node)
        elif action.do is Do.STOP:
            node.stop(now)
        elif action.do is Do.CLEAR:
            node.clear()
        elif action.do is Do.REPORT_UNHEALTHY:
            self.cloud.report_unhealthy(instance_id)
            node.settled = True
        elif action.do is Do.TERMINATE:
            self.cloud.terminate(instance_id)
            node.interrupt_at = None
        elif action.do is Do.ANNOUNCE_TERMINATION:
            node.show(Show.TERMINATING)
        elif action.do is Do.SETTLE:
            node.settled = True

    def _boot(self, facts: InstanceFacts) -> None:
        instance_id = facts.instance.instance_id
        if sum(node.view().alive for node in self.nodes.values()) >= MAX_NODES:
            return  # looked at again every round; the group shows it as waiting for its launching hook
        user_data = self.cloud.user_data(facts.template_id, facts.template_version)
        node = self.make_node(instance_id, next(self._addresses))
        self.nodes[instance_id] = node
        self.cloud.tag_address(instance_id, node.address)
        log.info(
            "%s: boot: %s %s of %s on %s (template version %s)", instance_id, facts.life_cycle,
            facts.instance_type, facts.instance.group, node.address, facts.template_version,
        )  # fmt: skip
        try:
            node.boot(facts, user_data)
        except (MetadataFailed, NetworkFailed, OSError):
            # As an instance that fails its status checks: reported and replaced.
            node.record.setdefault("address", node.address)
            node.phase = Phase.KILLED
            node.write()
            raise

    def _release(self, instance_id: str, node: NodeHandle) -> None:
        """As the root helper of a real node: where the group keeps the node, the agent waits for its next run."""
        if self.cloud.release(instance_id):
            node.settled = True
        else:
            log.info("%s: kept: the group's minimum size needs it", instance_id)
            node.power_on()

    def _obey(self, order: Order, now: float) -> None:
        node = self.nodes.get(order.instance_id)
        startable = node is not None and order.kind == "start" and node.phase is Phase.STOPPED
        if node is None or not (node.view().alive or startable):
            near = difflib.get_close_matches(order.instance_id, self._alive(), 1)
            hint = f"did you mean {near[0]}?" if near else f"alive: {', '.join(self._alive()) or 'none'}"
            order.answer("refused", f"no such node is alive; {hint}")
            return
        try:
            order.answer("done", self._carry_out(order, node, now))
        except (MetadataFailed, BotoCoreError, ClientError) as fault:
            order.answer("failed", str(fault))
        log.info("%s: %s ordered", order.instance_id, order.kind)

    def _carry_out(self, order: Order, node: NodeHandle, now: float) -> str:
        """Returns what to say to whoever gave the order."""
        if order.kind == "spot-notice":
            at = datetime.now(timezone.utc) + timedelta(seconds=self.spot_notice_seconds)
            node.interrupt_at = now + self.spot_notice_seconds
            node.show(Show.SPOT, at)
            return f"terminates at {at:%Y-%m-%dT%H:%M:%SZ}"
        if order.kind == "rebalance":
            node.show(Show.REBALANCE)
            return "rebalance recommendation is shown"
        if order.kind == "scheduled-event":
            at = datetime.now(timezone.utc) + timedelta(seconds=order.seconds)
            node.show(Show.SCHEDULED, at, order.code)
            return f"{order.code} is scheduled for {at:%Y-%m-%dT%H:%M:%SZ}"
        if order.kind == "crash":
            node.crash()
            return "its power is cut"
        self.cloud.order(order.kind, order.instance_id)
        return f"EC2 was asked to {order.kind} it"

    def _alive(self) -> list[str]:
        return sorted(id_ for id_, node in self.nodes.items() if node.view().alive)

    def shut_down(self) -> None:
        """Every node at once, within the time that a machine has to shut down."""
        now = time.monotonic()
        for node in self.nodes.values():
            if node.view().alive:
                node.stop(now)
        deadline = now + SHUTDOWN_SECONDS + 5
        while any(node.view().alive for node in self.nodes.values()) and time.monotonic() < deadline:
            for node in self.nodes.values():
                node.watch(time.monotonic())
            time.sleep(0.05)
        for node in self.nodes.values():
            if node.phase is not Phase.GONE:
                node.clear()
