"""A node's instance metadata service: the EC2 metadata mock on the node's own loopback address.

Facts about the mock (amazon-ec2-metadata-mock 1.13.0, read in its source and tried): without a sub-command
it sends every notice at second 0, so each is put far off; a notice is a restart, after which tokens from before
get 401; only the first two asking addresses get notices unless the limit is lifted; its default credentials
ended in 2020; every scheduled event has one and the same id unless told otherwise; a target lifecycle state other
than InService and Terminated is not in it, so that a warmed node reads InService (its group's API says Warmed:*).
"""

from __future__ import annotations

import ctypes
import json
import os
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from enum import Enum
from pathlib import Path
from typing import Any

from ..processes import Identity, end, identify
from .names import private_name

PORT = 1338  # the mock's own; 80 would need rights
READY_LIMIT_SECONDS = 10.0
FAR_OFF_SECONDS = "1000000000"
CREDENTIALS_DAYS = 365  # the mock cannot renew them, and a local cloud does not live longer
SCHEDULED_CODES = (
    "instance-reboot", "system-reboot", "system-maintenance", "instance-retirement", "instance-stop",
)  # fmt: skip
EVENT_LASTS = timedelta(hours=2)  # from its earliest start to its latest end
EVENT_ID = "AEMM_METADATA_VALUES_EVENT_ID"  # the mock's variable


class Show(str, Enum):
    """What the service shows besides the node's identity."""

    QUIET = "quiet"
    SPOT = "spot"  # a spot interruption notice
    REBALANCE = "rebalance"  # a rebalance recommendation
    TERMINATING = "terminating"  # target-lifecycle-state Terminated
    SCHEDULED = "scheduled"  # one scheduled event, active


@dataclass(frozen=True)
class Facts:
    instance_id: str
    instance_type: str
    availability_zone: str
    region: str
    address: str  # what local-ipv4 says: the loopback address that stands for the node's private one
    life_cycle: str  # spot | on-demand
    image_id: str
    account_id: str
    role: str


def configuration(facts: Facts, now: datetime) -> dict[str, Any]:
    """The mock's configuration file. The credentials are random: the local AWS API accepts any."""
    stamp = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    expiration = (now + timedelta(days=CREDENTIALS_DAYS)).strftime("%Y-%m-%dT%H:%M:%SZ")
    host = private_name(facts.address, facts.region)
    values = {
        "ami-id": facts.image_id,
        "hostname": host,
        "local-hostname": host,
        "instance-id": facts.instance_id,
        "instance-life-cycle": facts.life_cycle,
        "instance-type": facts.instance_type,
        "local-ipv4": facts.address,
        "mac-local-ipv4s": facts.address,
        "public-ipv4": "",
        "public-hostname": "",
        "placement-availability-zone": facts.availability_zone,
        "placement-region": facts.region,
        "tags-instance-name": facts.instance_id,
        "iam-info": {
            "Code": "Success",
            "LastUpdated": stamp,
            "InstanceProfileArn": f"arn:aws:iam::{facts.account_id}:instance-profile/{facts.role}",
            "InstanceProfileId": "AIPALOCALCLOUD0000000",
        },
        "iam-security-credentials-role": facts.role,
        "iam-security-credentials": {
            "Code": "Success",
            "LastUpdated": stamp,
            "Type": "AWS-HMAC",
            "AccessKeyId": f"ASIA{secrets.token_hex(8).upper()}",
            "SecretAccessKey": secrets.token_urlsafe(30),
            "Token": secrets.token_urlsafe(60),
            "Expiration": expiration,
        },
    }
    identity = {
        "accountId": facts.account_id,
        "architecture": "x86_64",
        "availabilityZone": facts.availability_zone,
        "imageId": facts.image_id,
        "instanceId": facts.instance_id,
        "instanceType": facts.instance_type,
        "pendingTime": stamp,
        "privateIp": facts.address,
        "region": facts.region,
        "version": "2017-09-30",
    }
    return {"metadata": {"values": values}, "dynamic": {"values": {"instance-identity-document": identity}}}


