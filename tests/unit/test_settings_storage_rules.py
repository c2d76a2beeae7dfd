"""Each rule about storage, once satisfied and once broken, with the exact line that a person reads and its level."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.settings import load, rules, storage_rules
from components.settings.faults import id_of, level_of
from components.storage import lustre_plan
from tests.unit.rule_cases import Case, Changes, configured, group

ZONE = "us-east-1a"
KEY = "arn:aws:kms:us-east-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"


def lustre(**changes: Any) -> Changes:
    """A file system and one dataset that is read through it."""
    datasets = [{"name": "corpus", "readPath": "lustre"}]
    return {
        ("lustre",): {"zone": ZONE, "capacityGib": 2400, "retain": True, **changes},
        ("datasets",): datasets,
        ("network", "availabilityZones"): [ZONE],
    }


def datasets(*items: dict[str, Any]) -> Changes:
    return {("datasets",): [{"name": f"d{place}", **item} for place, item in enumerate(items)]}


# What FSx and S3 refuse is an error. The report or rule that a case comes from stands beside it.
CASES = [
    Case(
        storage_rules.lustre_datasets_have_a_file_system,
        datasets({}, {"readPath": "lustre"}),
        "gpu-training:datasets[1].readPath: lustre, but the stack has no file system; "
        "add the section lustre, or write sync",
        lustre(),
    ),
    Case(
        storage_rules.lustre_serves_a_dataset,
        {("lustre",): {"zone": ZONE, "capacityGib": 1200}, ("network", "availabilityZones"): [ZONE]},
        "gpu-training:lustre: no dataset is read through the file system; "
        "write readPath: lustre at a dataset, or remove the section",
        lustre(),
    ),
    Case(  # ParallelCluster: at most 8 DRAs
        storage_rules.lustre_links_at_most_eight_datasets,
        {**lustre(), **datasets(*[{"readPath": "lustre"}] * 9)},
        "gpu-training:datasets[8].readPath: dataset 9 or later that is read through the file system; "
        "FSx links 8 at most: read the others by sync or mountpoint",
        {**lustre(), **datasets(*[{"readPath": "lustre"}] * 8, {"readPath": "sync"})},
    ),
    Case(
        storage_rules.lustre_zone_is_of_the_network,
        lustre(zone="us-east-1c"),
        "gpu-training:lustre.zone: 'us-east-1c' is not a zone of the network; one of us-east-1a",
        lustre(),
    ),
    Case(  # ParallelCluster: SSD capacity 1200 or times 2400
        storage_rules.lustre_capacity_is_one_that_fsx_makes,
        lustre(capacityGib=3600),
        "gpu-training:lustre.capacityGib: PERSISTENT_2 is not made with 3600 GiB; 1200 or a multiple of 2400 "
        "(nearest match: 4800)",
        lustre(capacityGib=1200),
    ),
    Case(
        storage_rules.lustre_throughput_is_one_of_its_deployment,
        lustre(throughputMbpsPerTib=200),
        "gpu-training:lustre.throughputMbpsPerTib: PERSISTENT_2 has no 200 MB/s/TiB; "
        "one of 125, 250, 500, 1000 (nearest match: 250)",
        lustre(throughputMbpsPerTib=1000),
    ),
    Case(  # ParallelCluster: SCRATCH takes no per-unit throughput
        storage_rules.lustre_throughput_is_one_of_its_deployment,
        lustre(deployment="SCRATCH_2", throughputMbpsPerTib=125),
        "gpu-training:lustre.throughputMbpsPerTib: SCRATCH_2 has 200 MB/s/TiB and no choice; "
        "remove it, or write PERSISTENT_2",
        lustre(deployment="SCRATCH_2"),
    ),
    Case(
        storage_rules.lustre_metadata_iops_are_ones_that_fsx_takes,
        lustre(metadataIops=20000),
        "gpu-training:lustre.metadataIops: FSx takes no 20000 metadata operations a second; "
        "one of 1500, 3000, 6000, 12000, or a multiple of 12000 up to 192000 (nearest match: 24000)",
        lustre(metadataIops=192000),
    ),
    Case(
        storage_rules.lustre_metadata_iops_are_ones_that_fsx_takes,
        lustre(deployment="SCRATCH_2", metadataIops=1500),
        "gpu-training:lustre.metadataIops: SCRATCH_2 has no metadata configuration; "
        "remove it, or write PERSISTENT_2",
        lustre(metadataIops=1500),
    ),
    Case(  # E5: terraform-provider-aws#40381, aws-parallelcluster#7616
        storage_rules.lustre_efa_is_of_persistent_2,
        lustre(deployment="SCRATCH_2", efa=True),
        "gpu-training:lustre.efa: SCRATCH_2 is not reached over EFA; write PERSISTENT_2 or efa: false",
        lustre(efa=True, capacityGib=4800, throughputMbpsPerTib=1000),
    ),
    Case(
        storage_rules.lustre_efa_has_its_least_capacity,
        lustre(efa=True, capacityGib=16800, throughputMbpsPerTib=250),
        "gpu-training:lustre.capacityGib: 16800 GiB at 250 MB/s/TiB may be too little for EFA; "
        "AWS asks for 19200 GiB at this throughput",
        lustre(efa=True, capacityGib=19200, throughputMbpsPerTib=250),
    ),
    Case(
        storage_rules.auto_scaling_may_use_the_existing_key,
        {("kms",): {"mode": "existing", "keyArn": KEY}},
        "gpu-training:kms.keyArn: nodes have volumes under this key, and each ends at its launch where Auto Scaling "
        "may not use it; its policy must let AWSServiceRoleForAutoScaling use it and create grants for AWS resources "
        "(docs/security.md, Keys)",
        {("kms",): {"mode": "create"}},
    ),
    Case(
        storage_rules.lustre_may_use_the_existing_key,
        {**lustre(), ("kms",): {"mode": "existing", "keyArn": KEY}},
        "gpu-training:kms.keyArn: a file system loads datasets that are encrypted with this key; its policy must let "
        "AWSServiceRoleForFSxS3Access_<file system> use it for kms:Decrypt and kms:GenerateDataKey",
        {**datasets({}), ("kms",): {"mode": "existing", "keyArn": KEY}},
    ),
    Case(
        storage_rules.mounted_datasets_have_their_client_on_the_image,
        datasets({}, {"readPath": "mountpoint"}),
        "gpu-training:datasets[1].readPath: mountpoint needs mount-s3 (Mountpoint for Amazon S3) on the image, "
        "which no profile promises; use an image that has it; "
        "a node without it ends a run on this dataset with exit code 20",
        datasets({}, {}),
    ),
    Case(  # ParallelCluster: deletion policy reminder
        storage_rules.production_keeps_its_data,
        datasets({}, {"retain": False}),
        "gpu-training:datasets[1].retain: false: destroying the stack deletes the dataset 'd1' with all versions; "
        "write true to keep it",
        datasets({}, {"retain": True}),
        stack="prod",
    ),
    Case(
        storage_rules.production_keeps_its_data,
        datasets({"retain": False}),
        "gpu-training:datasets: no dataset is retained: destroying the stack deletes the checkpoints of all runs too; "
        "write retain: true at one of them to keep them",
        {},
        stack="prod-eu",
    ),
    Case(
        storage_rules.production_keeps_its_data,
        lustre(retain=False),
        "gpu-training:lustre.retain: false: destroying the stack deletes the file system; write true to keep it",
        lustre(),
        stack="prod",
    ),
    Case(  # ParallelCluster: FSx in another zone is for information
        storage_rules.nodes_are_in_the_zone_of_the_file_system,
        {**lustre(), ("network", "availabilityZones"): [ZONE, "us-east-1b"]},
        "gpu-training:gpuGroups[0].zones: nodes in us-east-1b read the file system in us-east-1a across zones; "
        "name us-east-1a alone, or accept the cost",
        {**lustre(), ("network", "availabilityZones"): [ZONE, "us-east-1b"], **group(zones=[ZONE])},
    ),
    Case(  # gp3 as of 2026: ParallelCluster's 16 000 IOPS and 1000 MB/s are out of date
        storage_rules.root_volume_is_one_that_gp3_makes,
        group(rootVolumeGib=200, rootVolumeIops=80001),
        "gpu-training:gpuGroups[0].rootVolumeIops: gp3 has no 80001 IOPS; from 3000 to 80000",
        group(rootVolumeGib=200, rootVolumeIops=80000),
    ),
    Case(
        storage_rules.root_volume_is_one_that_gp3_makes,
        group(rootVolumeGib=100, rootVolumeIops=50001),
        "gpu-training:gpuGroups[0].rootVolumeIops: 50001 IOPS are more than 500 for each of 100 GiB; "
        "at most 50000, or a larger volume",
        group(rootVolumeGib=100, rootVolumeIops=50000),
    ),
    Case(
        storage_rules.root_volume_is_one_that_gp3_makes,
        group(rootVolumeThroughputMibps=100),
        "gpu-training:gpuGroups[0].rootVolumeThroughputMibps: gp3 has no 100 MiB/s; from 125 to 2000",
        group(rootVolumeThroughputMibps=750),
    ),
    Case(
        storage_rules.root_volume_is_one_that_gp3_makes,
        group(rootVolumeThroughputMibps=1000),
        "gpu-training:gpuGroups[0].rootVolumeThroughputMibps: 1000 MiB/s are more than 0.25 for each of 3000 IOPS; "
        "at most 750, or more rootVolumeIops",
        group(rootVolumeIops=4000, rootVolumeThroughputMibps=1000),
    ),
]
OWN = {id_of(rule) for rule in (*storage_rules.RULES, *storage_rules.GROUP_RULES)}


def found(stack: str, changes: Changes) -> list[str]:
    """What this file's rules say, of any level."""
    settings = rules.Settings.model_validate({**configured(changes), "stack": stack}, by_alias=True)
    return [str(fault) for fault in rules.judge(settings) if fault.validator in OWN]


