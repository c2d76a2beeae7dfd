"""Monitoring: what is logged, when whom an alarm tells, and what lands in a cluster."""

from __future__ import annotations

import json
from typing import Any

import pulumi
import pulumi_aws as aws
import pytest
import yaml
from trainer.agent.hours import COUNT_SECONDS

from components.monitoring import rule_groups
from components.monitoring.chart_values import CHART_VERSION
from components.monitoring.stack import AlarmActions, Monitoring, MonitoringArgs, WatchedGroup
from tests.components.kit import Recording, Registered, leaves, record

ALARM = "aws:cloudwatch/metricAlarm:MetricAlarm"
TOPIC = "aws:sns/topic:Topic"
TOPIC_POLICY = "aws:sns/topicPolicy:TopicPolicy"
SUBSCRIPTION = "aws:sns/topicSubscription:TopicSubscription"
RELEASE = "kubernetes:helm.sh/v3:Release"
CLUSTER = "pulumi:providers:kubernetes"
CANARY = "token-canary-7f3"
OWN_TOPIC_ARN = "arn:aws:mock:us-east-1:123456789012:watch-cloudwatch-alerts"
GROUPS = [WatchedGroup("lab-dev-demand", buys_spot=False), WatchedGroup("lab-dev-mixed", buys_spot=True)]


def run(groups: list[WatchedGroup] = GROUPS, **changes: Any) -> Recording:
    arguments: dict[str, Any] = {
        "base_name": "lab-dev",
        "account_id": "123456789012",
        "region": "us-east-1",
        "auto_scaling_groups": [group.auto_scaling_group for group in GROUPS],
        "metrics_port": 9400,
        "retention_days": 30,
        "alert_emails": [],
    }

    def program() -> None:
        provider = aws.Provider("aws", region="us-east-1")
        opts = pulumi.ResourceOptions(provider=provider)
        monitoring = Monitoring("watch", MonitoringArgs(**{**arguments, **changes}), opts)
        monitoring.watch(groups)
        pulumi.export("dashboardUrl", monitoring.dashboard_url)

    return record(program)


def alarm(recording: Recording, name: str) -> dict[str, Any]:
    [found] = [resource for resource in recording.of_type(ALARM) if resource.inputs["name"] == name]
    return found.inputs


