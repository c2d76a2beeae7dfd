"""How a node mounts the stack's file system; the infrastructure program writes it once the file system exists."""

from __future__ import annotations

from .base import ProgramDocument


class LustreDocument(ProgramDocument):
    """The object that a node document names by ``lustreKey``, in the artifacts bucket."""

    schema_version: int = 1
    file_system_id: str
    dns_name: str
    mount_name: str