def name(case: Case) -> str:
    return f"{case.rule.__name__}-{CASES.index(case)}"


@pytest.mark.parametrize("case", CASES, ids=name)
def test_the_rule_refuses_with_path_fault_and_remedy(case: Case) -> None:
    assert case.line in found(case.stack, case.refused)


@pytest.mark.parametrize("case", CASES, ids=name)
def test_the_rule_accepts_what_is_right(case: Case) -> None:
    settings = load(case.stack, configured(case.accepted))
    assert [fault for fault in rules.judge(settings) if fault.validator == id_of(case.rule)] == []


def test_every_rule_has_a_case_and_a_source_for_the_documentation() -> None:
    own = (*storage_rules.RULES, *storage_rules.GROUP_RULES)
    assert {case.rule for case in CASES} == set(own)
    assert all(rule.__doc__ for rule in own)


def test_only_what_aws_refuses_stops_a_stack() -> None:
    told = {id_of(r): level_of(r) for r in (*storage_rules.RULES, *storage_rules.GROUP_RULES)}
    assert {id_ for id_, level in told.items() if level == "warning"} == {
        "lustre-serves-a-dataset",
        "lustre-efa-has-its-least-capacity",
        "auto-scaling-may-use-the-existing-key",
        "lustre-may-use-the-existing-key",
        "mounted-datasets-have-their-client-on-the-image",
    }
    assert {id_ for id_, level in told.items() if level == "info"} == {
        "production-keeps-its-data",
        "nodes-are-in-the-zone-of-the-file-system",
    }


