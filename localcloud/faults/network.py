"""Faults of the network between nodes: nftables in a node's own namespace, TBF, a relay that delays.

Nothing here works on process nodes, which share the host's loopback.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from ..nodes.network import endpoint_address
from .node import LiveNode

TABLE = "faults"


def _rules(node: LiveNode, *rules: str) -> None:
    """A table of its own before all others, so that lifting a fault is deleting the table."""
    text = "\n".join(
        [
            f"table inet {TABLE} {{",
            "  chain incoming { type filter hook input priority -10; policy accept;",
            *(f"    {rule.format(side='saddr', port='sport')}" for rule in rules),
            "  }",
            "  chain outgoing { type filter hook output priority -10; policy accept;",
            *(f"    {rule.format(side='daddr', port='dport')}" for rule in rules),
            "  }",
            "}",
        ]
    )
    node.inside("nft", "-f", "-", stdin=text + "\n")


def cut_off_from(node: LiveNode, others: Sequence[LiveNode]) -> None:
    """No packet to or from these nodes; everything else, S3 included, goes on."""
    addresses = ", ".join(other.address for other in others)
    _rules(node, f"ip {{side}} {{{{ {addresses} }}}} drop")


def cut_off_from_aws(node: LiveNode) -> None:
    """No packet to or from the AWS endpoint; the other nodes are reached as before."""
    _rules(node, f"ip {{side}} {endpoint_of(node)} drop")


def lose_packets(node: LiveNode, percent: int) -> None:
    """A share of all packets that come in is lost, by chance."""
    _rules(node, f"ip {{side}} 10.0.0.0/8 numgen random mod 100 < {percent} drop")


def heal(node: LiveNode) -> None:
    node.inside("nft", "delete", "table", "inet", TABLE)


def limit_rate(node: LiveNode, megabits_per_second: int) -> None:
    """What the node sends goes out at this rate at most."""
    rate = f"{megabits_per_second}mbit"
    node.inside(
        "tc",
        "qdisc",
        "replace",
        "dev",
        "eth0",
        "root",
        "tbf",
        "rate",
        rate,
        "burst",
        "64kb",
        "latency",
        "400ms",
    )


def lift_rate(node: LiveNode) -> None:
    node.inside("tc", "qdisc", "delete", "dev", "eth0", "root")


def endpoint_of(node: LiveNode) -> str:
    """The address at which the node reaches AWS; the local stack's VPC is a /16."""
    return endpoint_address(str(ipaddress.ip_network(f"{node.address}/16", strict=False)))