def arguments(show: Show, terminates_at: datetime | None = None, code: str | None = None) -> list[str]:
    """The mock's sub-command and delays for what it shall show.

    `terminates_at` is a spot notice's time (default: two minutes ahead of each question) or a scheduled event's
    earliest start (default: now); `code` is one of SCHEDULED_CODES (default: system-reboot).
    """
    far = FAR_OFF_SECONDS
    delays = {"--mock-delay-sec": far, "--rebalance-delay-sec": far, "--asg-termination-delay-sec": far}
    command: list[str] = []
    if show is Show.SPOT:
        # The sub-command keeps scheduled events out, which share the delay of the interruption.
        command = ["spot", "--action", "terminate"]
        if terminates_at is not None:
            command += ["--time", _rfc3339(terminates_at)]
        delays["--mock-delay-sec"] = "0"
    elif show is Show.SCHEDULED:
        starts = terminates_at or datetime.now(timezone.utc)
        command = [
            "events", "--code", code or "system-reboot", "--state", "active", "--not-before", _rfc3339(starts),
            "--not-after", _rfc3339(starts + EVENT_LASTS), "--not-before-deadline", _rfc3339(starts + EVENT_LASTS),
        ]  # fmt: skip
        delays["--mock-delay-sec"] = "0"
    elif show is Show.REBALANCE:
        delays["--rebalance-delay-sec"] = "0"
    elif show is Show.TERMINATING:
        delays["--asg-termination-delay-sec"] = "0"
    return command + [part for pair in delays.items() for part in pair]


def _rfc3339(moment: datetime) -> str:
    return moment.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


class MetadataFailed(Exception):
    """The metadata service did not come up; the text says where its log is."""


class MetadataService:
    """One node's service; every `show` is a restart on the same address."""

    def __init__(
        self, binary: Path, folder: Path, address: str, port: int = PORT, prefix: Sequence[str] = ()
    ):
        self.binary = binary
        self.folder = folder
        self.address = address
        self.port = port
        self.prefix = tuple(prefix)  # of the command: for example to run it in a network namespace
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"http://{self.address}:{self.port}"

    @property
    def identity(self) -> Identity | None:
        return identify(self.process.pid) if self.process and self.process.poll() is None else None

    def configure(self, facts: Facts) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / "config.json"
        path.touch(mode=0o600)
        path.write_text(json.dumps(configuration(facts, datetime.now(timezone.utc)), indent=1) + "\n")

    def show(
        self,
        show: Show,
        environment: dict[str, str],
        terminates_at: datetime | None = None,
        code: str | None = None,
    ) -> None:
        """`terminates_at` and `code`: see `arguments`. Raises MetadataFailed."""
        self.stop()
        command = [
            *self.prefix, str(self.binary), *arguments(show, terminates_at, code), "--imdsv2", "--mock-ip-count", "-1",
            "--hostname", self.address, "--port", str(self.port),
            "--config-file", str(self.folder / "config.json"),
        ]  # fmt: skip
        # Each event has an id of its own, as on AWS: a node reacts once per id.
        variables = {"HOME": str(self.folder), EVENT_ID: f"instance-event-{secrets.token_hex(9)[:17]}"}
        log = self.folder / "imds.log"
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                command, cwd=self.folder, env={**environment, **variables},
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                start_new_session=True, preexec_fn=die_with_parent,
            )  # fmt: skip
        deadline = time.monotonic() + READY_LIMIT_SECONDS
        while True:
            try:
                self.connect()
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    self.stop()
                    raise MetadataFailed(f"no metadata service on {self.endpoint} (log: {log})") from None
                time.sleep(0.02)

    def connect(self) -> None:
        """Raises OSError while it does not listen."""
        socket.create_connection((self.address, self.port), timeout=1).close()

    def stop(self) -> None:
        identity = self.identity
        if identity is not None:
            end([identity], grace_seconds=2)
        if self.process is not None:
            self.process.wait(timeout=5)
            self.process = None


_libc = ctypes.CDLL(None)


def die_with_parent() -> None:
    """For preexec_fn: the kernel kills this child when the driver is gone, also after kill -9."""
    _libc.prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
    if os.getppid() == 1:
        os._exit(1)
