"""``trainer agent``: what a node's service runs."""

from __future__ import annotations

import argparse
import logging
import signal
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ConfigurationError, Fault
from ..exit_codes import Exit

if TYPE_CHECKING:
    from ..contracts.node_document import NodeDocument
    from .imds import Identity, Imds

IDENTITY_SECONDS = 60.0  # how long the metadata service may take to answer at first


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "agent",
        help="run the node's agent (started by the node itself)",
        description="Checks the node, answers the launching hook, then waits for the group's run and trains in it. "
        "It ends with 75 after a notice or SIGTERM with all state saved, with a node's fault code (10 to 14) when "
        "the machine is to be replaced, and with 0 after a run with onFinish: release.",
    )
    parser.add_argument(
        "--document", type=Path, required=True, help="the node document, as fetched by user data"
    )
    parser.add_argument("--state-dir", type=Path, required=True, help="folder for data, checkpoints and logs")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from ..obs.logs import capture_logging, configure, get_logger

    configure()
    capture_logging(logging.WARNING)
    with ExitStack() as at_the_end:  # the last lines are still sent
        try:
            return int(_run(arguments.document.resolve(), arguments.state_dir.resolve(), at_the_end))
        except Fault as fault:
            code = fault.exit_code
            get_logger().error("agent ended", code=int(code), name=code.name, reason=str(fault))
            return int(code)
        except Exception:
            get_logger().exception("agent ended by a bug", code=int(Exit.BUG))
            return int(Exit.BUG)


def _run(document_file: Path, state_dir: Path, at_the_end: ExitStack) -> Exit:
    from ..obs.cloudwatch import LogShipper
    from ..obs.logs import configure
    from .document import read_document
    from .imds import Imds

    document = read_document(document_file)
    imds = Imds()
    identity = _identity(imds)
    stream = f"{document.group}/{identity.instance_id}/agent"
    shipper = LogShipper.connect(document.region, document.log_group, stream)
    at_the_end.callback(shipper.close)
    configure(shipper.write, instance=identity.instance_id, group=document.group)
    return _run_as(document, document_file, state_dir, imds, identity)


def _run_as(
    document: NodeDocument, document_file: Path, state_dir: Path, imds: Imds, identity: Identity
) -> Exit:
    from ..devices.metrics import DeviceMetrics
    from ..obs.exporter import Exporter, NodeState
    from ..obs.host import HostMetrics
    from ..store import Store
    from .agent import Agent
    from .board import Board
    from .lifecycle import Lifecycle
    from .node import Node, installed_versions, poll_seconds
    from .pace import Pace
    from .run_events import RunEvents
    from .standby import STANDBY
    from .supervisor import torchrun_argv

    state_dir.mkdir(parents=True, exist_ok=True)
    state = NodeState()
    node = Node(
        document=document,
        instance_id=identity.instance_id,
        address=identity.address,
        state_dir=state_dir,
        versions=installed_versions(document),
        state=state,
        store=Store(region=document.region),
        board=Board.connect(document.region, document.artifacts_bucket),
        lifecycle=Lifecycle.connect(document, identity.instance_id),
        worker_argv=torchrun_argv,
        standby_argv=STANDBY,
        poll_seconds=poll_seconds(document),
        pace=Pace.from_environment(),
        instance_type=identity.instance_type,
        life_cycle=identity.life_cycle,
        run_events=RunEvents.connect(document),
    )
    agent = Agent(node, imds, document_file)
    devices = DeviceMetrics.open(state, document.promise.accelerator)
    host = HostMetrics(state, agent.worker_pids)

    def refresh() -> None:
        agent.refresh()
        host.refresh()
        devices.refresh()

    signal.signal(signal.SIGTERM, agent.on_signal)
    signal.signal(signal.SIGINT, agent.on_signal)
    exporter = Exporter(state, identity.address, document.metrics_port, refresh, document.dcgm_names)
    try:
        return agent.run()
    finally:
        # How it ends is decided: a late signal, while the interpreter winds down, must not change the exit code.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        exporter.close()
        devices.close()


def _identity(imds: Imds) -> Identity:
    from .imds import ImdsUnreachable

    deadline = time.monotonic() + IDENTITY_SECONDS
    while True:
        try:
            return imds.identity()
        except ImdsUnreachable as error:
            if time.monotonic() > deadline:
                raise ConfigurationError(
                    f"the metadata service does not tell who this node is: {error}"
                ) from error
            time.sleep(1)
