"""Buckets and the key: what keeps data in, whole, and only for as long as wanted."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from components.settings import Settings, load
from components.storage.buckets import (
    SecureBucket,
    SecureBucketArgs,
    access_logs_bucket_args,
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


def stack(**changes: Any) -> Settings:
    return load("test", minimal() | changes)


@cache
def with_access_logs() -> Recording:
    """A bucket for access logs, and one that writes some."""
    log_args = access_logs_bucket_args(stack(accessLogs={"retentionDays": 14}))
    assert log_args is not None

    def program() -> None:
        logs = SecureBucket("logs", log_args)
        SecureBucket("data", SecureBucketArgs("some-bucket", "us-east-1", 30, True, access_logs=logs))

    recording = record(program)
    recording.assert_sound()
    return recording


def setting(recording: Recording, name: str, bucket: str = "some-bucket") -> dict[str, Any]:
    """The inputs of `Bucket<name>`, the resource beside the bucket."""
    (found,) = [
        r for r in recording.custom() if r.type.endswith(f":Bucket{name}") and r.inputs["bucket"] == bucket
    ]
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
        assert rules["expire-noncurrent-versions"]["expiration"] == {"expiredObjectDeleteMarker": True}
        assert lifecycle["transitionDefaultMinimumObjectSize"] == "all_storage_classes_128K"

    @pytest.mark.parametrize("recording", [bucket, with_access_logs])
    def test_has_one_lifecycle_configuration(self, recording: Callable[[], Recording]) -> None:
        """Report E9 (pulumi-aws#5187): two of them overwrite each other."""
        configured = [
            r.inputs["bucket"] for r in recording().custom() if r.type.endswith("LifecycleConfiguration")
        ]
        assert configured and len(configured) == len(set(configured))

    def test_does_not_take_its_lifecycle_rules_for_undeclared_ones_of_the_bucket(self) -> None:
        """Report E9b (pulumi-aws#6244): refresh reads them into the bucket, and the next update deletes them."""
        assert list(bucket().one(BUCKET).request.ignoreChanges) == ["lifecycleRules"]

    def test_gets_its_settings_one_after_another(self) -> None:
        """S3 answers 409 to settings of one bucket that are written at the same time."""
        recording = with_access_logs()
        settings = [r for r in recording.custom() if r.type != BUCKET and r.name.startswith("data-")]
        waits = {r.name: r.depends_on & {other.name for other in recording.custom()} for r in settings}
        order = [
            "data-ownership",
            "data-public-access",
            "data-versioning",
            "data-encryption",
            "data-tls-only",
        ]
        chain = ["data-bucket", *order, "data-lifecycle", "data-logging"]
        assert all(chain[place] in waits[chain[place + 1]] for place in range(len(chain) - 1))

    def test_has_no_setting_inline(self) -> None:
        assert bucket().one(BUCKET).inputs.keys() == {"bucket", "forceDestroy", "tags"}

    def test_a_name_with_a_dot_is_refused(self) -> None:
        """Report E12 (s3-connector-for-pytorch#295): dots break distributed checkpoints. No name of a stack has one."""
        with pytest.raises(ValueError, match="has a dot"):
            record(lambda: SecureBucket("data", SecureBucketArgs("a.b", "us-east-1", 30, True)))


class TestAccessLogs:
    LOGS = "gputrain-test-access-logs-123456789012"

    def test_every_other_bucket_writes_them_below_its_own_name(self) -> None:
        logging = setting(with_access_logs(), "Logging")
        assert (logging["targetBucket"], logging["targetPrefix"]) == (self.LOGS, "some-bucket/")

    def test_the_bucket_of_logs_does_not_log_itself(self) -> None:
        """Each delivery would be an access that is logged."""
        assert len([r for r in with_access_logs().custom() if r.type.endswith("BucketLogging")]) == 1

    def test_it_is_open_to_s3_log_delivery_for_buckets_of_its_own_account_and_to_nobody_else(self) -> None:
        recording = with_access_logs()
        deny, allow = recording.one("aws:s3/bucketPolicy:BucketPolicy", "logs-tls-only").policy()
        assert deny["Sid"] == "TlsOnly" and deny["Effect"] == "Deny"
        assert allow == {
            "Sid": "LogDelivery",
            "Effect": "Allow",
            "Principal": {"Service": ["logging.s3.amazonaws.com"]},
            "Action": ["s3:PutObject"],
            "Resource": [f"arn:aws:s3:::{self.LOGS}/*"],
            "Condition": {"StringEquals": {"aws:SourceAccount": ["123456789012"]}},
        }

    def test_it_is_open_before_the_first_delivery_is_tried(self) -> None:
        logging = with_access_logs().one("aws:s3/bucketLogging:BucketLogging")
        assert {"logs-tls-only", "logs-ownership", "logs-encryption"} <= logging.depends_on

    def test_it_is_encrypted_with_s3s_own_keys_since_delivery_takes_no_kms_key(self) -> None:
        (rule,) = setting(with_access_logs(), "ServerSideEncryptionConfiguration", self.LOGS)["rules"]
        assert rule == {"applyServerSideEncryptionByDefault": {"sseAlgorithm": "AES256"}}

    def test_they_go_after_the_days_that_the_stack_says(self) -> None:
        rules = {
            r["id"]: r for r in setting(with_access_logs(), "LifecycleConfiguration", self.LOGS)["rules"]
        }
        assert rules["expire-objects"]["expiration"] == {"days": 14}
        assert "expire-objects" not in {r["id"] for r in setting(bucket(), "LifecycleConfiguration")["rules"]}

    def test_none_are_written_where_none_are_wanted(self) -> None:
        assert access_logs_bucket_args(stack(accessLogs={"retentionDays": None})) is None

    def test_a_retained_bucket_stops_writing_them_when_they_are_switched_off(self) -> None:
        logging = with_access_logs().one("aws:s3/bucketLogging:BucketLogging")
        assert not logging.request.retainOnDelete
        assert (
            with_access_logs().one("aws:s3/bucketPolicy:BucketPolicy", "data-tls-only").request.retainOnDelete
        )

    @pytest.mark.parametrize("retain", [True, False])
    def test_they_stay_as_long_as_the_data(self, retain: bool) -> None:
        args = access_logs_bucket_args(stack(datasets=[{"name": "shapes", "retain": retain}]))
        assert args is not None and args.retain == retain


class TestRetention:
    """Deleting a stack with data asks for an explicit switch: `retain: false`."""

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
        args = artifacts_bucket_args(settings, None)
        assert (args.retain, args.noncurrent_expiry_days) == (retained, 3)

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

    @pytest.mark.parametrize("retain", [True, False])
    def test_stays_with_a_file_system_that_stays(self, retain: bool) -> None:
        lustre = {"zone": "us-east-1a", "capacityGib": 1200, "retain": retain}
        settings = stack(datasets=[{"name": "shapes", "retain": False, "readPath": "lustre"}], lustre=lustre)
        assert encryption_key_args(settings).retain == retain

    def test_lets_auto_scaling_use_it_and_grant_it_to_volumes_only(self) -> None:
        statements = self.key().one("aws:kms/key:Key").policy()
        role = "arn:aws:iam::123456789012:role/aws-service-role/autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling"
        mine = {s["Sid"]: s for s in statements if s["Principal"] == {"AWS": [role]}}
        assert "kms:Decrypt" in mine["AutoScalingUsesVolumes"]["Action"]
        grant = mine["AutoScalingAttachesVolumes"]
        assert grant["Action"] == ["kms:CreateGrant"]
        assert grant["Condition"] == {"Bool": {"kms:GrantIsForAWSResource": ["true"]}}

    def test_everybody_else_is_the_accounts_own_business(self) -> None:
        """Beside services that encrypt of their own accord; test_identity.py has their conditions."""
        principals = [s["Principal"] for s in self.key().one("aws:kms/key:Key").policy()]
        accounts = [p["AWS"][0] for p in principals if "AWS" in p]
        assert all("123456789012" in account for account in accounts) and len(accounts) == 3
        assert all(p.keys() == {"Service"} for p in principals if "AWS" not in p)

    def test_a_file_system_may_load_what_is_encrypted_with_it_through_s3_only(self) -> None:
        zone = minimal()["network"]["availabilityZones"][0]
        settings = stack(lustre={"zone": zone, "capacityGib": 1200})
        with_one = record(lambda: EncryptionKey("key", encryption_key_args(settings)))
        (statement,) = [
            s for s in with_one.one("aws:kms/key:Key").policy() if s["Sid"] == "FileSystemLoadsDatasets"
        ]
        condition = statement["Condition"]
        # Not the account: a statement for it leaves the decision to IAM, which a service-linked role has no say in.
        assert statement["Principal"] == {"AWS": ["*"]}
        assert condition["StringEquals"] == {
            "kms:CallerAccount": ["123456789012"],
            "kms:ViaService": ["s3.us-east-1.amazonaws.com"],
        }
        (role,) = condition["ArnLike"]["aws:PrincipalArn"]
        assert role.startswith("arn:aws:iam::123456789012:role/aws-service-role/s3.data-source.lustre.fsx.")
        assert "FileSystemLoadsDatasets" not in self.key().one("aws:kms/key:Key").inputs["policy"]
