"""Every fault that the laboratory knows, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trainer.exit_codes import Exit

from . import inject_cloud as cloud
from . import inject_node as node
from . import inject_storage as storage
from .scene import Scene
from .verdict import Expectation, Finished, StoppedWith, Unharmed

PROCESSES, MACHINES, PURCHASE = "Processes", "Machines", "Interruptions"
NETWORK, S3, DISKS, BOOT = "Network", "S3 and the AWS API", "Disks", "Boot"


@dataclass(frozen=True)
class Fault:
    name: str
    group: str
    description: str  # what is done, in a few words
    inject: Callable[[Scene], None]
    expectation: Expectation
    nodes: int = 2  # in service when it begins, and the run's whole world
    at_step: int = 40  # of the run, when it is done
    fast: bool = False  # in the subset of `make test`


FAULTS: tuple[Fault, ...] = (
    Fault("worker-killed", PROCESSES, "kill -9 of a worker that does not lead", node.kill_worker, Finished(),
          fast=True),
    Fault("leader-worker-killed", PROCESSES, "kill -9 of rank 0", node.kill_leading_worker, Finished()),
    Fault("agent-killed", PROCESSES, "kill -9 of a node's agent", node.kill_agent, Finished()),
    Fault("rank-stopped", PROCESSES, "SIGSTOP of a rank: alive, and no step any more", node.stop_rank, Finished()),
    Fault("loader-blocked", PROCESSES, "a shard whose read never returns, on one node", node.block_loader, Finished()),
    Fault("node-crashed", MACHINES, "power cut of a node (kill -9 of the machine)", node.crash_node, Finished()),
    Fault("leader-crashed", MACHINES, "power cut of the leading node", node.crash_leader, Finished()),
    Fault("node-rebooted", MACHINES, "RebootInstances of a node", node.reboot_node, Finished(0)),
    Fault("spot-notice", PURCHASE, "spot notice to one node", node.notice_follower, Finished(0)),
    Fault("spot-notice-leader", PURCHASE, "spot notice to the leading node", node.notice_leader, Finished(0),
          fast=True),
    Fault("spot-notice-all-but-one", PURCHASE, "spot notices to two of three nodes at once", node.notice_all_but_one,
          Finished(0), nodes=3),
    Fault("rebalance", PURCHASE, "rebalance recommendation to a node", node.rebalance, Unharmed()),
    Fault("retirement", PURCHASE, "scheduled instance-retirement in two minutes", node.retire, Finished(0)),
    Fault("health-replacement", PURCHASE, "the group is told that a node is unhealthy", node.unhealthy, Finished(0)),
    Fault("grow-and-shrink", PURCHASE, "2 -> 3 -> 2 nodes while the run wants 3", node.grow_and_shrink, Finished(0),
          nodes=3, at_step=1),
    Fault("two-boot-at-once", PURCHASE, "1 -> 3 nodes: two boot at one instant", node.two_boot_at_once, Finished(0),
          nodes=3, at_step=1),
    Fault("partition-peers", NETWORK, "a node is cut off from its peers, not from S3; all stay alive",
          cloud.partition_from_peers, Finished(), nodes=3, fast=True),
    Fault("partition-s3", NETWORK, "a node is cut off from S3, not from its peers; all stay alive",
          cloud.partition_from_s3, Finished(), nodes=3),
    Fault("packet-loss", NETWORK, "5 % of a node's packets are lost", cloud.lose_packets, Finished()),
    Fault("delay", NETWORK, "25 ms more each way to a node", cloud.delay, Finished()),
    Fault("rate-limit", NETWORK, "a node sends 4 Mbit/s at most", cloud.limit_rate, Finished()),
    Fault("s3-500", S3, "20 calls answered with 500", cloud.s3("internal-error", times=20), Finished()),
    Fault("s3-503", S3, "20 calls answered with 503 SlowDown", cloud.s3("slow-down", times=20), Finished()),
    Fault("s3-409", S3, "conditional writes of `latest` meet 409 three times",
          cloud.s3("conflict", times=3, methods=("PUT",), key="/latest"), Finished()),
    Fault("s3-412", S3, "a conditional write of `latest` meets 412: fenced, though nobody else wrote",
          cloud.s3("precondition-failed", times=1, methods=("PUT",), key="/latest"), Finished()),
    Fault("s3-slow", S3, "bodies at 40 kB/s for 10 s", cloud.s3_for(10, "slow", bytes_per_second=40_000), Finished()),
    Fault("s3-truncated", S3, "downloads end halfway, 6 times, while a node resumes",
          cloud.s3_while_resuming("truncated", times=6, methods=("GET",)), Finished()),
    Fault("s3-corrupt-download", S3, "one byte of a checkpoint changed on its way down, twice",
          cloud.s3_while_resuming("corrupted", times=2, methods=("GET",), key=r"\.distcp"), Finished()),
    Fault("s3-corrupt-upload", S3, "one byte of a checkpoint changed on its way up: S3 refuses the checksum",
          cloud.s3("corrupted", times=1, methods=("PUT",), key=r"\.distcp"), Finished()),
    Fault("s3-expired-token", S3, "ExpiredToken for 8 s", cloud.s3_for(8, "expired-token"), Finished()),
    Fault("s3-clock-skew", S3, "RequestTimeTooSkewed for 8 s", cloud.s3_for(8, "time-skewed"), Finished()),
    Fault("s3-reset", S3, "30 connections reset", cloud.s3("reset", times=30), Finished()),
    Fault("s3-outage", S3, "no connection to AWS for 5 s, for all nodes", cloud.s3_for(5, "outage"), Finished()),
    Fault("aws-restarted", S3, "the AWS API's server away for 10 s, then back", cloud.restart_aws, Finished()),
    Fault("metadata-silent", S3, "a node's metadata service does not answer for 10 s", cloud.silence_metadata,
          Unharmed()),
    Fault("disk-full", DISKS, "the leader's checkpoint disk is full", storage.disk_full,
          StoppedWith(Exit.CHECKPOINT, ("cannot be written", "free space", "trainer run resume"))),
    Fault("disk-read-only", DISKS, "the leader's checkpoint disk turns read-only", storage.disk_read_only,
          StoppedWith(Exit.CHECKPOINT, ("read-only", "replace the node", "trainer run resume"))),
    Fault("shm-full", DISKS, "the shared memory (/dev/shm) of a node is full", storage.shm_full, Unharmed()),
    Fault("corrupt-release", BOOT, "the release in S3 has another byte when a node boots", storage.corrupt_release,
          Finished()),
    Fault("corrupt-document", BOOT, "the node document in S3 has another byte", storage.corrupt_document, Finished()),
    Fault("newer-schema", BOOT, "a template whose node document has a newer schema", storage.newer_schema, Finished()),
)  # fmt: skip


def by_name(name: str) -> Fault | None:
    return next((fault for fault in FAULTS if fault.name == name), None)
