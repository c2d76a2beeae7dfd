"""Private DNS names of instances, as EC2 gives them: the metadata, DescribeInstances and the resolver say the same."""

from __future__ import annotations


def domain(region: str) -> str:
    """The private DNS names' domain, which is another one in the oldest region."""
    return "ec2.internal" if region == "us-east-1" else f"{region}.compute.internal"


def private_name(address: str, region: str) -> str:
    """`ip-10-0-0-1.ec2.internal` for a private IPv4."""
    return f"ip-{address.replace('.', '-')}.{domain(region)}"
