"""VPC, subnets, route tables, endpoints and flow logs."""

from __future__ import annotations

from typing import Any

from ..values import Tree
from .call import Call, Made, Realiser, first


def tag_specification(call: Call, resource: str) -> list[dict[str, Any]]:
    """`TagSpecifications` of a creating EC2 call; empty where there are no tags."""
    return [{"ResourceType": resource, "Tags": call.tag_list()}] if call.tags else []


def retag(call: Call) -> None:
    """Bring the tags of an existing EC2 resource in line."""
    changed, gone = call.tag_changes()
    if changed:
        call.clients("ec2").create_tags(Resources=[call.id], Tags=changed)
    if gone:
        call.clients("ec2").delete_tags(Resources=[call.id], Tags=[{"Key": key} for key in gone])


def _vpc_create(call: Call) -> Made:
    ec2 = call.clients("ec2")
    made = ec2.create_vpc(
        CidrBlock=call["cidrBlock"],
        InstanceTenancy=call["instanceTenancy"] or "default",
        TagSpecifications=tag_specification(call, "vpc"),
    )["Vpc"]
    vpc = made["VpcId"]
    _vpc_attributes(call, vpc)
    inside = [{"Name": "vpc-id", "Values": [vpc]}]
    group = ec2.describe_security_groups(Filters=[*inside, {"Name": "group-name", "Values": ["default"]}])
    main = ec2.describe_route_tables(Filters=[*inside, {"Name": "association.main", "Values": ["true"]}])
    acl = ec2.describe_network_acls(Filters=[*inside, {"Name": "default", "Values": ["true"]}])
    table = main["RouteTables"][0]["RouteTableId"]
    return vpc, {
        "defaultSecurityGroupId": group["SecurityGroups"][0]["GroupId"],
        "defaultRouteTableId": table,
        "mainRouteTableId": table,
        "defaultNetworkAclId": acl["NetworkAcls"][0]["NetworkAclId"],
        "dhcpOptionsId": made.get("DhcpOptionsId", "default"),
    }


def _vpc_attributes(call: Call, vpc: str) -> None:
    for key, parameter in (
        ("enableDnsSupport", "EnableDnsSupport"),
        ("enableDnsHostnames", "EnableDnsHostnames"),
    ):
        if call[key] is not None and call.changed(key):
            call.clients("ec2").modify_vpc_attribute(VpcId=vpc, **{parameter: {"Value": call[key]}})


def _vpc_update(call: Call) -> None:
    _vpc_attributes(call, call.id)
    retag(call)


def _subnet_create(call: Call) -> Made:
    zone = {"AvailabilityZone": call["availabilityZone"]} if call["availabilityZone"] else {}
    if call["availabilityZoneId"]:
        zone = {"AvailabilityZoneId": call["availabilityZoneId"]}
    made = call.clients("ec2").create_subnet(
        VpcId=call["vpcId"],
        CidrBlock=call["cidrBlock"],
        TagSpecifications=tag_specification(call, "subnet"),
        **zone,
    )["Subnet"]
    _subnet_public(call, made["SubnetId"])
    real = {"availabilityZone": made["AvailabilityZone"], "availabilityZoneId": made["AvailabilityZoneId"]}
    return made["SubnetId"], real


def _subnet_public(call: Call, subnet: str) -> None:
    if call["mapPublicIpOnLaunch"] is not None and call.changed("mapPublicIpOnLaunch"):
        call.clients("ec2").modify_subnet_attribute(
            SubnetId=subnet, MapPublicIpOnLaunch={"Value": call["mapPublicIpOnLaunch"]}
        )


def _subnet_update(call: Call) -> None:
    _subnet_public(call, call.id)
    retag(call)


def _route_table_create(call: Call) -> Made:
    ec2 = call.clients("ec2")
    table = ec2.create_route_table(
        VpcId=call["vpcId"], TagSpecifications=tag_specification(call, "route-table")
    )
    return table["RouteTable"]["RouteTableId"], {}


_TARGETS = {
    "gatewayId": "GatewayId",
    "natGatewayId": "NatGatewayId",
    "networkInterfaceId": "NetworkInterfaceId",
    "vpcEndpointId": "VpcEndpointId",
    "vpcPeeringConnectionId": "VpcPeeringConnectionId",
    "transitGatewayId": "TransitGatewayId",
}
_DESTINATIONS = {
    "destinationCidrBlock": "DestinationCidrBlock",
    "destinationIpv6CidrBlock": "DestinationIpv6CidrBlock",
    "destinationPrefixListId": "DestinationPrefixListId",
}


def _destination(call: Call) -> dict[str, str]:
    return {api: call.state(key) for key, api in _DESTINATIONS.items() if call.state(key)}


def _route(call: Call) -> dict[str, str]:
    target = {api: call[key] for key, api in _TARGETS.items() if call[key]}
    return {"RouteTableId": call["routeTableId"], **_destination(call), **target}


def _route_create(call: Call) -> Made:
    call.clients("ec2").create_route(**_route(call))
    return f"r-{call['routeTableId']}{sum(next(iter(_destination(call).values())).encode()):08d}", {}


def _route_delete(call: Call) -> None:
    call.clients("ec2").delete_route(RouteTableId=call.state("routeTableId"), **_destination(call))


def _read_table(call: Call, table: str) -> Any:
    return call.clients("ec2").describe_route_tables(RouteTableIds=[table])


def _association_create(call: Call) -> Made:
    made = call.clients("ec2").associate_route_table(
        RouteTableId=call["routeTableId"], SubnetId=call["subnetId"]
    )
    return made["AssociationId"], {}