class TestCloudWatch:
    def test_is_a_sound_tree_of_components(self) -> None:
        recording = run(alert_emails=["a@example.org"], kubeconfig="kind: Config")
        recording.assert_sound()
        assert recording.one("gputraining:monitoring:Monitoring", "watch")

    def test_the_nodes_log_group_has_the_name_that_documents_tell_and_forgets(self) -> None:
        group = run(retention_days=14).one("aws:cloudwatch/logGroup:LogGroup")
        assert (group.inputs["name"], group.inputs["retentionInDays"]) == ("/lab-dev/nodes", 14)

    def test_each_group_has_its_alarms_and_only_spot_can_be_short(self) -> None:
        names = {resource.inputs["name"] for resource in run().of_type(ALARM)}
        roles = ("node-missing", "self-check-failed", "launches-suspended")
        groups = ("lab-dev-demand", "lab-dev-mixed")
        assert names == {f"{group}-{role}" for group in groups for role in roles} | {
            "lab-dev-mixed-spot-short"
        }

    @pytest.mark.parametrize(
        ("role", "period", "periods", "datapoints", "missing"),
        [("node-missing", 60, 15, 15, "breaching"), ("spot-short", 300, 12, 9, "notBreaching")],
    )
    def test_a_shortfall_is_desired_less_in_service_of_that_group(
        self, role: str, period: int, periods: int, datapoints: int, missing: str
    ) -> None:
        inputs = alarm(run(), f"lab-dev-mixed-{role}")
        queries = {query["id"]: query for query in inputs["metricQueries"]}
        shown = [key for key, query in queries.items() if query["returnData"]]
        assert shown == ["judged"]
        assert queries["judged"]["expression"] == "desired - in_service"
        for key, metric in {
            "desired": "GroupDesiredCapacity",
            "in_service": "GroupInServiceInstances",
        }.items():
            assert queries[key]["metric"] == {
                "namespace": "AWS/AutoScaling",
                "metricName": metric,
                "dimensions": {"AutoScalingGroupName": "lab-dev-mixed"},
                "stat": "Average",
                "period": period,
            }
        assert (inputs["comparisonOperator"], inputs["threshold"]) == ("GreaterThanThreshold", 0)
        assert (inputs["evaluationPeriods"], inputs["datapointsToAlarm"]) == (periods, datapoints)
        assert inputs["treatMissingData"] == missing

    @pytest.mark.parametrize(
        ("role", "metric"),
        [("self-check-failed", "SelfCheckFailed"), ("launches-suspended", "LaunchesSuspended")],
    )
    def test_one_event_that_nodes_count_is_enough(self, role: str, metric: str) -> None:
        inputs = alarm(run(), f"lab-dev-demand-{role}")
        assert (inputs["namespace"], inputs["metricName"], inputs["statistic"]) == (
            "GpuTraining",
            metric,
            "Sum",
        )
        assert inputs["dimensions"] == {"AutoScalingGroupName": "lab-dev-demand"}
        assert (inputs["comparisonOperator"], inputs["threshold"]) == ("GreaterThanOrEqualToThreshold", 1)
        assert (inputs["datapointsToAlarm"], inputs["treatMissingData"]) == (1, "notBreaching")

    def test_every_alarm_and_its_end_is_told_with_what_to_do(self) -> None:
        for resource in run().of_type(ALARM):
            assert resource.inputs["alarmActions"] == resource.inputs["okActions"] == [OWN_TOPIC_ARN]
            role = resource.inputs["name"].removeprefix("lab-dev-demand-").removeprefix("lab-dev-mixed-")
            assert resource.inputs["alarmDescription"].endswith(f"See docs/runbooks.md#{role}")
            assert len(resource.inputs["alarmDescription"]) <= 1024
        resume = alarm(run(), "lab-dev-mixed-launches-suspended")["alarmDescription"]
        assert "resume-processes --auto-scaling-group-name lab-dev-mixed --scaling-processes Launch" in resume

    def test_an_idle_group_is_one_with_nodes_of_which_none_trained_for_that_long(self) -> None:
        policy = "arn:aws:autoscaling:us-east-1:123456789012:scalingPolicy:1"
        group = WatchedGroup("lab-dev-idle", False, 45, actions={"idle": AlarmActions([policy])})
        inputs = alarm(run([group]), "lab-dev-idle-idle")
        queries = {query["id"]: query for query in inputs["metricQueries"]}
        judged = queries.pop("judged")
        # A node that is on its way is what a run waits for.
        assert judged["expression"] == "IF(in_service0 > 0 AND pending0 < 1 AND training0 < 1, 1, 0)"
        read = {
            key: (query["metric"]["namespace"], query["metric"]["metricName"], query["metric"]["stat"])
            for key, query in queries.items()
        }
        assert read == {
            "in_service0": ("AWS/AutoScaling", "GroupInServiceInstances", "Minimum"),
            "pending0": ("AWS/AutoScaling", "GroupPendingInstances", "Maximum"),
            "training0": ("GpuTraining", "NodesTraining", "Maximum"),
        }
        assert {query["metric"]["dimensions"]["AutoScalingGroupName"] for query in queries.values()} == {
            "lab-dev-idle"
        }
        # Counts that do not arrive stop nobody.
        assert inputs["treatMissingData"] == "notBreaching"
        assert inputs["alarmActions"] == [OWN_TOPIC_ARN, policy] and inputs["okActions"] == []

    def test_a_group_and_its_fall_back_are_idle_together(self) -> None:
        """SUM and MAX of a list leave out what has no data: spot nodes that were never had count nothing."""
        group = WatchedGroup("lab-dev-spot", True, 30, "lab-dev-other")
        inputs = alarm(run([group]), "lab-dev-spot-idle")
        judged = inputs["metricQueries"][-1]
        assert judged["expression"] == (
            "IF(SUM([in_service0, in_service1]) > 0 AND SUM([pending0, pending1]) < 1 "
            "AND MAX([training0, training1]) < 1, 1, 0)"
        )
        groups = [
            query["metric"]["dimensions"]["AutoScalingGroupName"] for query in inputs["metricQueries"][:-1]
        ]
        assert groups == ["lab-dev-spot"] * 3 + ["lab-dev-other"] * 3

    @pytest.mark.parametrize("minutes", [10, 12, 45, 1440])
    def test_idleness_is_counted_over_several_counts_of_a_node(self, minutes: int) -> None:
        """A node that counts a little more rarely than each minute leaves some minutes out, and one is enough to begin
        anew: after a day no group would ever be stopped.
        """
        inputs = alarm(run([WatchedGroup("lab-dev-idle", False, minutes)]), "lab-dev-idle-idle")
        (period,) = {query["metric"]["period"] for query in inputs["metricQueries"][:-1]}
        assert period >= 3 * COUNT_SECONDS
        assert 0 <= inputs["evaluationPeriods"] * period - minutes * 60 < period
        assert inputs["datapointsToAlarm"] == inputs["evaluationPeriods"]
        assert inputs["evaluationPeriods"] * period <= 86400  # PutMetricAlarm

    def test_an_alarm_calls_what_it_is_given_beside_telling_people(self) -> None:
        actions = {"spot-short": AlarmActions(["arn:raise"], ["arn:end"])}
        recording = run([WatchedGroup("lab-dev-mixed", True, actions=actions)])
        for resource in recording.of_type(ALARM):
            short = resource.inputs["name"].endswith("spot-short")
            assert resource.inputs["alarmActions"] == [OWN_TOPIC_ARN, *(["arn:raise"] if short else [])]
            assert resource.inputs["okActions"] == [OWN_TOPIC_ARN, *(["arn:end"] if short else [])]

    def test_only_this_accounts_alarms_publish_and_only_by_tls(self) -> None:
        recording = run()
        assert recording.one(TOPIC).inputs["name"] == "lab-dev-alerts"
        allow, deny = recording.one(TOPIC_POLICY).policy()
        topic = ["arn:aws:sns:us-east-1:123456789012:lab-dev-alerts"]
        assert allow["Principal"] == {"Service": ["cloudwatch.amazonaws.com"]}
        assert allow["Condition"] == {"StringEquals": {"aws:SourceAccount": ["123456789012"]}}
        assert (deny["Effect"], deny["Condition"]) == ("Deny", {"Bool": {"aws:SecureTransport": ["false"]}})
        for statement in (allow, deny):
            assert (statement["Action"], statement["Resource"]) == (["sns:Publish"], topic)

    def test_people_subscribe_by_mail(self) -> None:
        found = run(alert_emails=["a@example.org", "b@example.org"]).of_type(SUBSCRIPTION)
        assert {s.inputs["endpoint"] for s in found} == {"a@example.org", "b@example.org"}
        assert {(s.inputs["protocol"], s.inputs["topic"]) for s in found} == {("email", OWN_TOPIC_ARN)}

    def test_a_topic_that_exists_is_used_as_it_is(self) -> None:
        arn = "arn:aws:sns:us-east-1:123456789012:pager"
        recording = run(sns_topic_arn=arn)
        assert not recording.of_type(TOPIC) and not recording.of_type(TOPIC_POLICY)
        assert {tuple(resource.inputs["alarmActions"]) for resource in recording.of_type(ALARM)} == {(arn,)}

    def test_the_dashboard_shows_each_group_and_has_an_address(self) -> None:
        recording = run()
        board = recording.one("aws:cloudwatch/dashboard:Dashboard")
        assert board.inputs["dashboardName"] == "lab-dev-nodes"
        assert recording.outputs["dashboardUrl"] == (
            "https://us-east-1.console.aws.amazon.com/cloudwatch/home"
            "?region=us-east-1#dashboards/dashboard/lab-dev-nodes"
        )
        metrics = [
            (metric[0], metric[1], metric[3])
            for widget in json.loads(board.inputs["dashboardBody"])["widgets"]
            for metric in widget["properties"]["metrics"]
        ]
        for group in ("lab-dev-demand", "lab-dev-mixed"):
            assert {metric for _, metric, of in metrics if of == group} == {
                "GroupDesiredCapacity",
                "GroupInServiceInstances",
                "SelfCheckFailed",
                "LaunchesSuspended",
            }

    def test_no_cluster_no_kubernetes(self) -> None:
        assert not [resource for resource in run().resources if "kubernetes" in resource.type]


