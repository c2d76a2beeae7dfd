"""A GPU group: what its nodes are, how they are bought, and what happens before the first one boots."""

from __future__ import annotations

import base64
import json
from functools import cache
from pathlib import Path
from typing import Any

import pulumi_aws as aws

from components.bootstrap.boot_plan import plan_boot
from components.bootstrap.release import Release, ReleaseFile
from components.compute.gpu_group import GpuGroup, GpuGroupArgs
from components.compute.plan import plan_group
from components.names import stack_names
from components.settings import load
from tests.components.kit import UNKNOWN, Recording, leaves, record
from tests.unit.stack_files import minimal

GROUP = "aws:autoscaling/group:Group"
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
HOOK = "aws:autoscaling/lifecycleHook:LifecycleHook"
OBJECT = "aws:s3/bucketObjectv2:BucketObjectv2"
RELEASE = Release("1.0", {"cp312": ReleaseFile(Path("cp312.tar"), "a1" * 32)}, {})


def group(kms_key_arn: str | None = None, preview: bool = False, **changes: Any) -> Recording:
    return _group(kms_key_arn, preview, json.dumps(changes, sort_keys=True))


@cache  # a recording is only read
def _group(kms_key_arn: str | None, preview: bool, changes: str) -> Recording:
    config = minimal()
    config["tags"] = {"team": "vision"}
    config["gpuGroups"][0].update(json.loads(changes))
    settings = load("test", config)

    def declare() -> None:
        elsewhere = aws.ec2.Vpc("network", cidr_block="10.0.0.0/16")
        plan = plan_group(settings, settings.gpu_groups[0])
        args = GpuGroupArgs(
            names=stack_names(settings),
            plan=plan,
            boot=plan_boot(settings, plan, RELEASE),
            subnet_ids=[f"subnet-{zone}" for zone in plan.zones],
            security_group_id="sg-nodes",
            kms_key_arn=kms_key_arn,
            requires=[elsewhere],
        )
        GpuGroup("trainers", args)

    return record(declare, preview=preview)


def template(**changes: Any) -> dict[str, Any]:
    return group(**changes).one(TEMPLATE).inputs


def scaling_group(**changes: Any) -> dict[str, Any]:
    return group(**changes).one(GROUP).inputs


class TestANode:
    def test_answers_for_its_credentials_to_imdsv2_alone_and_on_itself_alone(self) -> None:
        assert template()["metadataOptions"] == {
            "httpEndpoint": "enabled",
            "httpTokens": "required",
            "httpPutResponseHopLimit": 1,
            "instanceMetadataTags": "disabled",
        }

    def test_has_an_encrypted_gp3_root_volume_on_the_images_root_device(self) -> None:
        (mapping,) = template(rootVolumeGib=300)["blockDeviceMappings"]
        assert mapping["deviceName"] == "/dev/sda1"
        assert mapping["ebs"] == {
            "volumeType": "gp3",
            "volumeSize": 300,
            "encrypted": "true",
            "deleteOnTermination": "true",
        }

    def test_has_its_volume_under_the_stacks_key_where_there_is_one(self) -> None:
        key = "arn:aws:kms:us-east-1:123456789012:key/1234"
        assert template(kms_key_arn=key)["blockDeviceMappings"][0]["ebs"]["kmsKeyId"] == key

    def test_has_no_key_pair_and_no_public_address(self) -> None:
        inputs = template(instanceTypes=["p5.48xlarge"], zones=["us-east-1a"])
        assert "keyName" not in inputs
        assert {nic["associatePublicIpAddress"] for nic in inputs["networkInterfaces"]} == {"false"}

    def test_a_type_with_one_card_has_two_interfaces_and_no_public_address(self) -> None:
        """aws-parallelcluster PR 7457: EC2 counts interfaces, not cards, where it refuses public addresses."""
        nics = template(instanceTypes=["g6.8xlarge"], zones=["us-east-1a"])["networkInterfaces"]
        assert [nic["networkCardIndex"] for nic in nics] == [0, 0]
        assert {nic["associatePublicIpAddress"] for nic in nics} == {"false"}

    def test_has_the_layout_of_its_group(self) -> None:
        b200 = {"instanceTypes": ["p6-b200.48xlarge"], "zones": ["us-east-1a"]}
        kinds = [nic["interfaceType"] for nic in template(**b200)["networkInterfaces"]]
        assert (kinds.count("interface"), kinds.count("efa-only")) == (1, 8)
        wide = template(**b200, efaLayout="bandwidth-optimized")["networkInterfaces"]
        kinds = [nic["interfaceType"] for nic in wide]
        assert (kinds.count("interface"), kinds.count("efa-only")) == (8, 8)

    def test_with_efa_has_the_catalogs_interfaces_each_with_the_nodes_group(self) -> None:
        inputs = template(instanceTypes=["p4d.24xlarge"], zones=["us-east-1a"])
        nics = inputs["networkInterfaces"]
        assert [(n["networkCardIndex"], n["deviceIndex"], n["interfaceType"]) for n in nics] == [
            (0, 0, "interface"),
            (0, 1, "efa-only"),
            (1, 0, "efa-only"),
            (2, 0, "efa-only"),
            (3, 0, "efa-only"),
        ]
        assert all(nic["securityGroups"] == ["sg-nodes"] for nic in nics)
        assert all(nic["deleteOnTermination"] == "true" and "subnetId" not in nic for nic in nics)
        # EC2 refuses groups on the template beside interfaces.
        assert "vpcSecurityGroupIds" not in inputs and "securityGroupNames" not in inputs

    def test_boots_with_the_script_encoded_once(self) -> None:
        text = base64.b64decode(template()["userData"]).decode()
        assert text.startswith("#!/bin/bash\n") and "GROUP='trainers'" in text

    def test_is_tagged_with_its_volumes_and_interfaces_from_one_set_of_tags(self) -> None:
        specifications = template()["tagSpecifications"]
        assert [s["resourceType"] for s in specifications] == ["instance", "volume", "network-interface"]
        tags = {
            "Name": "gputrain-test-trainers",
            "gpu-training:group": "trainers",
            "gpu-training:stack": "gputrain-test",
            "team": "vision",
        }
        assert all(s["tags"] == tags for s in specifications)
        assert {t["key"]: t["value"] for t in scaling_group()["tags"]} == tags
        assert all(t["propagateAtLaunch"] for t in scaling_group()["tags"])

    def test_ends_when_it_shuts_itself_down(self) -> None:
        assert template()["instanceInitiatedShutdownBehavior"] == "terminate"
        assert template()["ebsOptimized"] == "true" and template()["monitoring"] == {"enabled": True}


