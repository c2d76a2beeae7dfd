"""Placement groups, which moto's EC2 lacks: created, described, deleted; no effect on placement."""

from __future__ import annotations

import uuid
from typing import Any

from moto.core.responses import ActionResult, EmptyResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.responses import EC2Response


def _store(response: EC2Response) -> dict[str, dict[str, Any]]:
    return response.ec2_backend.__dict__.setdefault("placement_groups", {})


def create_placement_group(response: EC2Response) -> ActionResult:
    name = response._get_param("GroupName")
    strategy = response._get_param("Strategy", "cluster")
    if name in _store(response):
        raise EC2ClientError(
            "InvalidPlacementGroup.Duplicate", f"The placement group '{name}' already exists."
        )
    if strategy not in ("cluster", "spread", "partition"):
        raise EC2ClientError(
            "InvalidParameterValue", f"Value ({strategy}) for parameter strategy is invalid."
        )
    tags = next(iter(response._get_param("TagSpecifications", [])), {}).get("Tags", [])
    group_id = f"pg-{uuid.uuid4().hex[:17]}"
    group = {
        "GroupName": name,
        "GroupId": group_id,
        "Strategy": strategy,
        "State": "available",
        "Tags": tags,
        "GroupArn": f"arn:aws:ec2:{response.region}:{response.current_account}:placement-group/{name}",
    }
    if strategy == "partition":
        group["PartitionCount"] = response._get_int_param("PartitionCount", 7)
    _store(response)[name] = group
    return ActionResult({"PlacementGroup": group})


def describe_placement_groups(response: EC2Response) -> ActionResult:
    names, ids = response._get_param("GroupNames", []), response._get_param("GroupIds", [])
    store = _store(response)
    for name in names:
        if name not in store:
            raise EC2ClientError("InvalidPlacementGroup.Unknown", f"The Placement Group '{name}' is unknown.")
    chosen = [
        group
        for group in store.values()
        if (not names or group["GroupName"] in names) and (not ids or group["GroupId"] in ids)
    ]
    return ActionResult({"PlacementGroups": chosen})


def delete_placement_group(response: EC2Response) -> ActionResult:
    name = response._get_param("GroupName")
    if _store(response).pop(name, None) is None:
        raise EC2ClientError("InvalidPlacementGroup.Unknown", f"The Placement Group '{name}' is unknown.")
    return EmptyResult()
