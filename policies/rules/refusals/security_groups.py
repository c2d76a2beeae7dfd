"""Security group rules that EC2 refuses; the provider checks the ranges of the separate rule resources only."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from .._judge import UNKNOWN, leaves, read
from ._validator import Found, Inputs, Validator, known, number

INGRESS, EGRESS, OLD, GROUP, DEFAULT = (
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule",
    "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule",
    "aws:ec2/securityGroupRule:SecurityGroupRule",
    "aws:ec2/securityGroup:SecurityGroup",
    "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup",
)
ALL = ("-1", "all")
ICMP = ("icmp", "icmpv6", "1", "58")
MAX_PORT = 65535
# EC2 API, IpPermission descriptions (2026).
DESCRIPTION = re.compile(r"[a-zA-Z0-9. _\-:/()#,@\[\]+=&;{}!$*]{0,255}")


def _rules(inputs: Inputs) -> Iterator[tuple[str, Any]]:
    """Each rule with the path of its keys: the resource itself, or the inline ones."""
    if (
        read(inputs, "fromPort") is not None
        or read(inputs, "ipProtocol") is not None
        or read(inputs, "protocol")
    ):
        yield "", inputs
    for direction in ("ingress", "egress"):
        for at, rule in leaves(inputs, f"{direction}[*]"):
            if rule is not UNKNOWN and rule is not None:
                yield f"{at}.", rule


def _protocol(rule: Any) -> str | None:
    value = read(rule, "ipProtocol")
    value = read(rule, "protocol") if value is None else value
    return None if value is UNKNOWN or value is None else str(value).lower()


def ports_are_in_order(inputs: Inputs) -> Iterator[Found]:
    """`fromPort` is not above `toPort`."""
    for at, rule in _rules(inputs):
        first, last = number(read(rule, "fromPort")), number(read(rule, "toPort"))
        if first is not None and last is not None and first > last and _protocol(rule) not in ICMP:
            yield f"{at}fromPort: {first:g} is above toPort {last:g}"


def ports_exist(inputs: Inputs) -> Iterator[Found]:
    """From 0 to 65535; -1 with ICMP and with all protocols only."""
    for at, rule in _rules(inputs):
        protocol = _protocol(rule)
        for key in ("fromPort", "toPort"):
            port = number(read(rule, key))
            least = -1 if protocol is None or protocol in (*ICMP, *ALL) else 0
            if port is not None and not least <= port <= MAX_PORT:
                yield f"{at}{key}: {port:g} is no port"


def tcp_and_udp_name_their_ports(inputs: Inputs) -> Iterator[Found]:
    """TCP and UDP without ports: EC2 refuses the rule."""
    for at, rule in _rules(inputs):
        if _protocol(rule) in ("tcp", "udp", "6", "17"):
            for key in ("fromPort", "toPort"):
                if read(rule, key) is None:
                    yield f"{at}{key}: missing for protocol {_protocol(rule)}"


def rule_descriptions_are_plain(inputs: Inputs) -> Iterator[Found]:
    """At most 255 characters out of letters, digits, spaces and ._-:/()#,@[]+=&;{}!$*."""
    texts = [("description", read(inputs, "description"))]
    texts += [(f"{at}description", read(rule, "description")) for at, rule in _rules(inputs) if at]
    for at, text in texts:
        if known(text) is not None and not DESCRIPTION.fullmatch(str(text)):
            yield f"{at}: has characters that EC2 refuses, or more than 255"


_ALL = frozenset({INGRESS, EGRESS, OLD, GROUP, DEFAULT})
VALIDATORS = (
    Validator(ports_are_in_order, _ALL, "the lower port first"),
    Validator(ports_exist, _ALL, "ports from 0 to 65535"),
    Validator(tcp_and_udp_name_their_ports, _ALL, "from_port and to_port, or ip_protocol='-1'"),
    Validator(rule_descriptions_are_plain, _ALL, "a short plain description"),
)
