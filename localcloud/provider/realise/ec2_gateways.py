"""Internet gateways, elastic addresses and NAT gateways."""

from __future__ import annotations

from .call import Call, Made, Realiser, first
from .ec2_network import retag, tag_specification


def _internet_gateway_create(call: Call) -> Made:
    ec2 = call.clients("ec2")
    made = ec2.create_internet_gateway(TagSpecifications=tag_specification(call, "internet-gateway"))
    gateway = made["InternetGateway"]["InternetGatewayId"]
    if call["vpcId"]:
        ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=call["vpcId"])
    return gateway, {}


def _internet_gateway_update(call: Call) -> None:
    ec2 = call.clients("ec2")
    if call.changed("vpcId"):
        if call.state("vpcId"):
            ec2.detach_internet_gateway(InternetGatewayId=call.id, VpcId=call.outputs["vpcId"])
        if call["vpcId"]:
            ec2.attach_internet_gateway(InternetGatewayId=call.id, VpcId=call["vpcId"])
    retag(call)


def _internet_gateway_delete(call: Call) -> None:
    ec2 = call.clients("ec2")
    found = ec2.describe_internet_gateways(InternetGatewayIds=[call.id])["InternetGateways"][0]
    for attachment in found.get("Attachments", []):
        ec2.detach_internet_gateway(InternetGatewayId=call.id, VpcId=attachment["VpcId"])
    ec2.delete_internet_gateway(InternetGatewayId=call.id)


def _address_create(call: Call) -> Made:
    ec2 = call.clients("ec2")
    made = ec2.allocate_address(Domain="vpc", TagSpecifications=tag_specification(call, "elastic-ip"))
    return made["AllocationId"], {"publicIp": made["PublicIp"]}


def _nat_create(call: Call) -> Made:
    ec2 = call.clients("ec2")
    wanted = call.fit("ec2", "CreateNatGateway", {"privateIp": "PrivateIpAddress"})
    made = ec2.create_nat_gateway(**wanted, TagSpecifications=tag_specification(call, "natgateway"))[
        "NatGateway"
    ]
    real = {}
    if addresses := made.get("NatGatewayAddresses"):
        names = (
            ("publicIp", "PublicIp"),
            ("privateIp", "PrivateIp"),
            ("networkInterfaceId", "NetworkInterfaceId"),
        )
        real = {key: addresses[0][api] for key, api in names if addresses[0].get(api)}
    return made["NatGatewayId"], real


REALISERS: dict[str, Realiser] = {
    "aws:ec2/internetGateway:InternetGateway": Realiser(
        _internet_gateway_create,
        _internet_gateway_delete,
        lambda call: call.clients("ec2").describe_internet_gateways(InternetGatewayIds=[call.id]),
        _internet_gateway_update,
    ),
    "aws:ec2/eip:Eip": Realiser(
        _address_create,
        lambda call: call.clients("ec2").release_address(AllocationId=call.id),
        lambda call: call.clients("ec2").describe_addresses(AllocationIds=[call.id]),
        retag,
    ),
    "aws:ec2/natGateway:NatGateway": Realiser(
        _nat_create,
        lambda call: call.clients("ec2").delete_nat_gateway(NatGatewayId=call.id),
        lambda call: first(call.clients("ec2").describe_nat_gateways(NatGatewayIds=[call.id])["NatGateways"]),
        retag,
    ),
}
