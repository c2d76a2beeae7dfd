"""Deleting a stack with data, by the real engine: it asks for an explicit switch, and says which."""

from __future__ import annotations

from pathlib import Path

import boto3

from localcloud.aws.server import AwsServer
from localcloud.engine.pulumi import Engine
from localcloud.toolchain import ROOT, Paths

BUCKET = "gputrain-test-data-shapes-123456789012"
PROGRAM = f"""
import sys

sys.path.insert(0, {str(ROOT)!r})
import pulumi
import pulumi_aws as aws

from components.storage.buckets import SecureBucket, SecureBucketArgs

provider = aws.Provider("aws", region="us-east-1", allowed_account_ids=["123456789012"])
SecureBucket("data", SecureBucketArgs("{BUCKET}", "us-east-1", 30, True), pulumi.ResourceOptions(provider=provider))
"""


def test_a_stack_with_retained_data_is_not_destroyed_and_the_bucket_is_named(
    tools: Paths, tmp_path: Path
) -> None:
    """Without `retain: false`; that it then goes, components/test_storage.py has: nothing is protected any more."""
    project = tmp_path / "program"
    project.mkdir()
    (project / "Pulumi.yaml").write_text("name: probe\nruntime: python\n")
    (project / "Pulumi.local.yaml").write_text("config: {}\n")
    (project / "__main__.py").write_text(PROGRAM)
    with AwsServer() as aws:
        pulumi = Engine(
            tools,
            "local",
            tmp_path / "work",
            "local",
            project=project,
            endpoint=aws.endpoint,
            policy_pack=None,
        )
        up = pulumi.up()
        assert up.ok, up.text
        s3 = boto3.client(
            "s3",
            endpoint_url=aws.endpoint,
            region_name="us-east-1",
            aws_access_key_id="any",
            aws_secret_access_key="any",
        )
        s3.put_object(Bucket=BUCKET, Key="datasets/shapes/v1/manifest.json", Body=b"{}")
        destroyed = pulumi.destroy()
        assert not destroyed.ok
        assert "::data-bucket" in destroyed.text and "cannot be deleted" in destroyed.text
        assert "because it is protected" in destroyed.text
        assert s3.list_objects_v2(Bucket=BUCKET)["KeyCount"] == 1
        assert s3.get_bucket_policy(Bucket=BUCKET)["Policy"], "its settings stay as well"
