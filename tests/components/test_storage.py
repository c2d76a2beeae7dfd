"""Buckets and the key: what keeps data in, whole, and only for as long as wanted."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from components.settings import load
from components.storage.buckets import (
    SecureBucket,
    SecureBucketArgs,
    artifacts_are_retained,
    artifacts_bucket_args,
    dataset_bucket_args,
)
from components.storage.encryption_key import EncryptionKey, encryption_key_args
from tests.components.kit import Recording, record
from tests.unit.stack_files import minimal

BUCKET = "aws:s3/bucket:Bucket"
KEY_ARN = "arn:aws:kms:us-east-1:123456789012:key/1234"


@cache  # a recording is only read
def bucket(retain: bool = True, kms_key_arn: str | None = None) -> Recording:
    args = SecureBucketArgs("some-bucket", "us-east-1", 30, retain, kms_key_arn)
    recording = record(lambda: SecureBucket("data", args))
    recording.assert_sound()
    return recording


def setting(recording: Recording, name: str) -> dict[str, Any]:
    """The inputs of `Bucket<name>`, the resource beside the bucket."""
    (found,) = [r for r in recording.custom() if r.type.endswith(f":Bucket{name}")]
    assert found.inputs["bucket"] == "some-bucket"
    return found.inputs


class TestABucket:
    def test_is_closed_to_the_public_in_all_four_ways(self) -> None:
        block = setting(bucket(), "PublicAccessBlock")
        assert [v for k, v in block.items() if k != "bucket"] == [True] * 4

    def test_belongs_to_its_owner_whoever_writes(self) -> None:
        assert setting(bucket(), "OwnershipControls")["rule"] == {"objectOwnership": "BucketOwnerEnforced"}

    def test_keeps_versions(self) -> None:
        assert setting(bucket(), "Versioning")["versioningConfiguration"] == {"status": "Enabled"}

    def test_refuses_requests_without_tls(self) -> None:
        recording = bucket()
        (statement,) = recording.one("aws:s3/bucketPolicy:BucketPolicy").policy()
        assert statement["Effect"] == "Deny" and statement["Principal"] == "*"
        assert statement["Resource"] == ["arn:aws:s3:::some-bucket", "arn:aws:s3:::some-bucket/*"]
        assert statement["Condition"] == {"Bool": {"aws:SecureTransport": ["false"]}}

    @pytest.mark.parametrize("key", [None, KEY_ARN])
    def test_is_encrypted_with_the_given_key_or_s3s_own_and_one_call_serves_many(
        self, key: str | None
    ) -> None:
        (rule,) = setting(bucket(kms_key_arn=key), "ServerSideEncryptionConfiguration")["rules"]
        default = rule["applyServerSideEncryptionByDefault"]
        assert default["sseAlgorithm"] == "aws:kms" and default.get("kmsMasterKeyId") == key
        assert rule["bucketKeyEnabled"] is True

    def test_forgets_broken_uploads_and_old_versions(self) -> None:
        lifecycle = setting(bucket(), "LifecycleConfiguration")
        rules = {rule["id"]: rule for rule in lifecycle["rules"]}
        assert all(rule["status"] == "Enabled" for rule in rules.values())
        abort = rules["abort-incomplete-uploads"]["abortIncompleteMultipartUpload"]
        assert abort == {"daysAfterInitiation": 7}
        expiry = rules["expire-noncurrent-versions"]["noncurrentVersionExpiration"]
        assert expiry == {"noncurrentDays": 30}
        assert lifecycle["transitionDefaultMinimumObjectSize"] == "all_storage_classes_128K"

    def test_gets_its_settings_one_after_another(self) -> None:
        """S3 answers 409 to settings of one bucket that are written at the same time."""
        recording = bucket()
        settings = [r for r in recording.custom() if r.type != BUCKET]
        waits = {r.name: r.depends_on & {other.name for other in recording.custom()} for r in settings}
        order = [
            "data-ownership",
            "data-public-access",
            "data-versioning",
            "data-encryption",
            "data-tls-only",
        ]
        chain = ["data-bucket", *order, "data-lifecycle"]
        assert all(chain[place] in waits[chain[place + 1]] for place in range(len(chain) - 1))

    def test_has_no_setting_inline(self) -> None:
        assert bucket().one(BUCKET).inputs.keys() == {"bucket", "forceDestroy", "tags"}

    def test_a_name_with_a_dot_is_refused(self) -> None:
        with pytest.raises(ValueError, match="has a dot"):
            record(lambda: SecureBucket("data", SecureBucketArgs("a.b", "us-east-1", 30, True)))


class TestRetention:
    def test_a_retained_bucket_is_protected_and_stays_with_its_locks(self) -> None:
        recording = bucket(retain=True)
        assert recording.one(BUCKET).request.protect and not recording.one(BUCKET).inputs["forceDestroy"]
        assert all(r.request.retainOnDelete for r in recording.custom())

    def test_another_one_goes_with_everything_in_it(self) -> None:
        recording = bucket(retain=False)
        assert recording.one(BUCKET).inputs["forceDestroy"] and not recording.one(BUCKET).request.protect
        assert not any(r.request.retainOnDelete for r in recording.custom())

    @pytest.mark.parametrize(
        ("datasets", "retained"), [([], True), ([False], False), ([True], True), ([False, True], True)]
    )
    def test_artifacts_stay_where_any_dataset_does(self, datasets: list[bool], retained: bool) -> None:
        config = minimal()
        config["datasets"] = [{"name": f"d{n}", "retain": retain} for n, retain in enumerate(datasets)]
        settings = load("test", config)
        assert artifacts_are_retained(settings) == retained
        assert artifacts_bucket_args(settings, None).retain == retained

    def test_a_datasets_bucket_is_as_its_dataset_says(self) -> None:
        config = minimal()
        config["datasets"] = [{"name": "shapes", "retain": False, "noncurrentExpiryDays": 90}]
        settings = load("test", config)
        args = dataset_bucket_args(settings, settings.datasets[0], KEY_ARN)
        assert (args.bucket_name, args.retain) == ("gputrain-test-data-shapes-123456789012", False)
        assert (args.noncurrent_expiry_days, args.kms_key_arn) == (90, KEY_ARN)


class TestTheKey:
    def key(self) -> Recording:
        recording = record(lambda: EncryptionKey("key", encryption_key_args(load("test", minimal()))))
        recording.assert_sound()
        return recording

    def test_rotates_and_takes_the_longest_time_to_go(self) -> None:
        key = self.key().one("aws:kms/key:Key")
        assert key.inputs["enableKeyRotation"] and key.inputs["deletionWindowInDays"] == 30

    def test_stays_with_the_buckets_that_nobody_could_read_without_it(self) -> None:
        key = self.key().one("aws:kms/key:Key")
        assert key.request.protect and key.request.retainOnDelete

    def test_lets_auto_scaling_use_it_and_grant_it_to_volumes_only(self) -> None:
        statements = self.key().one("aws:kms/key:Key").policy()
        role = "arn:aws:iam::123456789012:role/aws-service-role/autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling"
        mine = {s["Sid"]: s for s in statements if s["Principal"] == {"AWS": [role]}}
        assert "kms:Decrypt" in mine["AutoScalingUsesVolumes"]["Action"]
        grant = mine["AutoScalingAttachesVolumes"]
        assert grant["Action"] == ["kms:CreateGrant"]
        assert grant["Condition"] == {"Bool": {"kms:GrantIsForAWSResource": ["true"]}}

    def test_everybody_else_is_the_accounts_own_business(self) -> None:
        principals = [s["Principal"] for s in self.key().one("aws:kms/key:Key").policy()]
        assert all("123456789012" in p["AWS"][0] for p in principals) and len(principals) == 3
