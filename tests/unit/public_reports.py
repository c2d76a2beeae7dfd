"""What became of the public reports about other tools: the log of rows A to E, by subject.

A row ends in one of four tables: it is refused by a validator, the program builds the right thing, a test elsewhere
shows it (on nodes, in a run), or it cannot be seen before creation, with the reason.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tests.components.kit import Recording
from tests.policies.cases.aws_would_refuse_together import EFA, mixed
from tests.policies.kit import R
from tests.unit.rule_cases import IMAGE, Changes, group

TEMPLATE, SCALING = "aws:ec2/launchTemplate:LaunchTemplate", "aws:autoscaling/group:Group"
FILE_SYSTEM = "aws:fsx/lustreFileSystem:LustreFileSystem"
BUCKET = "aws:s3/bucket:Bucket"
LIFECYCLE = "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration"

ROWS = {
    "A": (1, 2, 3, 5, 6, 7, 9, 10, 11, 13, 14, 15, 17, 18, 19, 21),
    "B": (1, 2, 3, 5, 6, 7, 9, 10, 11, 13, 14, 15, 17, 18),
    "C": (1, 2, 3, 5, 6, 7, 9, 10, 11, 13, 14, 15, 17, 18, 19, 21, 22),
    "D": (1, 2, 3, 5),
    "E": (1, 2, 3, 5, 6, 7, 9, "9b", 10, 12, 13, 14),
}


class Refused(NamedTuple):
    """A stack file's values, or resources, that `by` (a validator or a rule) refuses or warns of."""

    row: str
    report: str
    by: str
    bad: Changes | list[R]


class Built(NamedTuple):
    """What a look at the whole program of `FLEET` must find."""

    row: str
    report: str
    right: str
    holds: Callable[[Recording], bool]


class Elsewhere(NamedTuple):
    """A test of something that happens on nodes."""

    row: str
    report: str
    file: str
    test: str


def template(**inputs: Any) -> list[R]:
    return [R(TEMPLATE, inputs)]


def nics(*places: Mapping[str, Any], **inputs: Any) -> list[R]:
    return template(networkInterfaces=list(places), **inputs)


def spot(**purchase: Any) -> Changes:
    return group(purchase={"spotPercent": 50, **purchase})


BLOCK: dict[str, Any] = {
    "kind": "capacity-block",
    "id": "cr-0123456789abcdef0",
    "zone": "us-east-1a",
    "count": 4,
    "startsAt": "2027-01-11T11:30:00Z",
    "endsAt": "2027-01-18T11:30:00Z",
}
ONE_ZONE: dict[str, Any] = {"zones": ["us-east-1a"]}
PRIMARY = {"networkCardIndex": 0, "deviceIndex": 0}
REFUSED = [
    Refused(
        "A1",
        "eksctl#7520",
        "cards-and-devices-are-of-the-type",
        nics(PRIMARY, {"networkCardIndex": 2, "deviceIndex": 2}, instanceType="p5.48xlarge"),
    ),
    Refused(
        "A3",
        "aws-parallelcluster#7143",
        "efas-are-no-more-than-the-type-has",
        nics({**PRIMARY, "interfaceType": "efa"}, instanceType="p6-b300.48xlarge"),
    ),
    Refused(
        "A5",
        "aws-parallelcluster PR 7457",
        "one-interface-has-a-public-address",
        nics(
            {**EFA[0], "associatePublicIpAddress": "true"},
            {**EFA[1], "associatePublicIpAddress": "true"},
            instanceType="g6.12xlarge",
        ),
    ),
    Refused(
        "A9",
        "aws-ofi-nccl#53",
        "efas-are-one-a-card",
        nics(*({"deviceIndex": n, "interfaceType": "efa"} for n in range(4)), instanceType="p4d.24xlarge"),
    ),
    Refused(
        "A13",
        "eks-ml-kubeflow#77",
        "efa-has-one-zone",
        group(instanceTypes=["g6.12xlarge"], efa="on", zones=["us-east-1a", "us-east-1b"]),
    ),
    Refused(
        "B1",
        "pulumi-aws#2506",
        "groups-stand-in-the-interfaces",
        nics(PRIMARY, vpcSecurityGroupIds=["sg-1"]),
    ),
    Refused(
        "B2",
        "github-aws-runners#3700",
        "user-data-fits",
        template(userData=base64.b64encode(bytes(16385)).decode()),
    ),
    Refused(
        "B3",
        "pulumi-aws#1577",
        "no-latest-template-version",
        [R(SCALING, {"launchTemplate": {"id": "lt-1", "version": "$Latest"}})],
    ),
    Refused(
        "B6",
        "pulumi-eks#1526",
        "image-serves-the-types",
        group(instanceTypes=["p6-b300.48xlarge"], image=IMAGE),
    ),
    Refused(
        "B7",
        "pulumi-eks#738",
        "image-serves-the-types",
        group(image={**IMAGE, "profile": "dlami-base-arm64-ubuntu-24.04"}),
    ),
    Refused("B9", "eksctl#7794", "image-profile-is-known", group(image={**IMAGE, "profile": "al2023-cpu"})),
    Refused(
        "C1",
        "kops#10104",
        "mixed-groups-take-templates-without-a-market",
        mixed({"instanceMarketOptions": {"marketType": "spot"}}),
    ),
    Refused(
        "C2",
        "terraform-provider-aws#9841",
        "purchase-is-consistent",
        {**spot(onDemandBase=2), **group(maxNodes=2)},
    ),
    Refused(
        "C3",
        "terraform#25038",
        "spot-pools-belong-to-lowest-price",
        [
            R(
                SCALING,
                {
                    "mixedInstancesPolicy": {
                        "instancesDistribution": {
                            "spotAllocationStrategy": "capacity-optimized",
                            "spotInstancePools": 2,
                        }
                    }
                },
            )
        ],
    ),
    Refused("C9", "aws-parallelcluster#2716", "spot-has-several-pools", {**spot(), **group(**ONE_ZONE)}),
    Refused(
        "C19",
        "cluster-toolkit#3225",
        "gpu-quotas-hold-all-nodes",
        group(instanceTypes=["p5.48xlarge"], **ONE_ZONE),
    ),
    Refused(
        "C21",
        "terraform-provider-aws#38579",
        "capacity-block-has-its-reservation",
        template(instanceMarketOptions={"marketType": "capacity-block"}),
    ),
    Refused(
        "D1",
        "terraform-aws-eks PR 3730",
        "capacity-block-has-no-placement-group",
        group(instanceTypes=["p5.48xlarge"], reservation=BLOCK, placement="cluster", maxNodes=4, **ONE_ZONE),
    ),
    Refused(
        "E1",
        "terraform-provider-aws#22656",
        "lustre-links-buckets-by-associations",
        [
            R(
                FILE_SYSTEM,
                {
                    "deploymentType": "PERSISTENT_2",
                    "storageCapacity": 1200,
                    "perUnitStorageThroughput": 125,
                    "importPath": "s3://data",
                },
            )
        ],
    ),
    Refused(
        "E5",
        "terraform-provider-aws#40381",
        "lustre-efa-is-of-persistent-2-with-metadata",
        [R(FILE_SYSTEM, {"deploymentType": "SCRATCH_2", "storageCapacity": 1200, "efaEnabled": True})],
    ),
    Refused(
        "E9",
        "pulumi-aws#5187",
        "buckets-have-one-lifecycle",
        [
            R(BUCKET, {"bucket": "data"}, "data"),
            R(LIFECYCLE, {"bucket": "data"}, "one"),
            R(LIFECYCLE, {"bucket": "data"}, "two"),
        ],
    ),
    Refused(
        "E12",
        "s3-connector-for-pytorch#295",
        "bucket-name-has-the-form",
        [R(BUCKET, {"bucket": "data.example"})],
    ),
]

