"""One scratch file system out of the instance-store disks, planned from what ``lsblk`` tells. Pure.

Their contents vanish when the instance stops, so nothing on them is ever relied upon: no line in fstab, which could
hold a boot up, and a new file system whenever the old one is not whole (scylladb#2749, #6184, #8907).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

# Nitro numbers EBS and instance-store disks as they come; only the model tells which is which (EC2 user guide).
MODEL = "Amazon EC2 NVMe Instance Storage"
LABEL = "trainer-nvme"  # of our file system; XFS takes 12 characters
ARRAY = "/dev/md/trainer"
LSBLK = (
    *("lsblk", "--json", "--paths"),
    *("--output", "NAME,MODEL,TYPE,MOUNTPOINT,FSTYPE,LABEL,UUID"),
)
MOUNT_OPTIONS = "noatime,nosuid,nodev"

Command = tuple[str, ...]


@dataclass(frozen=True)
class Block:
    """A block device as lsblk shows it, with what is built on it."""

    name: str
    model: str = ""
    type: str = "disk"
    mountpoint: str | None = None
    fstype: str | None = None
    label: str | None = None
    uuid: str | None = None
    children: tuple[Block, ...] = ()

    def tree(self) -> Iterator[Block]:
        yield self
        for child in self.children:
            yield from child.tree()


@dataclass(frozen=True)
class ScratchPlan:
    """What is to be done, one line on why, and whether scratch space is there afterwards."""

    told: str
    commands: tuple[Command, ...] = ()
    usable: bool = True


def read_lsblk(text: str) -> tuple[Block, ...]:
    """The devices of ``lsblk --json``; ValueError where it is none."""
    try:
        return tuple(_block(row) for row in json.loads(text)["blockdevices"])
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"lsblk told something else than devices: {error}") from error


def plan_scratch(devices: tuple[Block, ...], path: str) -> ScratchPlan:
    """How the instance-store disks become one file system at ``path``: as they are, or as a RAID0.

    An array that is whole and ours is mounted by UUID, whatever number its name has after a reboot. Disks in use by
    anything else, the image's own volumes for example, are left alone, all of them.
    """
    disks = sorted(
        (device for device in devices if device.type == "disk" and device.model.strip() == MODEL),
        key=lambda disk: disk.name,
    )
    if not disks:
        return ScratchPlan("this instance has no instance-store disk", usable=False)
    count = f"{len(disks)} instance-store disk{'s' if len(disks) > 1 else ''}"
    everything = [block for disk in disks for block in disk.tree()]
    if any(block.mountpoint == path for block in everything):
        return ScratchPlan(f"{count}: mounted at {path} already")
    if used := sorted({block.name for block in everything if _is_in_use(block)}):
        return ScratchPlan(f"{', '.join(used)} in use by the image: left alone", usable=False)
    ours = _our_file_system(disks)
    if ours is not None:
        return ScratchPlan(
            f"{count}: the file system of before the reboot, on {ours.name}",
            (("mount", "-o", MOUNT_OPTIONS, f"UUID={ours.uuid}", path),),
        )
    return ScratchPlan(f"{count}: a new file system", (*_cleared(disks), *_made(disks, path)))


def _is_in_use(block: Block) -> bool:
    return block.mountpoint is not None or block.type in ("part", "lvm", "crypt")


def _our_file_system(disks: list[Block]) -> Block | None:
    """The one device that spans all disks and carries our file system."""
    if len(disks) == 1:
        spans = [disks[0]]
    else:
        arrays = {child for disk in disks for child in disk.children}
        whole = all(len(disk.children) == 1 for disk in disks) and len(arrays) == 1
        spans = list(arrays) if whole else []
    return next((b for b in spans if (b.fstype, b.label) == ("xfs", LABEL) and b.uuid), None)


def _cleared(disks: list[Block]) -> Iterator[Command]:
    """Without leftovers of an array, which mdadm or udev would put together again."""
    for array in sorted({child.name for disk in disks for child in disk.children}):
        yield "mdadm", "--stop", array
    for disk in disks:
        if disk.children or disk.fstype == "linux_raid_member":
            yield "mdadm", "--zero-superblock", "--force", disk.name


def _made(disks: list[Block], path: str) -> Iterator[Command]:
    device = disks[0].name
    if len(disks) > 1:
        device = ARRAY
        yield (
            *(
                "mdadm",
                "--create",
                ARRAY,
                "--force",
                "--run",
                "--level=0",
                "--name=trainer",
                "--homehost=any",
            ),
            *(f"--raid-devices={len(disks)}", *(disk.name for disk in disks)),
        )
        yield "udevadm", "settle", "--timeout=30"
    yield "mkfs.xfs", "-K", "-f", "-q", "-L", LABEL, device  # -K: the disks arrive trimmed
    yield "mount", "-o", MOUNT_OPTIONS, device, path


def _block(row: dict[str, Any]) -> Block:
    return Block(
        name=row["name"],
        model=row.get("model") or "",
        type=row["type"],
        mountpoint=row.get("mountpoint"),
        fstype=row.get("fstype"),
        label=row.get("label"),
        uuid=row.get("uuid"),
        children=tuple(_block(child) for child in row.get("children", ())),
    )