class TestPurchase:
    def test_one_type_on_demand_is_bought_by_the_template(self) -> None:
        inputs = scaling_group()
        assert "mixedInstancesPolicy" not in inputs
        assert inputs["launchTemplate"] == {"id": "trainers-template-id", "version": "7"}
        assert template()["instanceType"] == "g6.xlarge"

    def test_a_spot_share_is_a_whole_mixed_instances_policy(self) -> None:
        inputs = scaling_group(
            maxNodes=4, purchase={"onDemandBase": 1, "spotPercent": 75, "maxPriceUsdPerHour": 0.5}
        )
        assert "launchTemplate" not in inputs
        assert inputs["mixedInstancesPolicy"] == {
            "instancesDistribution": {
                "onDemandAllocationStrategy": "prioritized",
                "onDemandBaseCapacity": 1,
                "onDemandPercentageAboveBaseCapacity": 25,
                "spotAllocationStrategy": "price-capacity-optimized",
                "spotMaxPrice": "0.5",
            },
            "launchTemplate": {
                "launchTemplateSpecification": {"launchTemplateId": "trainers-template-id", "version": "7"},
                "overrides": [{"instanceType": "g6.xlarge"}],
            },
        }

    def test_the_template_itself_never_asks_for_spot(self) -> None:
        assert "instanceMarketOptions" not in template(purchase={"spotPercent": 100})

    def test_the_group_follows_the_templates_number_and_never_a_name(self) -> None:
        for inputs in (scaling_group(), scaling_group(purchase={"spotPercent": 100})):
            assert not [value for _, value in leaves(inputs) if value in ("$Latest", "$Default")]
        assert template()["updateDefaultVersion"] is True and "defaultVersion" not in template()


