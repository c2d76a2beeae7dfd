"""EC2 networking.

As of 2026-11: pulumi_aws 7.51.1 for properties, the Terraform AWS provider 6's schemas for replacement.
"""

from __future__ import annotations

from .build import arn, row

_RULE_SOURCES = frozenset({"cidrIpv4", "cidrIpv6", "prefixListId", "referencedSecurityGroupId"})


def _rule(direction: str) -> tuple[str, str, dict[str, str]]:
    outputs = {"arn": arn("ec2", "security-group-rule/{id}"), "securityGroupRuleId": "{id}"}
    type_ = f"aws:vpc/securityGroup{direction}Rule:SecurityGroup{direction}Rule"
    return type_, "sgr-{hex17}", outputs


KINDS = (
    row(
        "aws:ec2/vpc:Vpc",
        "vpc-{hex17}",
        {
            "arn": arn("ec2", "vpc/{id}"),
            "defaultNetworkAclId": "acl-{hex17}",
            "defaultRouteTableId": "rtb-{hex17}",
            "defaultSecurityGroupId": "sg-{hex17}",
            "dhcpOptionsId": "dopt-{hex17}",
            "ipv6AssociationId": "",
            "mainRouteTableId": "rtb-{hex17}",
            "ownerId": "{account}",
        },
        replace="cidrBlock instanceTenancy ipv4IpamPoolId ipv4NetmaskLength",
        taggable=True,
        held="realised",
    ),
    row(
        "aws:ec2/subnet:Subnet",
        "subnet-{hex17}",
        {"arn": arn("ec2", "subnet/{id}"), "ipv6CidrBlockAssociationId": "", "ownerId": "{account}"},
        filled={"availabilityZone": "{region}a", "availabilityZoneId": "{region}-az1"},
        replace="vpcId cidrBlock availabilityZone availabilityZoneId ipv4IpamPoolId ipv4NetmaskLength "
        "ipv6IpamPoolId ipv6Native ipv6NetmaskLength outpostArn",
        taggable=True,
        held="realised",
    ),
    row(
        "aws:ec2/internetGateway:InternetGateway",
        "igw-{hex17}",
        {"arn": arn("ec2", "internet-gateway/{id}"), "ownerId": "{account}"},
        filled={"vpcId": ""},
        taggable=True,
        held="realised",
    ),
    row(
        "aws:ec2/eip:Eip",
        "eipalloc-{hex17}",
        {
            "allocationId": "{id}",
            "arn": arn("ec2", "elastic-ip/{id}"),
            "associationId": "",
            "carrierIp": "",
            "customerOwnedIp": "",
            "privateDns": "",
            "privateIp": "",
            "ptrRecord": "",
            "publicDns": "ec2-192-0-2-1.compute.{dns}",
            "publicIp": "192.0.2.1",
        },
        replace="address customerOwnedIpv4Pool domain ipamPoolId networkBorderGroup publicIpv4Pool",
        taggable=True,
        held="realised",
    ),
    row(
        "aws:ec2/natGateway:NatGateway",
        "nat-{hex17}",
        {
            "associationId": "eipassoc-{hex17}",
            "autoProvisionZones": "",
            "autoScalingIps": "",
            "networkInterfaceId": "eni-{hex17}",
            "publicIp": "192.0.2.1",
            "regionalNatGatewayAddresses": [],
            "regionalNatGatewayAutoMode": "",
            "routeTableId": "",
        },
        filled={"privateIp": "10.0.0.10"},
        replace="allocationId availabilityMode connectivityType privateIp secondaryPrivateIpAddressCount "
        "subnetId vpcId",
        taggable=True,
        held="realised",
    ),
    row(
        "aws:ec2/routeTable:RouteTable",
        "rtb-{hex17}",
        {"arn": arn("ec2", "route-table/{id}"), "ownerId": "{account}"},
        replace="vpcId",
        taggable=True,
        held="realised",
    ),
    row(
        "aws:ec2/route:Route",
        "r-{in[routeTableId]}{hex8}",
        {"instanceId": "", "instanceOwnerId": "", "origin": "CreateRoute", "state": "active"},
        replace="routeTableId destinationCidrBlock destinationIpv6CidrBlock destinationPrefixListId",
        held="realised",
    ),
    row(
        "aws:ec2/routeTableAssociation:RouteTableAssociation",
        "rtbassoc-{hex17}",
        replace="subnetId gatewayId",
        held="realised",
    ),
    row(
        "aws:ec2/vpcEndpoint:VpcEndpoint",
        "vpce-{hex17}",
        {
            "arn": arn("ec2", "vpc-endpoint/{id}"),
            "cidrBlocks": [],
            "dnsEntries": [],
            "networkInterfaceIds": [],
            "ownerId": "{account}",
            "prefixListId": "pl-{hex8}",
            "requesterManaged": False,
            "state": "available",
        },
        replace="vpcId serviceName vpcEndpointType serviceRegion resourceConfigurationArn serviceNetworkArn",
        taggable=True,
        held="realised",
    ),
    row(
        "aws:ec2/securityGroup:SecurityGroup",
        "sg-{hex17}",
        {"arn": arn("ec2", "security-group/{id}"), "ownerId": "{account}"},
        replace="description namePrefix vpcId",
        name="name",
        filled={"vpcId": "", "description": "Managed by Pulumi"},
        taggable=True,
        held="realised",
    ),
    row(
        "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup",
        "sg-{hex17}",
        {
            "arn": arn("ec2", "security-group/{id}"),
            "description": "default VPC security group",
            "name": "default",
            "namePrefix": "",
            "ownerId": "{account}",
        },
        replace="vpcId",
        taggable=True,
        held="realised",
    ),
    row(
        *_rule("Ingress"),
        replace="securityGroupId",
        exclusive=_RULE_SOURCES,
        taggable=True,
        held="realised",
    ),
    row(
        *_rule("Egress"),
        replace="securityGroupId",
        exclusive=_RULE_SOURCES,
        taggable=True,
        held="realised",
    ),
    row(
        "aws:ec2/flowLog:FlowLog",
        "fl-{hex17}",
        {"arn": arn("ec2", "vpc-flow-log/{id}")},
        replace="deliverCrossAccountRole destinationOptions eniId iamRoleArn logDestination "
        "logDestinationType logFormat maxAggregationInterval regionalNatGatewayId subnetId trafficType "
        "transitGatewayAttachmentId transitGatewayId vpcId",
        taggable=True,
        held="realised",
    ),
)
