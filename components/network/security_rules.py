"""Who may send what to whom. Pure: plain values in, one line a security group rule out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Group = Literal["nodes", "endpoints", "lustre"]
LustreTraffic = Literal["none", "tcp", "efa"]

WORLD = "0.0.0.0/0"
HTTPS = (443, 443)
# LNET and the clients' own ports (FSx for Lustre user guide, File system access control with Amazon VPC, 2026).
LUSTRE_PORTS = ((988, 988), (1018, 1023))


@dataclass(frozen=True)
class TrafficRule:
    """One rule of one group: with exactly one of a group, an IPv4 block or S3 at the other end."""

    role: str  # last part of the resource's name
    group: Group
    direction: Literal["in", "out"]
    description: str
    peer: Group | None = None
    cidr: str | None = None
    to_s3: bool = False
    ports: tuple[int, int] | None = None  # TCP, first and last; None: all traffic


def plan_rules(
    vpc_cidr: str,
    metrics_port: int,
    way_out: Literal["world", "endpoints"],
    interface_endpoints: bool,
    lustre: LustreTraffic,
) -> tuple[TrafficRule, ...]:
    """All rules of the network's groups.

    Nodes send each other everything, which EFA demands both ways by the group's own name, and open their
    metrics port to the VPC. They reach AWS's services by HTTPS, anywhere (``world``) or at the VPC's endpoints
    and S3 alone. Nothing comes in from the world. DNS, time and instance metadata need no rule: Amazon's own
    servers for them pass security groups.
    """
    among, metrics = "All traffic among the nodes, as EFA needs it", (metrics_port, metrics_port)
    rules = [
        TrafficRule("nodes-from-nodes", "nodes", "in", among, peer="nodes"),
        TrafficRule("nodes-to-nodes", "nodes", "out", among, peer="nodes"),
        TrafficRule("nodes-metrics", "nodes", "in", "Metrics, from the VPC", cidr=vpc_cidr, ports=metrics),
    ]
    if way_out == "world":
        rules.append(
            TrafficRule("nodes-to-https", "nodes", "out", "HTTPS to the AWS APIs", cidr=WORLD, ports=HTTPS)
        )
    else:
        to_vpc = "HTTPS to the endpoints of the VPC"
        rules += [
            TrafficRule("nodes-to-endpoints", "nodes", "out", to_vpc, cidr=vpc_cidr, ports=HTTPS),
            TrafficRule("nodes-to-s3", "nodes", "out", "HTTPS to S3", to_s3=True, ports=HTTPS),
        ]
    if interface_endpoints:
        from_vpc = "HTTPS from the VPC"
        rules.append(TrafficRule("endpoints-https", "endpoints", "in", from_vpc, cidr=vpc_cidr, ports=HTTPS))
    return (*rules, *_lustre_rules(lustre))


def _lustre_rules(traffic: LustreTraffic) -> list[TrafficRule]:
    """Between the nodes and the file system, and among its servers, each way in both groups.

    With EFA everything: FSx refuses to create such a file system otherwise ("insufficient security group
    permissions", FSx for Lustre user guide, Creating an FSx for Lustre file system fails).
    """
    if traffic == "none":
        return []
    every: list[tuple[int, int] | None] = [None] if traffic == "efa" else [*LUSTRE_PORTS]
    rules: list[TrafficRule] = []
    for ports in every:
        suffix, what = ("", "All traffic, as EFA needs it") if ports is None else (f"-{ports[0]}", "Lustre")
        pairs: tuple[tuple[Group, Group], ...] = (
            ("nodes", "lustre"),
            ("lustre", "nodes"),
            ("lustre", "lustre"),
        )
        for group, peer in pairs:
            name = "file system" if peer == "lustre" else "nodes"
            rules += [
                TrafficRule(
                    f"{group}-from-{peer}{suffix}", group, "in", f"{what}, from the {name}", peer, ports=ports
                ),
                TrafficRule(
                    f"{group}-to-{peer}{suffix}", group, "out", f"{what}, to the {name}", peer, ports=ports
                ),
            ]
    return rules
