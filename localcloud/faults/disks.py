"""Faults of a node's file systems: a small one that fills up or turns read-only, /dev/shm full, a read that hangs.

Everything is done inside the node's own mount namespace; what is mounted there reaches its services.
"""

from __future__ import annotations

from dataclasses import dataclass

from .node import InjectionFailed, LiveNode

STATE = "/var/lib/trainer"


def _shell(node: LiveNode, script: str) -> str:
    return node.inside("/bin/sh", "-euc", script, mounts=True)


def checkpoints_folder(run: str) -> str:
    return f"{STATE}/runs/{run}/checkpoints"


def mount_small(node: LiveNode, folder: str, mebibytes: int) -> None:
    """A file system of that size over a folder, beginning with the folder's content."""
    _shell(
        node,
        f"mkdir -p {folder}; cp -a {folder} /tmp/kept; mount -t tmpfs -o size={mebibytes}m,mode=0755 small {folder};"
        f"chown trainer:trainer {folder}; cp -a /tmp/kept/. {folder}/; rm -rf /tmp/kept",
    )


def fill(node: LiveNode, folder: str, keep_kibibytes: int = 0) -> None:
    """Write until nothing is free, or that little."""
    _shell(
        node,
        f"free=$(df -k --output=avail {folder} | tail -1); dd if=/dev/zero of={folder}/filled bs=1k "
        f"count=$((free - {keep_kibibytes})) status=none || true",
    )


def free(node: LiveNode, folder: str) -> None:
    _shell(node, f"rm -f {folder}/filled")


def read_only(node: LiveNode, folder: str) -> None:
    _shell(node, f"mount -o remount,ro {folder}")


def unmount(node: LiveNode, folder: str) -> None:
    _shell(node, f"umount --lazy {folder}")


@dataclass(frozen=True)
class BlockedShard:
    """A shard whose bytes never come: a pipe that nobody writes to is in its place, so that opening it hangs."""

    node: LiveNode
    path: str  # as the node knows it

    @classmethod
    def block(cls, node: LiveNode, dataset: str) -> BlockedShard:
        name, version = dataset.split("@")
        found = _shell(
            node, f"find {STATE}/data/{name}/{version} -type f -name 'train-*' | sort | head -1"
        ).strip()
        if not found:
            raise InjectionFailed(f"{node.instance_id} holds no shard of {dataset}")
        _shell(node, f"mv {found} {found}.aside; mkfifo -m 0644 {found}; chown trainer:trainer {found}")
        return cls(node, found)

    def release(self) -> None:
        _shell(self.node, f"mv -f {self.path}.aside {self.path}")