def test_the_rules_and_the_plan_know_the_same_throughput() -> None:
    default = lustre_plan.PERSISTENT_2_DEFAULT_MBPS_PER_TIB
    assert default == storage_rules.PERSISTENT_2_DEFAULT_MBPS_PER_TIB
    assert default in storage_rules.PERSISTENT_2_MBPS_PER_TIB


@given(st.integers(1200, 100_000))
def test_the_capacity_that_is_proposed_is_accepted_and_holds_what_was_asked_for(capacity: int) -> None:
    settings = load_unjudged(lustre(capacityGib=capacity))
    for fault in storage_rules.lustre_capacity_is_one_that_fsx_makes(settings):
        assert fault.nearest is not None and int(fault.nearest) > capacity
        again = load_unjudged(lustre(capacityGib=int(fault.nearest)))
        assert not list(storage_rules.lustre_capacity_is_one_that_fsx_makes(again))


@given(st.integers(1, 250_000))
def test_the_metadata_operations_that_are_proposed_are_accepted(iops: int) -> None:
    settings = load_unjudged(lustre(metadataIops=iops))
    for fault in storage_rules.lustre_metadata_iops_are_ones_that_fsx_takes(settings):
        again = load_unjudged(lustre(metadataIops=int(fault.nearest or 0)))
        assert not list(storage_rules.lustre_metadata_iops_are_ones_that_fsx_takes(again))


def load_unjudged(changes: Changes) -> rules.Settings:
    return rules.Settings.model_validate({**configured(changes), "stack": "dev"}, by_alias=True)
