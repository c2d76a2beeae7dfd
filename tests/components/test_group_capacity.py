"""A group's capacity as declared: templates by layout, reservations, schedules, policies, placement, teardown."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
from trainer.agent.lifecycle import LAUNCHES_SUSPENDED, NODES_TRAINING

from components.bootstrap.node_document import METRIC_NAMESPACE
from components.compute.scaling import BLOCK_LEAVES_MINUTES
from components.monitoring import alarms
from localcloud.provider.tables import AWS
from tests.components.kit import Recording, record_program
from tests.components.test_gpu_group import GROUP, HOOK, OBJECT, TEMPLATE, group, scaling_group, template
from tests.unit.stack_files import minimal
from tests.unit.test_settings_capacity_rules import EVENING, IN_BLOCK, RESERVED
from tests.unit.test_settings_purchase_rules import with_fallback

SCHEDULE = "aws:autoscaling/schedule:Schedule"
POLICY = "aws:autoscaling/policy:Policy"
ALARM = "aws:cloudwatch/metricAlarm:MetricAlarm"
PLACEMENT = "aws:ec2/placementGroup:PlacementGroup"
EFA: dict[str, Any] = {"instanceTypes": ["p4d.24xlarge"], "zones": ["us-east-1a"]}
TWO_LAYOUTS: dict[str, Any] = {"instanceTypes": ["g6e.12xlarge", "g6e.24xlarge"], "zones": ["us-east-1a"]}
SPOT = {"spotPercent": 100}
PINNED = {"amiId": "ami-0123456789abcdef0", "name": "an image", "date": "2026-11-30"}


class TestSpot:
    @pytest.mark.parametrize("strategy", ["price-capacity-optimized", "capacity-optimized-prioritized"])
    def test_has_a_strategy_and_no_number_of_pools(self, strategy: str) -> None:
        """terraform#25038: pools that are left beside another strategy than lowest-price are refused."""
        policy = scaling_group(purchase={**SPOT, "strategy": strategy})["mixedInstancesPolicy"]
        distribution = policy["instancesDistribution"]
        assert distribution["spotAllocationStrategy"] == strategy and "spotInstancePools" not in distribution

    @pytest.mark.parametrize(("base", "percent"), [(0, 50), (1, 50), (0, 100), (1, 1)])
    def test_share_and_base_are_both_written(self, base: int, percent: int) -> None:
        """terraform-provider-aws#9841: a base of 0 is one too."""
        inputs = scaling_group(purchase={"onDemandBase": base, "spotPercent": percent})
        distribution = inputs["mixedInstancesPolicy"]["instancesDistribution"]
        assert distribution["onDemandBaseCapacity"] == base
        assert distribution["onDemandPercentageAboveBaseCapacity"] == 100 - percent

    def test_tries_each_type_in_order(self) -> None:
        """aws-parallelcluster#2716: a group that only ever tried its first type."""
        inputs = scaling_group(instanceTypes=["g6.xlarge", "g6.2xlarge"], purchase=SPOT)
        overrides = inputs["mixedInstancesPolicy"]["launchTemplate"]["overrides"]
        assert overrides == [{"instanceType": "g6.xlarge"}, {"instanceType": "g6.2xlarge"}]

    def test_never_has_a_market_type_beside_its_policy(self) -> None:
        """kops#10104."""
        for purchase in (SPOT, {"spotPercent": 1, "maxPriceUsdPerHour": 0.5}):
            recording = group(purchase=purchase)
            assert "mixedInstancesPolicy" in recording.one(GROUP).inputs
            assert all("instanceMarketOptions" not in found.inputs for found in recording.of_type(TEMPLATE))

    def test_is_rebalanced_without_efa_and_not_with_it(self) -> None:
        assert scaling_group(purchase=SPOT)["capacityRebalance"] is True
        assert scaling_group(**EFA, purchase=SPOT)["capacityRebalance"] is False
        assert scaling_group()["capacityRebalance"] is False


