"""Which network NCCL chose, read from its own log, and the setting that makes a fall-back to sockets an error.

A plug-in that cannot be loaded, or finds no EFA, makes NCCL go on over TCP without an error (nccl 229,
aws-ofi-nccl 67): several times slower, and only its log says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

# The plug-in's name. Later ones call themselves Libfabric and take this name too when NCCL_NET holds it
# (aws-ofi-nccl, src/nccl_ofi_interface_nvidia.cpp).
EFA_NETWORK = "AWS Libfabric"
# For one benchmark, not for training: what the log must say to be read here.
LOG_ENVIRONMENT = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET,ENV"}

_NETWORK = re.compile(r"NCCL INFO (?:Using network|Assigned NET plugin) (.+?)(?: to comm)?\s*$")
_PROVIDER = re.compile(r"NET/OFI Selected [Pp]rovider is ([\w;-]+)(?:.*?\(found (\d+) nics\))?")
_VERSION = re.compile(r"NCCL version (\S+)")
_INTERFACE = re.compile(r"NCCL INFO Bootstrap\s*:\s*Using (?:\[\d+\])?([^:\s]+):")
_WARNING = re.compile(r"NCCL WARN (NET/.+|.*NET/OFI.+)$")


@dataclass(frozen=True)
class NcclChoice:
    """What a log tells; None: it says nothing about it."""

    version: str | None = None
    network: str | None = None  # Socket, IB, AWS Libfabric, Libfabric
    provider: str | None = None  # of libfabric: efa
    nics: int | None = None
    interface: str | None = None  # of the first meeting, not of the data
    warning: str | None = None  # the first of the network plug-in

    @property
    def over_efa(self) -> bool:
        return "libfabric" in (self.network or "").lower() and self.provider in (None, "efa")


def parse_nccl_log(lines: Iterable[str]) -> NcclChoice:
    """From lines of ``NCCL_DEBUG=INFO``; of each thing what was said first."""
    found: dict[str, str] = {}
    for line in lines:
        for name, pattern in (
            ("network", _NETWORK),
            ("version", _VERSION),
            ("interface", _INTERFACE),
            ("warning", _WARNING),
        ):
            if (match := pattern.search(line)) is not None:
                found.setdefault(name, match[1].strip())
        if (match := _PROVIDER.search(line)) is not None:
            found.setdefault("provider", match[1])
            if match[2]:
                found.setdefault("nics", match[2])
    return NcclChoice(
        version=found.get("version"),
        network=found.get("network"),
        provider=found.get("provider"),
        nics=int(found["nics"]) if "nics" in found else None,
        interface=found.get("interface"),
        warning=found.get("warning"),
    )


def nccl_environment(efa_count: int, nodes: int = 2) -> dict[str, str]:
    """What workers get: where EFA is promised and several nodes train, NCCL ends instead of using TCP."""
    return {"NCCL_NET": EFA_NETWORK} if efa_count > 0 and nodes > 1 else {}
