"""The node driver, and orders to a running one.

python -m localcloud.nodes --endpoint URL --state .local --image-dir DIR [--driver auto] [--spot-notice-seconds N]
python -m localcloud.nodes spot-notice|rebalance|reboot|stop|start|crash INSTANCE_ID [--state .local]
python -m localcloud.nodes scheduled-event INSTANCE_ID --code instance-retirement --in-seconds 600

Each instance of a group is a machine (systemd-nspawn, as root on Linux) or a process tree (anywhere).
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from . import control

if TYPE_CHECKING:
    from . import service
    from .cloud import Cloud
    from .site import Site

DRIVERS = ("auto", "machine", "process")
SPOT_NOTICE_SECONDS = 120.0  # EC2's
PASSED_ON = "TRAINER_"  # settings of a test bed that the driver hands to its nodes


def main(argv: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if argv is None else argv
    if arguments and arguments[0] in control.KINDS:
        return give(arguments)
    return drive(arguments)


def give(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog=f"python -m localcloud.nodes {arguments[0]}")
    parser.add_argument("kind", choices=control.KINDS)
    parser.add_argument("instance_id")
    parser.add_argument("--state", type=Path, default=Path(".local"))
    parser.add_argument("--code", default="instance-retirement", help="of a scheduled event")
    parser.add_argument("--in-seconds", type=float, default=600.0, help="when a scheduled event is due")
    options = parser.parse_args(arguments)
    status, text = control.give_order(
        options.state.resolve(), options.kind, options.instance_id, options.code, options.in_seconds
    )
    print(
        f"{options.instance_id}: {options.kind}: {text}", file=sys.stdout if status == "done" else sys.stderr
    )
    return 0 if status == "done" else 1


def drive(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m localcloud.nodes",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--endpoint", required=True, help="of the local AWS API")
    parser.add_argument("--state", type=Path, default=Path(".local"))
    parser.add_argument(
        "--image-dir", type=Path, required=True, help="stands for the machine image's /opt/pytorch"
    )
    parser.add_argument("--metadata-mock", type=Path, help="the EC2 metadata mock; default: the toolchain's")
    parser.add_argument("--region", default=os.environ.get("AWS_REGION", "us-east-1"))
    parser.add_argument("--spot-notice-seconds", type=float, default=SPOT_NOTICE_SECONDS)
    parser.add_argument("--driver", choices=DRIVERS, default="auto", help="what a node is made of")
    options = parser.parse_args(arguments)

    from . import namespaces, service
    from .cloud import Cloud
    from .front import FrontFailed
    from .site import Site

    driver, why = choose_driver(options.driver)
    if driver is None:
        print(f"localcloud.nodes: {why}", file=sys.stderr)
        return 2
    if driver == "machine":
        namespaces.enter_own_mounts(["-m", "localcloud.nodes", *arguments])

    if options.metadata_mock is None:
        from ..toolchain import paths

        options.metadata_mock = paths().metadata_mock
    for path, what in ((options.metadata_mock, "metadata mock"), (options.image_dir, "image")):
        if not path.exists():
            print(f"localcloud.nodes: there is no {what} at {path}; `make setup` makes it", file=sys.stderr)
            return 2
    passed_on = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(PASSED_ON) and name not in ("TRAINER_ROOT", "TRAINER_START_HOOK")
    }
    cloud = Cloud(options.endpoint, options.region)
    site = Site(
        local=options.state.resolve(),
        image_dir=options.image_dir.resolve(),
        metadata_mock=options.metadata_mock.resolve(),
        endpoint=options.endpoint,
        region=options.region,
        account_id=cloud.account_id(),
        extra_environment=passed_on,
    )
    try:
        held = service.lock(site)
    except service.AnotherDriver as fault:
        print(f"localcloud.nodes: {fault}", file=sys.stderr)
        return 2
    logging.basicConfig(
        filename=site.nodes / "driver.log",
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(message)s",
    )
    logging.getLogger("botocore").setLevel(logging.WARNING)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        make_node, close = _nodes_of(driver, site, cloud)
    except FrontFailed as fault:
        print(f"localcloud.nodes: {fault}", file=sys.stderr)
        return 2
    running = service.Service(site, cloud, options.spot_notice_seconds, make_node)
    print(f'{{"ready": true, "driver": "{driver}", "why": "{why}"}}', flush=True)
    ready = site.nodes / "driver.ready"
    ready.write_text(f"{os.getpid()}\n")
    try:
        while not stop.is_set():
            running.step(time.monotonic())
            stop.wait(service.POLL_SECONDS)
    finally:
        ready.unlink(missing_ok=True)
        running.shut_down()
        close()
        held.close()
    return 0


def choose_driver(wanted: str) -> tuple[str | None, str]:
    """The driver and why it is that one; None where the wanted one cannot be had."""
    from .machine import missing_tools

    if wanted == "process":
        return "process", "as asked for"
    missing = missing_tools()
    if not missing:
        return "machine", "as asked for" if wanted == "machine" else "root on Linux with systemd-nspawn"
    reason = f"machine nodes need {', '.join(missing)}"
    return (None, reason) if wanted == "machine" else ("process", reason)


def _nodes_of(driver: str, site: Site, cloud: Cloud) -> tuple[service.MakeNode, Callable[[], None]]:
    """How nodes are made, and what ends all that they share. Raises FrontFailed."""
    if driver == "machine":
        from .fleet import Fleet

        fleet = Fleet(site, cloud.ec2)
        return fleet.make_node, fleet.close
    from .front import Front
    from .process import NodeProcess

    front = Front(site)
    told = replace(site, node_endpoint=front.wait())
    return lambda instance_id, address: NodeProcess(told, instance_id, address), front.close


if __name__ == "__main__":
    sys.exit(main())
