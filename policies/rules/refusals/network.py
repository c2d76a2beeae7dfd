"""Blocks, endpoints and routes that EC2 refuses, looked at one by one; `aws_would_refuse_together` joins them."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Network

from .._judge import UNKNOWN, is_true, leaves, read
from ._validator import Found, Inputs, Validator, known

VPC, SUBNET, ENDPOINT = "aws:ec2/vpc:Vpc", "aws:ec2/subnet:Subnet", "aws:ec2/vpcEndpoint:VpcEndpoint"
LARGEST_PREFIX, SMALLEST_PREFIX = 16, 28


def block_is_of_a_possible_size(inputs: Inputs) -> Iterator[Found]:
    """From /16 to /28, beginning at its first address (VPC user guide, 2026)."""
    for at, text in leaves(inputs, "cidrBlock"):
        if known(text) is None:
            continue
        try:
            block = IPv4Network(str(text))
        except ValueError:
            yield f"{at}: '{text}' is no IPv4 block that begins at its first address"
            continue
        if not LARGEST_PREFIX <= block.prefixlen <= SMALLEST_PREFIX:
            yield f"{at}: {text} is outside /{LARGEST_PREFIX} to /{SMALLEST_PREFIX}"


def private_names_need_dns(inputs: Inputs) -> Iterator[Found]:
    """A VPC with DNS host names needs DNS support."""
    support, names = read(inputs, "enableDnsSupport"), read(inputs, "enableDnsHostnames")
    if support is False and names is not UNKNOWN and is_true(names):
        yield "enableDnsHostnames: true with enableDnsSupport false"


def endpoint_is_of_its_type(inputs: Inputs) -> Iterator[Found]:
    """Gateway endpoints have route tables, interface endpoints subnets and security groups; gateways are of S3 and
    DynamoDB only.
    """
    kind = known(read(inputs, "vpcEndpointType")) or "Gateway"
    service = str(known(read(inputs, "serviceName")) or "")
    if kind == "Gateway":
        for key in ("subnetIds", "securityGroupIds"):
            if known(read(inputs, key)):
                yield f"{key}: of a gateway endpoint"
        if is_true(known(read(inputs, "privateDnsEnabled"))):
            yield "privateDnsEnabled: of a gateway endpoint"
        if service and service.rpartition(".")[2] not in ("s3", "dynamodb", "s3express"):
            yield f"vpcEndpointType: {service} has no gateway endpoint"
    elif kind == "Interface" and known(read(inputs, "routeTableIds")):
        yield "routeTableIds: of an interface endpoint"


VALIDATORS = (
    Validator(block_is_of_a_possible_size, frozenset({VPC, SUBNET}), "a block from /16 to /28"),
    Validator(private_names_need_dns, frozenset({VPC}), "both true"),
    Validator(endpoint_is_of_its_type, frozenset({ENDPOINT}), "what belongs to the endpoint's type"),
)