class TestTheGroup:
    def test_sets_the_number_of_nodes_at_creation_only(self) -> None:
        found = group(desiredNodes=2).one(GROUP)
        assert (found.inputs["minSize"], found.inputs["maxSize"], found.inputs["desiredCapacity"]) == (
            0,
            2,
            2,
        )
        assert sorted(found.request.ignoreChanges) == [
            "desiredCapacity",
            "initialLifecycleHooks",
            "suspendedProcesses",  # what the circuit breaker stopped, no `up` resumes
        ]

    def test_gates_the_first_fleet_by_both_hooks_and_later_changes_by_the_same(self) -> None:
        recording = group()
        initial = {hook["name"]: hook for hook in recording.one(GROUP).inputs["initialLifecycleHooks"]}
        assert initial == {
            "launching": {
                "name": "launching",
                "lifecycleTransition": "autoscaling:EC2_INSTANCE_LAUNCHING",
                "defaultResult": "ABANDON",
                "heartbeatTimeout": 900,
            },
            "terminating": {
                "name": "terminating",
                "lifecycleTransition": "autoscaling:EC2_INSTANCE_TERMINATING",
                "defaultResult": "CONTINUE",
                "heartbeatTimeout": 300,
            },
        }
        resources = {hook.inputs["name"]: dict(hook.inputs) for hook in recording.of_type(HOOK)}
        assert {hook.pop("autoscalingGroupName") for hook in resources.values()} == {"gputrain-test-trainers"}
        assert resources == initial

    def test_lies_in_the_subnets_of_its_zones(self) -> None:
        assert scaling_group()["vpcZoneIdentifiers"] == ["subnet-us-east-1a", "subnet-us-east-1b"]
        assert scaling_group(zones=["us-east-1b"])["vpcZoneIdentifiers"] == ["subnet-us-east-1b"]

    def test_makes_nobody_wait_for_capacity(self) -> None:
        """terraform-provider-aws#33665: an apply that waits for scarce GPUs fails."""
        inputs = scaling_group(purchase={"spotPercent": 100})
        assert inputs["waitForCapacityTimeout"] == "0"
        assert inputs["healthCheckType"] == "EC2" and inputs["healthCheckGracePeriod"] == 300

    def test_shows_the_metrics_that_the_alarms_read(self) -> None:
        metrics = scaling_group()["enabledMetrics"]
        assert {"GroupDesiredCapacity", "GroupInServiceInstances"} <= set(metrics)
        assert scaling_group()["metricsGranularity"] == "1Minute"

    def test_replaces_running_nodes_only_where_asked_to(self) -> None:
        assert "instanceRefresh" not in scaling_group()
        refresh = scaling_group(rollout="refresh")["instanceRefresh"]
        assert refresh["strategy"] == "Rolling" and refresh["preferences"] == {
            "minHealthyPercentage": 50,  # of two nodes
            "maxHealthyPercentage": 100,
            "skipMatching": True,
            "autoRollback": True,
            "scaleInProtectedInstances": "Refresh",
            "standbyInstances": "Terminate",
        }

    def test_keeps_nodes_close_together_where_asked_to(self) -> None:
        recording = group(placement="cluster", instanceTypes=["g6.12xlarge"], zones=["us-east-1a"])
        placement = recording.one("aws:ec2/placementGroup:PlacementGroup")
        assert placement.inputs["strategy"] == "cluster"
        assert recording.one(GROUP).inputs["placementGroup"] == placement.inputs["name"]
        assert not group().of_type("aws:ec2/placementGroup:PlacementGroup")

    def test_has_a_fixed_name_that_is_free_again_before_a_replacement(self) -> None:
        for type_ in (GROUP, TEMPLATE):
            found = group().one(type_)
            assert found.inputs["name"] == "gputrain-test-trainers" and found.request.deleteBeforeReplace


class TestTheOrder:
    def test_no_node_boots_before_what_it_needs_exists(self) -> None:
        recording = group(kms_key_arn="arn:aws:kms:us-east-1:123456789012:key/1234")
        assert recording.one(GROUP).depends_on >= {
            "network",
            "trainers-node-document",
            "trainers-node-policy",
            "trainers-node-key",
            "trainers-node-session-manager",
            "trainers-template",
        }

    def test_the_document_is_stored_under_its_hash_and_outlives_the_stack(self) -> None:
        found = group().one(OBJECT)
        assert found.inputs["key"].startswith("groups/trainers/node-") and found.request.retainOnDelete
        assert "network" in found.depends_on


def test_every_security_fact_is_known_before_anything_exists() -> None:
    """Only ids of what is still to be made are unknown at preview; everything that policies judge is plain."""
    recording = group(preview=True, instanceTypes=["p4d.24xlarge"], zones=["us-east-1a"])
    assert recording.one(TEMPLATE).unknowns == {"iamInstanceProfile.arn"}
    assert not recording.one("aws:iam/rolePolicy:RolePolicy").unknowns - {"role"}
    unknown_of_group = {path for path, value in leaves(recording.one(GROUP).inputs) if value == UNKNOWN}
    assert unknown_of_group == {"launchTemplate.id", "launchTemplate.version"}