class TestTwoLayouts:
    """aws.md: a mixed policy over types with other cards needs a template each."""

    def test_are_two_templates_and_each_type_names_its_own_by_number(self) -> None:
        recording = group(**TWO_LAYOUTS, purchase=SPOT)
        names = {found.inputs["name"]: found for found in recording.of_type(TEMPLATE)}
        assert set(names) == {"gputrain-test-trainers", "gputrain-test-trainers-g6e.24xlarge"}
        counts = {
            found.inputs["instanceType"]: len(found.inputs["networkInterfaces"]) for found in names.values()
        }
        assert counts == {"g6e.12xlarge": 2, "g6e.24xlarge": 3}
        policy = recording.one(GROUP).inputs["mixedInstancesPolicy"]["launchTemplate"]
        assert policy["launchTemplateSpecification"] == {
            "launchTemplateId": "trainers-template-id",
            "version": "7",
        }
        # terraform-provider-aws#14440: $Latest never shows as a change.
        assert policy["overrides"] == [
            {"instanceType": "g6e.12xlarge"},
            {
                "instanceType": "g6e.24xlarge",
                "launchTemplateSpecification": {
                    "launchTemplateId": "trainers-template-g6e.24xlarge-id",
                    "version": "7",
                },
            },
        ]

    def test_have_groups_and_addresses_at_the_interfaces_alone(self) -> None:
        """terraform-provider-aws#4570: groups of the template are refused beside interfaces."""
        for found in group(**TWO_LAYOUTS, purchase=SPOT).of_type(TEMPLATE):
            assert not {"vpcSecurityGroupIds", "securityGroupNames"} & found.inputs.keys()
            for interface in found.inputs["networkInterfaces"]:
                assert interface["securityGroups"] == ["sg-nodes"]
                assert interface["associatePublicIpAddress"] == "false"
                assert interface["deleteOnTermination"] == "true"

    def test_exist_before_the_group(self) -> None:
        recording = group(**TWO_LAYOUTS, purchase=SPOT)
        assert {"trainers-template", "trainers-template-g6e.24xlarge"} <= recording.one(GROUP).depends_on


class TestAReservation:
    def test_of_a_capacity_block_is_market_type_and_target_in_a_template_without_policy_and_placement(
        self,
    ) -> None:
        """terraform-provider-aws#38579; terraform-aws-eks PR 3730."""
        recording = group(**IN_BLOCK)
        inputs = recording.one(TEMPLATE).inputs
        assert inputs["instanceMarketOptions"] == {"marketType": "capacity-block"}
        assert inputs["capacityReservationSpecification"] == {
            "capacityReservationTarget": {"capacityReservationId": "cr-0123456789abcdef0"}
        }
        assert inputs["instanceType"] == "p5en.48xlarge" and "placement" not in inputs
        scaled = recording.one(GROUP).inputs
        assert "mixedInstancesPolicy" not in scaled and "placementGroup" not in scaled
        assert not recording.of_type(PLACEMENT)
        assert (scaled["minSize"], scaled["desiredCapacity"]) == (0, 0)
        assert scaled["vpcZoneIdentifiers"] == ["subnet-us-east-1a"]

    def test_of_a_capacity_block_sets_the_size_at_both_edges(self) -> None:
        actions = {s.inputs["scheduledActionName"]: s.inputs for s in group(**IN_BLOCK).of_type(SCHEDULE)}
        assert BLOCK_LEAVES_MINUTES > 30
        start, end = actions["capacity-block-start"], actions["capacity-block-end"]
        assert (start["startTime"], start["desiredCapacity"]) == ("2027-01-11T11:30:00Z", 2)
        assert (end["startTime"], end["desiredCapacity"]) == ("2027-01-18T10:45:00Z", 0)
        for action in (start, end):
            assert (action["minSize"], action["maxSize"]) == (-1, -1) and "recurrence" not in action

    def test_on_demand_is_a_target_alone(self) -> None:
        """awsome-distributed-ai PR 1258. A preference beside a target is refused by EC2."""
        inputs = template(**RESERVED)
        assert inputs["capacityReservationSpecification"] == {
            "capacityReservationTarget": {"capacityReservationId": "cr-0123456789abcdef0"}
        }
        assert "instanceMarketOptions" not in inputs

    def test_is_absent_where_there_is_none(self) -> None:
        assert (
            not {"capacityReservationSpecification", "instanceMarketOptions", "placement"} & template().keys()
        )