NODES = "tests/trainer/test_disks.py"
ELSEWHERE = [
    Elsewhere(
        "B11",
        "aws-node-termination-handler#732",
        "tests/trainer/test_imds.py",
        "test_a_token_that_is_no_longer_known_is_renewed",
    ),
    Elsewhere(
        "B17",
        "karpenter#5981",
        "tests/unit/test_user_data_unit.py",
        "test_disks_are_put_together_at_each_boot_before_the_agent_starts",
    ),
    Elsewhere(
        "B18",
        "scylladb#6184",
        NODES,
        "test_after_a_stop_and_start_leftovers_of_an_array_are_cleared_first",
    ),
    Elsewhere(
        "C10",
        "aws-parallelcluster#6641",
        "tests/trainer/test_agent.py",
        "test_a_noticed_node_leaves_with_75_and_the_others_go_on_with_its_replacement",
    ),
    Elsewhere(
        "C11",
        "skypilot#1410",
        "tests/trainer/test_elastic_agents.py",
        "test_a_world_grows_at_one_step_shrinks_when_a_node_leaves_and_loses_no_step",
    ),
    Elsewhere("C15", "dstack#2917", "tests/local/test_up.py", "test_a_spot_notice_loses_no_step"),
    Elsewhere("C17", "karpenter#3005", "tests/trainer/test_imds.py", "test_notices_are_told_apart"),
    Elsewhere(
        "C18",
        "aws-node-termination-handler#207",
        "tests/trainer/test_elastic_agents.py",
        "test_a_rebalance_recommendation_saves_and_training_goes_on",
    ),
    Elsewhere(
        "E6",
        "awsome-distributed-ai#632",
        NODES,
        "test_a_mount_that_fails_at_first_is_tried_again_with_growing_pauses",
    ),
    Elsewhere(
        "E7",
        "awsome-distributed-ai#678",
        "tests/unit/test_user_data.py",
        "test_an_unreachable_bucket_is_asked_five_times",
    ),
    Elsewhere("E10", "pulumi-aws#2024", "tests/engine/test_provider_engine.py", 'stage("second preview"'),
    Elsewhere(
        "E14",
        "ultralytics PR 12929",
        "tests/trainer/test_checkpoint.py",
        "test_death_at_any_stage_of_a_save_leaves_a_resumable_run",
    ),
]

NOT_SEEN = {
    "A15": "the EFA plug-in and libfabric are the image's, and pinned with it: nothing of them is among the inputs",
    "A17": "which network NCCL takes shows when a run starts, in its log",
    "A19": "as A17",
    "B13": "whether driver and library are of one version shows at boot: the self-check loads NVML",
    "B14": "whether the fabric manager runs shows at boot: the self-check runs a real CUDA kernel on each GPU",
    "B15": "as B14",
    "E13": "how fast a checkpoint is read depends on its reader; it is read in ranges, and no input says so",
}
