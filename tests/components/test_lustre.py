"""The file system: what FSx is asked for, links one after another, and what nodes read to mount it."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
from trainer.contracts.lustre import LustreDocument

from components.settings import load
from components.storage.lustre import Lustre, LustreArgs, lustre_document
from components.storage.lustre_plan import plan_lustre
from tests.components.kit import Recording, Registered, record, record_program
from tests.unit.stack_files import minimal

LINK = "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation"
KEY_ARN = "arn:aws:kms:us-east-1:123456789012:key/1234"


@cache  # a recording is only read
def recorded(links: int = 3, **lustre: Any) -> Recording:
    config = minimal()
    config["datasets"] = [{"name": "copied"}] + [
        {"name": f"d{n}", "readPath": "lustre"} for n in range(links)
    ]
    config["lustre"] = {"zone": config["network"]["availabilityZones"][0], "capacityGib": 2400, **lustre}
    plan = plan_lustre(load("test", config))
    assert plan is not None
    recording = record(lambda: Lustre("lustre", LustreArgs(plan, "subnet-1", "sg-1", KEY_ARN)))
    recording.assert_sound()
    return recording


def file_system(links: int = 3, **lustre: Any) -> Registered:
    return recorded(links, **lustre).one("aws:fsx/lustreFileSystem:LustreFileSystem")


class TestTheFileSystem:
    def test_lies_in_one_subnet_behind_its_own_group(self) -> None:
        inputs = file_system().inputs
        assert (inputs["subnetIds"], inputs["securityGroupIds"]) == ("subnet-1", ["sg-1"])

    def test_a_persistent_one_has_throughput_key_metadata_and_tagged_backups(self) -> None:
        inputs = file_system(throughputMbpsPerTib=500, metadataIops=6000).inputs
        assert (inputs["deploymentType"], inputs["storageCapacity"]) == ("PERSISTENT_2", 2400)
        assert inputs["perUnitStorageThroughput"] == 500 and inputs["kmsKeyId"] == KEY_ARN
        assert inputs["metadataConfiguration"] == {"mode": "USER_PROVISIONED", "iops": 6000}
        assert inputs["copyTagsToBackups"] is True

    def test_a_scratch_one_has_none_of_what_fsx_refuses_for_it(self) -> None:
        inputs = file_system(deployment="SCRATCH_2").inputs
        refused = {"perUnitStorageThroughput", "kmsKeyId", "metadataConfiguration", "efaEnabled"}
        refused |= {"automaticBackupRetentionDays", "copyTagsToBackups"}
        assert not refused & set(inputs)

    def test_what_s3_holds_is_not_backed_up_and_what_it_does_not_is(self) -> None:
        assert file_system(links=1).inputs["automaticBackupRetentionDays"] == 0
        assert file_system(links=0).inputs["automaticBackupRetentionDays"] == 7
        assert file_system(links=0).inputs["skipFinalBackup"] is False

    def test_efa_comes_with_the_metadata_configuration_that_it_needs_both_at_creation(self) -> None:
        """Report E5 (terraform-provider-aws#40381, aws-parallelcluster#7616, #4499)."""
        inputs = file_system(efa=True, capacityGib=4800, throughputMbpsPerTib=1000).inputs
        assert inputs["efaEnabled"] is True and inputs["metadataConfiguration"] == {"mode": "AUTOMATIC"}
        assert "efaEnabled" not in file_system().inputs

    def test_no_import_path_is_ever_given(self) -> None:
        """Report E1 (terraform-provider-aws#22656): PERSISTENT_2 refuses it; links take its place."""
        for deployment in ("PERSISTENT_2", "SCRATCH_2"):
            inputs = file_system(deployment=deployment).inputs
            assert not {"importPath", "exportPath", "autoImportPolicy"} & set(inputs)

    @pytest.mark.parametrize("retain", [True, False])
    def test_it_is_protected_unless_the_stack_says_otherwise(self, retain: bool) -> None:
        request = file_system(retain=retain).request
        assert (request.protect, request.retainOnDelete) == (retain, retain)


class TestTheLinks:
    def test_each_dataset_is_a_folder_that_follows_its_bucket(self) -> None:
        link = recorded().one(LINK, "lustre-d0").inputs
        assert link["dataRepositoryPath"] == "s3://gputrain-test-data-d0-123456789012/datasets/d0/"
        assert link["fileSystemPath"] == "/datasets/d0" and link["batchImportMetaDataOnCreate"] is True
        assert link["s3"] == {"autoImportPolicy": {"events": ["NEW", "CHANGED", "DELETED"]}}
        assert {r.name for r in recorded().of_type(LINK)} == {"lustre-d0", "lustre-d1", "lustre-d2"}

    def test_they_are_made_one_after_another(self) -> None:
        """Report E2 (terraform-provider-aws#24678): of two made at once, one fails."""
        for n in (1, 2):
            assert f"lustre-d{n - 1}" in recorded().one(LINK, f"lustre-d{n}").depends_on

    def test_they_go_with_their_dataset_also_where_the_file_system_stays(self) -> None:
        """One that stayed would be in the way when the dataset is read through the file system again."""
        for link in recorded(retain=True).of_type(LINK):
            assert not link.request.retainOnDelete and not link.request.protect
            assert "deleteDataInFilesystem" not in link.inputs

    def test_each_has_far_longer_than_the_ten_minutes_that_were_too_short(self) -> None:
        """Report E3 (eks-ml-kubeflow#112)."""
        for resource in (file_system(), *recorded().of_type(LINK)):
            assert resource.request.customTimeouts.create == "90m"


class TestWhatNodesRead:
    def test_the_trainer_understands_it(self) -> None:
        text = lustre_document("fs-1", "fs-1.fsx.us-east-1.amazonaws.com", "abcd1234")
        document = LustreDocument.from_json(text)
        assert (document.dns_name, document.mount_name) == ("fs-1.fsx.us-east-1.amazonaws.com", "abcd1234")
        assert document.to_json() == text

    def test_it_lies_in_the_artifacts_bucket_and_is_ready_before_nodes_boot(self) -> None:
        document = recorded().one("aws:s3/bucketObjectv2:BucketObjectv2")
        assert document.inputs["bucket"] == "gputrain-test-artifacts-123456789012"
        assert document.inputs["key"] == "lustre.json"
        assert json.loads(document.inputs["content"])["fileSystemId"] == "lustre-file-system-id"


class TestInTheProgram:
    def test_nodes_boot_once_it_is_there_and_may_read_how_it_is_mounted(self) -> None:
        config = minimal()
        zone = config["network"]["availabilityZones"][0]
        config["datasets"] = [{"name": "corpus", "readPath": "lustre"}]
        config["lustre"] = {"zone": zone, "capacityGib": 1200}
        recording = record_program("test", config)
        recording.assert_sound()
        group = recording.one("aws:autoscaling/group:Group", "trainers-group")
        assert {"lustre-document", "lustre-corpus"} <= group.depends_on
        role = recording.one("aws:iam/rolePolicy:RolePolicy", "trainers-node-policy").inputs["policy"]
        assert "arn:aws:s3:::gputrain-test-artifacts-123456789012/lustre.json" in role
        (document,) = [
            json.loads(r.inputs["content"])
            for r in recording.of_type("aws:s3/bucketObjectv2:BucketObjectv2")
            if r.inputs["key"].startswith("groups/")
        ]
        assert document["lustreKey"] == "lustre.json"
        assert document["datasets"]["corpus"]["path"] == "/mnt/lustre/datasets/corpus"