class TestPlacement:
    def test_in_a_group_that_exists_is_the_templates_and_makes_none(self) -> None:
        recording = group(placement="pg-0123456789abcdef0", zones=["us-east-1a"])
        assert recording.one(TEMPLATE).inputs["placement"] == {"groupId": "pg-0123456789abcdef0"}
        assert "placementGroup" not in recording.one(GROUP).inputs and not recording.of_type(PLACEMENT)

    def test_is_a_choice_of_its_own_beside_efa(self) -> None:
        """terraform-aws-eks PR 2959."""
        assert not group(**EFA).of_type(PLACEMENT)
        assert group(**EFA, placement="cluster").of_type(PLACEMENT)

    @pytest.mark.parametrize("property_", ["placementGroup", "mixedInstancesPolicy", "launchTemplate"])
    def test_that_is_added_later_replaces_neither_the_group_nor_its_nodes(self, property_: str) -> None:
        """terraform-provider-aws#47679 is about single instances. Nodes of a group get it at their next boot."""
        assert not AWS[GROUP].forces_replacement(property_, "add")
        assert not AWS[TEMPLATE].forces_replacement("placement", "add")


class TestTeardown:
    def test_takes_the_group_and_its_nodes_before_their_placement_group(self) -> None:
        """terraform-provider-aws#21460: a placement group with a node in it is in use."""
        recording = group(**EFA, placement="cluster")
        assert recording.one(PLACEMENT).name in recording.one(GROUP).depends_on
        # Deleting the group waits for its nodes: no forced deletion, which would not.
        assert "forceDelete" not in recording.one(GROUP).inputs
        assert recording.one(GROUP).request.customTimeouts.delete == "45m"  # the provider's own is 10 minutes

    def test_takes_hooks_schedules_and_policies_before_the_group(self) -> None:
        recording = group(schedules=[EVENING], idleStopMinutes=30)
        parts = [found for type_ in (HOOK, SCHEDULE, POLICY) for found in recording.of_type(type_)]
        assert len(parts) == 4
        assert all("trainers-group" in found.depends_on for found in parts)


def whole(changes: dict[Any, Any]) -> Recording:
    """The program with these values over the minimal configuration."""
    return record_program("test", {**minimal(), **{path[0]: value for path, value in changes.items()}})


@cache  # a recording is only read
def unchanged() -> Recording:
    return whole({})


@cache
def falling_back() -> Recording:
    return whole(with_fallback({"maxNodes": 8}, maxNodes=3, minNodes=1))


