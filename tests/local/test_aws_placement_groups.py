"""Placement groups can be created, described and deleted."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from localcloud.aws.server import AwsServer
from tests.local.cloud_kit import client


@pytest.fixture(scope="module")
def aws() -> Any:
    with AwsServer() as server:
        yield server


def test_a_placement_group_lives_from_creation_to_deletion(aws: AwsServer) -> None:
    ec2 = client("ec2", aws.endpoint)
    tags = [{"ResourceType": "placement-group", "Tags": [{"Key": "stack", "Value": "test"}]}]
    made = ec2.create_placement_group(GroupName="near", Strategy="cluster", TagSpecifications=tags)
    assert made["PlacementGroup"]["State"] == "available"
    (found,) = ec2.describe_placement_groups(GroupNames=["near"])["PlacementGroups"]
    assert (found["Strategy"], found["Tags"]) == ("cluster", [{"Key": "stack", "Value": "test"}])
    with pytest.raises(ClientError, match=r"InvalidPlacementGroup\.Duplicate"):
        ec2.create_placement_group(GroupName="near", Strategy="cluster")
    ec2.delete_placement_group(GroupName="near")
    assert ec2.describe_placement_groups()["PlacementGroups"] == []
    with pytest.raises(ClientError, match=r"InvalidPlacementGroup\.Unknown"):
        ec2.describe_placement_groups(GroupNames=["near"])


def test_a_strategy_that_does_not_exist_is_refused(aws: AwsServer) -> None:
    with pytest.raises(ClientError, match="InvalidParameterValue"):
        client("ec2", aws.endpoint).create_placement_group(GroupName="odd", Strategy="nearby")