class TestCluster:
    @pytest.fixture(scope="class")
    def recording(self) -> Recording:
        return run(kubeconfig=f"users: [{{token: {CANARY}}}]", retention_days=14)

    @pytest.fixture(scope="class")
    def release(self, recording: Recording) -> Registered:
        return recording.one(RELEASE)

    def test_a_plain_kubeconfig_becomes_a_secret_and_goes_nowhere_else(self, recording: Recording) -> None:
        seen = {
            (resource.type, path)
            for resource in recording.resources
            for path, value in leaves(resource.inputs)
            if CANARY in str(value)
        }
        assert seen == {(CLUSTER, "kubeconfig")}
        assert "kubeconfig" in recording.one(CLUSTER).secrets

    def test_a_renewed_kubeconfig_replaces_nothing(self, recording: Recording) -> None:
        assert recording.one(CLUSTER).inputs["clusterIdentifier"] == "lab-dev"

    def test_namespace_and_release_are_in_that_cluster_in_this_order(
        self, recording: Recording, release: Registered
    ) -> None:
        namespace = recording.one("kubernetes:core/v1:Namespace")
        assert namespace.inputs["metadata"]["name"] == release.inputs["namespace"] == "lab-dev-monitoring"
        assert namespace.name in release.depends_on
        for resource in (namespace, release):
            assert resource.request.provider.startswith(recording.one(CLUSTER).urn)

    def test_the_charts_version_is_pinned_and_a_failed_install_is_rolled_back(
        self, release: Registered
    ) -> None:
        assert (release.inputs["chart"], release.inputs["version"]) == (
            "kube-prometheus-stack",
            CHART_VERSION,
        )
        assert release.inputs["atomic"] is True

    def test_the_rules_are_those_of_the_files(self, release: Registered) -> None:
        given = release.inputs["values"]["additionalPrometheusRulesMap"]
        assert given == {f"gpu-training-{name}": groups for name, groups in rule_groups().items()}

    def test_prometheus_scrapes_these_groups_and_keeps_as_long_as_asked(self, release: Registered) -> None:
        spec = release.inputs["values"]["prometheus"]["prometheusSpec"]
        [job] = spec["additionalScrapeConfigs"]
        [discovery] = job["ec2_sd_configs"]
        assert discovery["filters"][0]["values"] == ["lab-dev-demand", "lab-dev-mixed"]
        assert (spec["retention"], spec["externalLabels"]) == ("14d", {"stack": "lab-dev"})

    def test_our_alerts_reach_the_topic_and_the_clusters_own_do_not(self, release: Registered) -> None:
        config = release.inputs["values"]["alertmanager"]["config"]
        [route] = config["route"]["routes"]
        assert 'service="gpu-training"' in route["matchers"]
        receivers = {receiver["name"]: receiver for receiver in config["receivers"]}
        [sns] = receivers[route["receiver"]]["sns_configs"]
        assert sns == {"topic_arn": OWN_TOPIC_ARN, "sigv4": {"region": "us-east-1"}}
        assert set(receivers[config["route"]["receiver"]]) == {"name"}

    def test_grafana_gets_one_dashboard_and_no_password_from_us(self, release: Registered) -> None:
        grafana = release.inputs["values"]["grafana"]
        [provider] = grafana["dashboardProviders"]["dashboardproviders.yaml"]["providers"]
        [(folder, boards)] = grafana["dashboards"].items()
        assert provider["options"]["path"].endswith(f"/{folder}")
        assert [json.loads(board["json"])["title"] for board in boards.values()] == ["GPU training"]
        assert "password" not in yaml.safe_dump(
            {key: value for key, value in grafana.items() if key != "dashboards"}
        )