class TestAFallBack:
    def test_has_exactly_as_many_nodes_as_are_lacking_and_at_the_end_its_least_size(self) -> None:
        recording = falling_back()
        policies = {found.inputs["name"]: found for found in recording.of_type(POLICY)}
        assert set(policies) == {"fallback-raise", "fallback-end"}
        for found in policies.values():
            assert found.inputs["autoscalingGroupName"] == "gputrain-test-on-demand"
            assert found.inputs["policyType"] == "StepScaling"
            assert found.inputs["adjustmentType"] == "ExactCapacity"
            assert "on-demand-group" in found.depends_on
        assert policies["fallback-raise"].inputs["stepAdjustments"] == [
            {"metricIntervalLowerBound": "0", "metricIntervalUpperBound": "0.5", "scalingAdjustment": 1},
            {"metricIntervalLowerBound": "0.5", "metricIntervalUpperBound": "1.5", "scalingAdjustment": 2},
            {"metricIntervalLowerBound": "1.5", "scalingAdjustment": 3},
        ]
        assert policies["fallback-end"].inputs["stepAdjustments"] == [
            {"metricIntervalUpperBound": "0", "scalingAdjustment": 1},
            {"metricIntervalLowerBound": "0", "scalingAdjustment": 1},
        ]

    def test_is_called_by_the_spot_groups_alarm_and_ended_by_its_end(self) -> None:
        recording = falling_back()
        alarms = {found.inputs["name"]: found for found in recording.of_type(ALARM)}
        short = alarms["gputrain-test-trainers-spot-short"]
        assert short.inputs["threshold"] == 0  # the steps count from it
        assert {"on-demand-fallback-raise", "on-demand-fallback-end"} <= short.depends_on
        (topic, raised), (same, ended) = short.inputs["alarmActions"], short.inputs["okActions"]
        assert topic == same and raised != ended
        others = [found for name, found in alarms.items() if found is not short]
        assert all(len(found.inputs["alarmActions"]) == 1 for found in others)
        assert "gputrain-test-on-demand-spot-short" not in alarms

    def test_is_left_together_with_its_spot_group_when_nobody_trains_on_either(self) -> None:
        """Else a run that ends while spot is short leaves the alarm on, and it raises the fall-back for ever."""
        recording = whole(with_fallback({"idleStopMinutes": 30}, minNodes=1))
        alarms = {found.inputs["name"]: found for found in recording.of_type(ALARM)}
        assert "gputrain-test-on-demand-idle" not in alarms
        idle = alarms["gputrain-test-trainers-idle"]
        assert {"trainers-idle-stop", "on-demand-fallback-end"} <= idle.depends_on
        assert len(idle.inputs["alarmActions"]) == 3  # the topic, and a policy of each group
        read = {
            query["metric"]["dimensions"]["AutoScalingGroupName"]
            for query in idle.inputs["metricQueries"][:-1]
        }
        assert read == {"gputrain-test-trainers", "gputrain-test-on-demand"}
        for found in recording.of_type(OBJECT):
            if found.inputs["key"].startswith(
                "groups/"
            ):  # nodes of both count, or the alarm would see nobody train
                assert json.loads(found.inputs["content"])["idleStopMinutes"] == 30

    def test_is_no_part_of_a_mixed_group(self) -> None:
        assert not whole(
            {("gpuGroups",): [{**minimal()["gpuGroups"][0], "purchase": {"spotPercent": 50}}]}
        ).of_type(POLICY)


def test_alarms_come_after_their_group_and_go_before_it() -> None:
    """Without its counts a group looks as if it had lost all nodes: people would be called at each creation."""
    recording = unchanged()
    found = recording.of_type(ALARM)
    assert found and all("trainers-group" in one.depends_on for one in found)


class TestIdleStop:
    def test_sets_the_group_to_zero_when_its_alarm_says_so(self) -> None:
        recording = whole({("gpuGroups",): [{**minimal()["gpuGroups"][0], "idleStopMinutes": 30}]})
        policy = recording.one(POLICY)
        assert policy.inputs["name"] == "idle-stop"
        assert {step["scalingAdjustment"] for step in policy.inputs["stepAdjustments"]} == {0}
        (alarm,) = [found for found in recording.of_type(ALARM) if found.inputs["name"].endswith("-idle")]
        assert policy.name in alarm.depends_on and len(alarm.inputs["alarmActions"]) == 2


def test_a_schedule_is_a_recurring_action_that_says_nothing_of_other_sizes() -> None:
    assert group(schedules=[EVENING]).one(SCHEDULE).inputs == {
        "scheduledActionName": "evening",
        "autoscalingGroupName": "gputrain-test-trainers",
        "minSize": -1,
        "maxSize": -1,
        "desiredCapacity": 2,
        "recurrence": "0 20 * * 1-5",
        "timeZone": "Etc/UTC",
    }


