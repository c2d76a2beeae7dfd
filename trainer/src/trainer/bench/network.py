"""What an all-reduce can reach at most, computed from the machine's own links. Pure, but for reading sysfs.

Bus bandwidth is that of nccl-tests: bytes / time x 2(n-1)/n for n ranks, which does not depend on n where the links
are the limit. A floor must name its message size: on p5, 128 MB reach 59 % of what 16 GB do.
"""

from __future__ import annotations

import re
from pathlib import Path

FLOOR_RATIO = 0.6
FLOOR_BYTES = 10**9  # below it the latency is measured
LEAST_GIGABYTES_PER_SECOND = 1.0  # where no bound is known: "it ran over something sane"
AMAZON = "0x1d0f"
INFINIBAND = Path("/sys/class/infiniband")


def bus_bandwidth(size_bytes: int, seconds: float, ranks: int) -> float:
    """GB/s (10^9)."""
    return size_bytes / seconds * 2 * (ranks - 1) / ranks / 1e9


def nic_bound(node_gigabytes_per_second: float, nodes: int, ranks: int) -> float:
    """Bus bandwidth that a node's NICs allow: each node must send and receive 2(N-1)/N of the data over N nodes."""
    return node_gigabytes_per_second * nodes / (2 * (nodes - 1)) * 2 * (ranks - 1) / ranks


def allreduce_bound(
    nodes: int, ranks: int, node_gigabytes_per_second: float | None, nvlink_gigabytes_per_second: float | None
) -> float | None:
    """GB/s of bus bandwidth; None: nothing is known that would bound it. Both arguments are a node's own figures."""
    if nodes == 1:
        return nvlink_gigabytes_per_second
    if node_gigabytes_per_second is None:
        return None
    bound = nic_bound(node_gigabytes_per_second, nodes, ranks)
    return min(bound, nvlink_gigabytes_per_second) if nvlink_gigabytes_per_second else bound


def allreduce_floor(size_bytes: int, bound: float | None) -> float | None:
    """60 % of the bound for large messages; 1 GB/s where no bound is known; none for small ones."""
    if size_bytes < FLOOR_BYTES:
        return None
    return FLOOR_RATIO * bound if bound is not None else LEAST_GIGABYTES_PER_SECOND


def efa_gigabytes_per_second(folder: Path = INFINIBAND) -> float | None:
    """Of all this node's EFA devices together, as their driver tells; None: there are none."""
    rates = []
    for device in sorted(folder.glob("*")):
        try:
            if (device / "device" / "vendor").read_text().strip() != AMAZON:
                continue
            rate = (device / "ports" / "1" / "rate").read_text()
        except OSError:
            continue
        if (match := re.match(r"([\d.]+) Gb/sec", rate)) is not None:
            rates.append(float(match[1]))
    return sum(rates) / 8 if rates else None
