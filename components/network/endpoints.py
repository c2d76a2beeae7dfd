"""The VPC's endpoints: the ways to AWS's services that need no internet."""

from __future__ import annotations

from collections.abc import Sequence

import pulumi
import pulumi_aws as aws

from components.names import StackNames

from .endpoint_policies import interface_policy, s3_policy
from .vpc import Vpc, name_tag


def declare_s3_endpoint(
    name: str, names: StackNames, vpc: Vpc, parent: pulumi.Resource
) -> aws.ec2.VpcEndpoint:
    """The gateway endpoint of S3 for every route table: free of charge, and past any NAT gateway."""
    return aws.ec2.VpcEndpoint(
        f"{name}-s3",
        vpc_id=vpc.vpc_id,
        service_name=f"com.amazonaws.{names.region}.s3",
        vpc_endpoint_type="Gateway",
        route_table_ids=[table.id for table in vpc.tables],
        policy=s3_policy(names),
        tags=name_tag(names, "s3"),
        opts=pulumi.ResourceOptions(parent=parent),
    )


def declare_interface_endpoints(
    name: str,
    names: StackNames,
    vpc: Vpc,
    services: Sequence[str],
    security_group_id: pulumi.Output[str],
    parent: pulumi.Resource,
) -> list[pulumi.Resource]:
    """One endpoint a service, in every zone, under the service's own DNS name."""
    return [
        aws.ec2.VpcEndpoint(
            f"{name}-{service}",
            vpc_id=vpc.vpc_id,
            service_name=f"com.amazonaws.{names.region}.{service}",
            vpc_endpoint_type="Interface",
            private_dns_enabled=True,
            subnet_ids=list(vpc.private_subnet_ids.values()),
            security_group_ids=[security_group_id],
            policy=interface_policy(service, names.account_id),
            tags=name_tag(names, service),
            opts=pulumi.ResourceOptions(parent=parent),
        )
        for service in services
    ]
