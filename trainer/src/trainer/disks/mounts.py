"""Which network file systems a node mounts, and with which commands. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

from ..contracts.lustre import LustreDocument
from ..contracts.node_document import DatasetLocation, NodeDocument
from .scratch import Command

LUSTRE_PATH = "/mnt/lustre"
# _netdev: whoever stops the machine unmounts it before the network goes. TCP, not EFA: a client over EFA needs its
# interfaces configured for Lustre, which has not been run yet.
LUSTRE_OPTIONS = "noatime,flock,_netdev,nosuid,nodev"
CACHE_FOLDER = "mountpoint-cache"  # on scratch; root's alone, as the objects lie there in the clear


@dataclass(frozen=True)
class Mount:
    """One mount: what must be on the image for it, and what is made before it."""

    path: str
    program: str
    command: Command
    cache: str | None = None
    missing: str = ""  # what to say where the program is not there


def plan_mounts(
    document: NodeDocument, lustre: LustreDocument | None, scratch: str | None
) -> tuple[Mount, ...]:
    """The file system, if datasets are read through it, and one mount for each dataset by Mountpoint.

    ``scratch`` is where scratch space is mounted; None: Mountpoint keeps no cache.
    """
    read_paths = {location.read_path for location in document.datasets.values()}
    mounts = []
    if lustre is not None and "lustre" in read_paths:
        mounts.append(_lustre(lustre))
    for name, location in sorted(document.datasets.items()):
        if location.read_path == "mountpoint" and location.path is not None:
            mounts.append(_mountpoint(name, location, location.path, document.region, scratch))
    return tuple(mounts)


def _lustre(lustre: LustreDocument) -> Mount:
    source = f"{lustre.dns_name}@tcp:/{lustre.mount_name}"
    return Mount(
        LUSTRE_PATH,
        "mount.lustre",
        ("mount", "-t", "lustre", "-o", LUSTRE_OPTIONS, source, LUSTRE_PATH),
        missing="the image has no Lustre client (mount.lustre)",
    )


def _mountpoint(name: str, location: DatasetLocation, path: str, region: str, scratch: str | None) -> Mount:
    cache = str(PurePosixPath(scratch) / CACHE_FOLDER / name) if scratch else None  # of this mount alone
    # Versions never change once published, so what is known of a file stays true; a version that nobody has asked
    # for yet is looked up in S3.
    options: tuple[str, ...] = ("--read-only", "--allow-other", "--metadata-ttl", "indefinite")
    options += ("--prefix", location.prefix, "--region", region)
    if cache is not None:
        options += ("--cache", cache)
    return Mount(
        path,
        "mount-s3",
        ("mount-s3", *options, location.bucket, path),
        cache,
        missing="the image has no Mountpoint for Amazon S3 (mount-s3)",
    )