@pytest.mark.parametrize("changes", [{"schedules": [EVENING]}, IN_BLOCK], ids=["own", "block"])
def test_a_schedule_is_made_anew_at_any_change(changes: dict[str, Any]) -> None:
    """pulumi-aws#2473: an update sends the old start time along, which Auto Scaling refuses once it is past."""
    for found in group(**changes).of_type(SCHEDULE):
        assert list(found.request.replaceOnChanges) == ["*"] and found.request.deleteBeforeReplace


class TestARefresh:
    @pytest.mark.parametrize(("max_nodes", "percent"), [(1, 0), (4, 75), (8, 88)])
    def test_takes_one_node_at_a_time_and_none_beside_it(self, max_nodes: int, percent: int) -> None:
        preferences = scaling_group(rollout="refresh", maxNodes=max_nodes)["instanceRefresh"]["preferences"]
        assert (preferences["minHealthyPercentage"], preferences["maxHealthyPercentage"]) == (percent, 100)

    @pytest.mark.parametrize(
        ("image", "rolled_back"), [({"pinned": PINNED}, True), ({}, False)], ids=["pinned", "parameter"]
    )
    def test_begins_whatever_names_the_image(self, image: dict[str, Any], rolled_back: bool) -> None:
        """Auto Scaling refuses a refresh with a way back where the template names a parameter (API reference)."""
        image = {"profile": "dlami-pytorch-ubuntu-24.04", "ssmParameter": "/images/pytorch", **image}
        inputs = scaling_group(rollout="refresh", image=image)
        assert inputs["instanceRefresh"]["preferences"]["autoRollback"] is rolled_back

    @pytest.mark.parametrize("purchase", [{}, SPOT])
    def test_that_is_rolled_back_goes_to_a_number(self, purchase: dict[str, Any]) -> None:
        """terraform-provider-aws#34189: from $Latest it goes back to the same bad version."""
        inputs = scaling_group(rollout="refresh", purchase=purchase)
        assert inputs["instanceRefresh"]["preferences"]["autoRollback"] is True
        policy = inputs.get("mixedInstancesPolicy", {}).get("launchTemplate", {})
        specification = inputs.get("launchTemplate") or policy["launchTemplateSpecification"]
        assert specification["version"].isdecimal()


def test_the_circuit_breaker_is_whole() -> None:
    """A node may suspend launches of its own group alone, and its count raises the alarm that says the way back."""
    recording = unchanged()
    statements = [
        statement
        for policy in recording.of_type("aws:iam/rolePolicy:RolePolicy")
        for statement in policy.policy()
        if "autoscaling:SuspendProcesses" in statement["Action"]
    ]
    (statement,) = statements
    (resource,) = statement["Resource"]
    assert resource.endswith(":autoScalingGroupName/gputrain-test-trainers")
    by_name = {found.inputs["name"]: found.inputs for found in recording.of_type(ALARM)}
    alarm = by_name["gputrain-test-trainers-launches-suspended"]
    assert (alarm["namespace"], alarm["metricName"]) == (METRIC_NAMESPACE, LAUNCHES_SUSPENDED)
    assert alarm["dimensions"] == {"AutoScalingGroupName": "gputrain-test-trainers"}
    assert "resume-processes --auto-scaling-group-name gputrain-test-trainers" in alarm["alarmDescription"]
    # A launch that nobody completes is abandoned, and with it the node.
    hooks = {hook["name"]: hook for hook in recording.one(GROUP).inputs["initialLifecycleHooks"]}
    assert hooks["launching"]["defaultResult"] == "ABANDON"


def test_what_nodes_count_is_what_the_idle_alarm_reads() -> None:
    assert NODES_TRAINING == alarms.NODES_TRAINING and METRIC_NAMESPACE == alarms.NAMESPACE
