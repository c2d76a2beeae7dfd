"""Breaks every rule once."""

import base64
import json

import pulumi_aws as aws

aws.s3.Bucket("bare", bucket="bare-bucket-123456789012")
aws.cloudwatch.LogGroup("endless", name="/endless")
vpc = aws.ec2.Vpc("vpc", cidr_block="10.0.0.0/16")
subnet = aws.ec2.Subnet("public", vpc_id=vpc.id, cidr_block="10.1.0.0/24", map_public_ip_on_launch=True)
inline = aws.ec2.SecurityGroup("inline", vpc_id=vpc.id, ingress=[], description="inline rules")
nodes = aws.ec2.SecurityGroup("nodes", vpc_id=vpc.id, description="no rules to itself")
aws.vpc.SecurityGroupIngressRule("ssh", security_group_id=nodes.id, ip_protocol="-1", cidr_ipv4="0.0.0.0/0")
role = aws.iam.Role("role", assume_role_policy=json.dumps({"Version": "2012-10-17", "Statement": []}))
everything = {"Effect": "Allow", "Action": ["*"], "Resource": ["*"]}
aws.iam.RolePolicy(
    "everything", role=role.id, policy=json.dumps({"Version": "2012-10-17", "Statement": [everything]})
)
template = aws.ec2.LaunchTemplate(
    "template",
    image_id="resolve:ssm:/images/pytorch",
    instance_type="p4d.24xlarge",
    user_data=base64.b64encode(b"#!/bin/bash\nexport DB_PASSWORD=correct-horse-battery\n").decode(),
    network_interfaces=[{"interface_type": "efa", "device_index": 0, "security_groups": [nodes.id]}],
)
aws.autoscaling.Group(
    "group",
    min_size=0,
    max_size=1,
    vpc_zone_identifiers=[subnet.id],
    mixed_instances_policy={
        "instances_distribution": {"on_demand_percentage_above_base_capacity": 0},
        "launch_template": {
            "launch_template_specification": {"launch_template_id": template.id, "version": "$Latest"}
        },
    },
)
