"""AWS calls as they leave the SDK, and what IAM would be asked for each.

Whose call it is, is told by its access key: a test gives nodes and researchers keys of their own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from botocore.client import BaseClient
from botocore.exceptions import ClientError

from components.names import StackNames
from tests.iam_rights import Access


@dataclass(frozen=True)
class Call:
    principal: str  # access key
    service: str  # IAM's prefix: s3, autoscaling, cloudwatch...
    operation: str
    parameters: Mapping[str, Any]
    absent: bool  # S3 has no such object


@contextmanager
def recorded() -> Iterator[list[Call]]:
    """All calls of this process while it lasts, from every thread and client; a call that is refused counts."""
    calls: list[Call] = []
    send: Callable[..., Any] = BaseClient._make_api_call  # type: ignore[attr-defined]

    def record(client: Any, operation: str, parameters: Mapping[str, Any]) -> Any:
        absent = False
        try:
            return send(client, operation, parameters)
        except ClientError as error:
            absent = error.response["ResponseMetadata"].get("HTTPStatusCode") == 404
            raise
        finally:
            principal = client._request_signer._credentials.access_key
            service = str(client.meta.service_model.signing_name)
            calls.append(
                Call(
                    principal,
                    {"monitoring": "cloudwatch"}.get(service, service),
                    operation,
                    parameters,
                    absent,
                )
            )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BaseClient, "_make_api_call", record)
        yield calls


class Asked:
    """What a call asks IAM for, with the names of a stack in place of the test's own bucket and groups."""

    def __init__(self, names: StackNames, group: str) -> None:
        self._names, self._group = names, group

    def for_call(self, call: Call) -> list[Access]:
        """Raises KeyError for an operation that no node and no researcher is known to call."""
        if call.service == "s3":
            return self._of_s3(call)
        given, action = call.parameters, f"{call.service}:{call.operation}"
        if call.service == "autoscaling":
            return [
                Access(action, "*" if call.operation.startswith("Describe") else self.group(), self._tag())
            ]
        if call.service == "cloudwatch":
            return [Access(action, "*", {"cloudwatch:namespace": given["Namespace"]})]
        if call.service == "logs":
            return [Access(action, self.log_stream(given["logStreamName"]))]
        if call.service == "sns":
            return [Access(action, given["TopicArn"])]
        if call.service == "secretsmanager":
            return [Access(action, self._names.arn("secretsmanager", f"secret:{given['SecretId']}-AbCdEf"))]
        raise KeyError(action)

    def group(self) -> str:
        name = self._names.auto_scaling_group(self._group)
        return self._names.arn("autoscaling", f"autoScalingGroup:12-ab:autoScalingGroupName/{name}")

    def log_stream(self, stream: str) -> str:
        return self._names.arn("logs", f"log-group:{self._names.node_log_group}:log-stream:{stream}")

    def object(self, key: str) -> str:
        return f"{self.bucket(key)}/{key}"

    def bucket(self, key: str) -> str:
        dataset = re.match(r"datasets/([^/]+)/", key)
        name = self._names.dataset_buckets[dataset[1]] if dataset else self._names.artifacts_bucket
        return f"arn:aws:s3:::{name}"

    def _tag(self) -> dict[str, str]:
        return {"autoscaling:ResourceTag/gpu-training:stack": self._names.base_name}

    def _of_s3(self, call: Call) -> list[Access]:
        given = call.parameters
        if call.operation == "ListObjectsV2":
            prefix = given["Prefix"]
            return [Access("s3:ListBucket", self.bucket(prefix), {"s3:prefix": prefix})]
        key = given["Key"]
        action = {
            "GetObject": "s3:GetObject",
            "HeadObject": "s3:GetObject",
            "PutObject": "s3:PutObject",
            "CreateMultipartUpload": "s3:PutObject",
            "UploadPart": "s3:PutObject",
            "CompleteMultipartUpload": "s3:PutObject",
            "AbortMultipartUpload": "s3:AbortMultipartUpload",
            "DeleteObject": "s3:DeleteObject",
        }[call.operation]
        context = {"s3:if-none-match": given["IfNoneMatch"]} if "IfNoneMatch" in given else {}
        asked = [Access(action, self.object(key), context)]
        if "IfMatch" in given and action == "s3:PutObject":
            asked.append(Access("s3:GetObject", self.object(key)))  # S3 user guide, conditional writes
        if call.absent:
            asked.append(Access("s3:ListBucket", self.bucket(key)))  # 403 instead of 404 to who may not list
        return asked