def _association(call: Call) -> str:
    """The subnet's association. EC2 gives it a new id each time the table changes, so it is found by the subnet."""
    of_subnet = [{"Name": "association.subnet-id", "Values": [call.state("subnetId")]}]
    table = first(call.clients("ec2").describe_route_tables(Filters=of_subnet)["RouteTables"])
    return next(
        association["RouteTableAssociationId"]
        for association in table["Associations"]
        if association.get("SubnetId") == call.state("subnetId")
    )


def _association_update(call: Call) -> None:
    call.clients("ec2").replace_route_table_association(
        AssociationId=_association(call), RouteTableId=call["routeTableId"]
    )


def _endpoint_create(call: Call) -> Made:
    ec2 = call.clients("ec2")
    wanted = call.fit("ec2", "CreateVpcEndpoint", {"policy": "PolicyDocument"}, "autoAccept")
    made = ec2.create_vpc_endpoint(**wanted, TagSpecifications=tag_specification(call, "vpc-endpoint"))[
        "VpcEndpoint"
    ]
    service = [{"Name": "prefix-list-name", "Values": [made["ServiceName"]]}]
    lists = ec2.describe_managed_prefix_lists(Filters=service)["PrefixLists"]
    real: dict[str, Tree] = {"networkInterfaceIds": made.get("NetworkInterfaceIds", [])}
    if lists:
        real["prefixListId"] = lists[0]["PrefixListId"]
    return made["VpcEndpointId"], real


def _endpoint_read(call: Call) -> Any:
    return first(call.clients("ec2").describe_vpc_endpoints(VpcEndpointIds=[call.id])["VpcEndpoints"])


def _endpoint_update(call: Call) -> None:
    changes: dict[str, Any] = {}
    for key, api in (("routeTableIds", "RouteTableIds"), ("subnetIds", "SubnetIds")):
        old, new = set(call.old_inputs.get(key) or []), set(call[key] or [])
        changes |= {f"Add{api}": sorted(new - old)} if new - old else {}
        changes |= {f"Remove{api}": sorted(old - new)} if old - new else {}
    if call.changed("policy"):
        changes |= {"PolicyDocument": call["policy"]} if call["policy"] else {"ResetPolicy": True}
    if changes:
        call.clients("ec2").modify_vpc_endpoint(VpcEndpointId=call.id, **changes)
    retag(call)


def _flow_log_create(call: Call) -> Made:
    subject = next(key for key in ("vpcId", "subnetId", "eniId") if call[key])
    kind = {"vpcId": "VPC", "subnetId": "Subnet", "eniId": "NetworkInterface"}[subject]
    wanted = {
        "ResourceIds": [call[subject]],
        "ResourceType": kind,
        "TrafficType": call["trafficType"] or "ALL",
        "LogDestinationType": call["logDestinationType"] or "cloud-watch-logs",
        "DeliverLogsPermissionArn": call["iamRoleArn"],
        "LogDestination": call["logDestination"],
        "LogFormat": call["logFormat"],
        "MaxAggregationInterval": call["maxAggregationInterval"],
        "TagSpecifications": tag_specification(call, "vpc-flow-log"),
    }
    if wanted["LogDestinationType"] == "cloud-watch-logs" and wanted["LogDestination"]:
        wanted["LogGroupName"] = wanted.pop("LogDestination").split(":log-group:")[1].removesuffix(":*")
    made = call.clients("ec2").create_flow_logs(**{key: value for key, value in wanted.items() if value})
    if made.get("Unsuccessful"):
        raise ValueError(made["Unsuccessful"][0]["Error"]["Message"])
    return made["FlowLogIds"][0], {}


REALISERS: dict[str, Realiser] = {
    "aws:ec2/vpc:Vpc": Realiser(
        _vpc_create,
        lambda call: call.clients("ec2").delete_vpc(VpcId=call.id),
        lambda call: call.clients("ec2").describe_vpcs(VpcIds=[call.id]),
        _vpc_update,
    ),
    "aws:ec2/subnet:Subnet": Realiser(
        _subnet_create,
        lambda call: call.clients("ec2").delete_subnet(SubnetId=call.id),
        lambda call: call.clients("ec2").describe_subnets(SubnetIds=[call.id]),
        _subnet_update,
    ),
    "aws:ec2/routeTable:RouteTable": Realiser(
        _route_table_create,
        lambda call: call.clients("ec2").delete_route_table(RouteTableId=call.id),
        lambda call: _read_table(call, call.id),
        retag,
    ),
    "aws:ec2/route:Route": Realiser(
        _route_create,
        _route_delete,
        lambda call: _read_table(call, call.state("routeTableId")),
        lambda call: call.clients("ec2").replace_route(**_route(call)),
    ),
    "aws:ec2/routeTableAssociation:RouteTableAssociation": Realiser(
        _association_create,
        lambda call: call.clients("ec2").disassociate_route_table(AssociationId=_association(call)),
        _association,
        _association_update,
    ),
    "aws:ec2/vpcEndpoint:VpcEndpoint": Realiser(
        _endpoint_create,
        lambda call: call.clients("ec2").delete_vpc_endpoints(VpcEndpointIds=[call.id]),
        _endpoint_read,
        _endpoint_update,
    ),
    "aws:ec2/flowLog:FlowLog": Realiser(
        _flow_log_create,
        lambda call: call.clients("ec2").delete_flow_logs(FlowLogIds=[call.id]),
        lambda call: first(call.clients("ec2").describe_flow_logs(FlowLogIds=[call.id])["FlowLogs"]),
        retag,
    ),
}
