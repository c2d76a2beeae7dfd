"""Exit codes are an API: systemd, the node's helper and the local cloud decide by them."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    DONE = 0
    CONFIGURATION = 2  # bad configuration; never replaces a node
    DEVICE = 10  # device missing or unhealthy: replace the node
    REBOOT = 11
    RESET = 12
    PERFORMANCE = 13  # below the floor; as DEVICE after one repeat
    DRIVER = 14  # NVML, driver or container runtime broken
    DATASET = 20  # dataset missing or checksum wrong; never replaces a node
    S3 = 21  # storage, credentials or clock trouble that may pass: restart with back-off
    NON_FINITE = 30
    OUT_OF_MEMORY = 31
    PEER_LOST = 32  # collective time-out or peer lost: restart workers and resume
    CHECKPOINT = 40  # checkpoint cannot be read or written
    # Bootstrap faults (user data, before the agent runs); all end in an abandoned launch.
    BOOT_UNREACHABLE = 50  # S3 or credentials out of reach
    BOOT_DOCUMENT_MISSING = 51
    BOOT_DOCUMENT_HASH = 52
    BOOT_DOCUMENT_SCHEMA = 53  # a newer schema than this user data knows
    BOOT_RELEASE_MISSING = 54
    BOOT_RELEASE_HASH = 55
    BOOT_INSTALL = 56  # offline install failed
    BOOT_START = 57  # the agent's unit could not be started
    BUG = 70  # unexpected exception; restarted three times at most
    STOPPED_SAVED = 75  # stopped on notice or SIGTERM, state saved
    STOPPED_STALE = 76  # stopped on notice, last save older than wanted


# The agent restarts the workers itself for these; every other code ends the run on this node.
WORKER_RESTART = frozenset({Exit.S3, Exit.PEER_LOST})
# Faults of the configuration or data: a new node would meet them again.
NEVER_REPLACE = frozenset(
    {Exit.CONFIGURATION, Exit.DATASET, Exit.NON_FINITE, Exit.OUT_OF_MEMORY, Exit.CHECKPOINT}
)
