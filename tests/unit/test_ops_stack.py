"""`make status`, `make logs` and `make connect` on a stack in an account."""

from __future__ import annotations

import datetime
import itertools
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from trainer.agent.board import Board
from trainer.contracts.run import RunConfig, RunPointer

from ops import connect, local, logs, status
from ops.connect import argv_of, choose
from ops.fleet import Group, Node, group_of, hourly_cost, read_groups, trouble_of
from ops.refusal import Refused
from ops.status import Snapshot
from tests.unit.ops_kit import GOOD, account_of, cloud, session, settings_with

NOW = datetime.datetime(2026, 11, 30, 12, tzinfo=datetime.timezone.utc)
ASG = "gputrain-dev-trainers"
LOG_GROUP = "/gputrain-dev/nodes"
BUCKET = "gputrain-dev-artifacts-123456789012"


def node(number: int, **changes: Any) -> Node:
    values = {
        "instance_id": f"i-{number:017x}",
        "group": "trainers",
        "instance_type": "g6.xlarge",
        "zone": "us-east-1a",
        "state": "InService",
        "lifecycle": "on-demand",
        **changes,
    }
    return Node(**values)


class TestTheFleet:
    ROW: dict[str, Any] = {  # noqa: RUF012  DescribeAutoScalingGroups' row
        "AutoScalingGroupName": ASG,
        "DesiredCapacity": 3,
        "MinSize": 0,
        "MaxSize": 4,
        "SuspendedProcesses": [{"ProcessName": "Launch", "SuspensionReason": "User suspended"}],
        "Instances": [
            {
                "InstanceId": "i-2",
                "InstanceType": "g6.xlarge",
                "AvailabilityZone": "b",
                "LifecycleState": "Pending:Wait",
            },
            {
                "InstanceId": "i-1",
                "InstanceType": "g6.xlarge",
                "AvailabilityZone": "a",
                "LifecycleState": "InService",
            },
        ],
    }

    def test_a_group_is_counted_by_state_way_of_buying_and_zone(self) -> None:
        group = group_of("trainers", self.ROW, {"i-1": "spot", "i-2": "on-demand"}, [])
        assert (group.in_service, group.pending, group.desired) == (1, 1, 3)
        assert group.places == "1 on-demand in b, 1 spot in a"
        assert group.suspended == ("Launch",)

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            (
                "We currently do not have sufficient capacity. Launching EC2 instance failed. "
                "InsufficientInstanceCapacity",
                "EC2 has no capacity for it here now",
            ),
            ("Could not launch Spot Instances. x", "no spot capacity in the group's zones and types"),
            (
                "Instance failed: VcpuLimitExceeded - You have requested",
                "the account's vCPU quota is too small",
            ),
            (
                "Lifecycle Action Token 1 was abandoned: Heartbeat Timeout",
                "the node failed its boot or self-check: make logs shows why",
            ),
        ],
    )
    def test_a_failed_launch_is_told_in_words(self, text: str, words: str) -> None:
        told = trouble_of({"StatusCode": "Failed", "StatusMessage": text, "StartTime": NOW})
        assert told is not None and told.startswith(f"2026-11-30 12:00 {words} (")

    def test_what_nobody_knows_is_told_as_it_is_and_what_went_well_not_at_all(self) -> None:
        assert trouble_of({"StatusCode": "Failed", "StatusMessage": "Odd"}) == "Odd"
        assert trouble_of({"StatusCode": "Successful", "StatusMessage": "x"}) is None

    def test_the_cost_is_of_the_nodes_that_there_are(self) -> None:
        nodes = [node(1), node(2), node(3, lifecycle="capacity-block"), node(4, instance_type="x9.huge")]
        low, high, unknown = hourly_cost(nodes, "us-east-1")
        assert low == high == pytest.approx(2 * 0.8048)
        assert unknown == ["x9.huge on-demand"]


def snapshot(**changes: Any) -> Snapshot:
    group = Group("trainers", ASG, 2, 0, 4, (node(1), node(2)), (), ())
    values: dict[str, Any] = {"groups": (group,), "alarms": (), "runs": (), "notes": (), **changes}
    return Snapshot("dev", "123456789012", "us-east-1", **values)


class TestWhatIsWrong:
    def test_nothing_where_all_nodes_are_in_service(self) -> None:
        assert snapshot().wrong == []

    def test_suspended_launches_come_with_the_command_that_resumes_them(self) -> None:
        group = Group("trainers", ASG, 0, 0, 4, (), ("Launch",), ())
        [line] = snapshot(groups=(group,)).wrong
        assert line.endswith(
            "aws autoscaling resume-processes --region us-east-1 --auto-scaling-group-name gputrain-dev-trainers "
            "--scaling-processes Launch"
        )

    def test_missing_nodes_and_alarms(self) -> None:
        group = Group("trainers", ASG, 2, 0, 4, (node(1, state="Pending"),), (), ())
        assert snapshot(groups=(group,), alarms=("a: b",)).wrong == [
            "alarm a: b",
            "trainers has 0 of 2 nodes in service",
        ]


@pytest.fixture(scope="module")
def stack() -> Iterator[None]:
    """A stack in moto: a group of one node, an alarm that is on, a run, and log streams."""
    with pytest.MonkeyPatch.context() as monkeypatch, cloud(monkeypatch):
        scaling = session().client("autoscaling")
        session().client("ec2").create_launch_template(
            LaunchTemplateName="template",
            LaunchTemplateData={"ImageId": GOOD, "InstanceType": "g6.xlarge"},
        )
        scaling.create_auto_scaling_group(
            AutoScalingGroupName=ASG,
            MinSize=0,
            MaxSize=4,
            DesiredCapacity=1,
            AvailabilityZones=["us-east-1a"],
            LaunchTemplate={"LaunchTemplateName": "template", "Version": "1"},
        )
        alarms = session().client("cloudwatch")
        for name in (f"{ASG}-node-missing", "another-stack-node-missing"):
            alarms.put_metric_alarm(
                AlarmName=name,
                EvaluationPeriods=1,
                ComparisonOperator="GreaterThanThreshold",
                MetricName="m",
                Namespace="n",
                Period=60,
                Statistic="Sum",
                Threshold=0,
            )
            alarms.set_alarm_state(AlarmName=name, StateValue="ALARM", StateReason="too few")
        session().client("s3").create_bucket(Bucket=BUCKET)
        board = Board.connect("us-east-1", BUCKET)
        training = {"model": "tiny_vision", "dataset": "shapes@v1", "steps": 10, "globalBatchSize": 8}
        config = RunConfig.model_validate(
            {
                "name": "sample",
                "groups": ["trainers"],
                "nodes": 1,
                "training": training,
                "createdAt": "2026-11-30",
            }
        )
        board.store.put(BUCKET, "runs/sample/config.json", config.to_json().encode())
        pointer = {"run": "sample", "action": "start", "updatedAt": "2026-11-30T00:00:00Z"}
        board.put_pointer("trainers", RunPointer.model_validate(pointer))
        write_logs()
        yield


def write_logs() -> None:
    client, now = session().client("logs"), int(time.time() * 1000)
    client.create_log_group(logGroupName=LOG_GROUP)
    lines = {
        "trainers/i-1/bootstrap": [(-3000, "bootstrap: FAILED 54 BOOT_RELEASE_MISSING: it is gone")],
        "trainers/i-2/agent": [
            (-9_000_000, '{"event": "long ago", "level": "info"}'),
            (-2000, '{"event": "checkpoint", "level": "warning", "run": "sample", "step": 7, "why": "a b"}'),
        ],
        "trainers/i-1/agent": [(-1000, '{"event": "joined", "level": "info", "run": "other"}')],
    }
    for stream, events in lines.items():
        client.create_log_stream(logGroupName=LOG_GROUP, logStreamName=stream)
        rows = [{"timestamp": now + at, "message": message} for at, message in events]
        client.put_log_events(logGroupName=LOG_GROUP, logStreamName=stream, logEvents=rows)


@pytest.fixture
def command(stack: None, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    for name, value in (
        ("AWS_ACCESS_KEY_ID", "t"),
        ("AWS_SECRET_ACCESS_KEY", "t"),
        ("AWS_DEFAULT_REGION", "us-east-1"),
    ):
        monkeypatch.setenv(name, value)
    for module in (status, logs, connect):
        monkeypatch.setattr(module, "settings_of", lambda stack_: settings_with(stack_))
    return lambda module, *argv: module.main(["--stack", "dev", *argv])


class TestStatus:
    def test_shows_groups_alarms_run_and_cost(
        self, command: Callable[..., int], capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert command(status) == 1  # an alarm is on
        told = capsys.readouterr().out
        assert "1 on-demand in us-east-1a" in told
        assert "run sample: waiting" in told
        assert "alarm gputrain-dev-trainers-node-missing: too few" in told and "another-stack" not in told
        assert "1 nodes cost 0.80 USD an hour by list price" in told

    def test_json_has_the_same(self, command: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
        command(status, "--json")
        told = json.loads(capsys.readouterr().out)
        assert told["groups"][0]["nodes"][0]["state"] == "InService"
        assert told["runs"][0]["status"]["run"] == "sample" and len(told["wrong"]) == 1

    def test_a_stack_that_is_not_up_is_one_line(self, stack: None, monkeypatch: pytest.MonkeyPatch) -> None:
        with (
            cloud(monkeypatch),
            pytest.raises(Refused, match=r"stack 'other' is not up in account .*pulumi up"),
        ):
            settings = settings_with("other")
            read_groups(account_of(settings), settings)


class TestLogs:
    def test_all_streams_are_one_by_time(
        self, command: Callable[..., int], capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert command(logs) == 0
        lines = [line.split(" ", 2)[2] for line in capsys.readouterr().out.splitlines()]
        assert lines == [
            "trainers/i-1 bootstrap: FAILED 54 BOOT_RELEASE_MISSING: it is gone",
            'trainers/i-2 WARNING checkpoint run=sample step=7 why="a b"',
            "trainers/i-1 joined run=other",
        ]

    def test_one_node_or_a_longer_time(
        self, command: Callable[..., int], capsys: pytest.CaptureFixture[str]
    ) -> None:
        command(logs, "--node", "i-2", "--since", "1d")
        told = capsys.readouterr().out
        assert "long ago" in told and "checkpoint" in told and "joined" not in told

    def test_a_node_that_logged_nothing_and_a_run_that_is_no_name(
        self, command: Callable[..., int], capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert command(logs, "--node", "i-9") == 2
        assert "those that have: i-1, i-2" in capsys.readouterr().err
        assert command(logs, "--run", 'x" }') == 2

    def test_a_run_is_filtered_by_cloudwatch_itself(self) -> None:
        assert logs.pattern_for("sample") == '{ $.run = "sample" }'
        assert logs.pattern_for(None) is None

    @pytest.mark.parametrize(
        ("text", "before"),
        [
            ("90s", 90),
            ("30m", 1800),
            ("2h", 7200),
            ("3d", 259200),
            ("2026-11-30T11:00", 3600),
            ("2026-11-30T11:00Z", 3600),
        ],
    )
    def test_since_is_a_duration_or_a_moment(self, text: str, before: int) -> None:
        assert logs.since_ms(text, NOW) == int((NOW.timestamp() - before) * 1000)

    def test_anything_else_is_refused(self) -> None:
        with pytest.raises(Refused, match="SINCE=yesterday"):
            logs.since_ms("yesterday", NOW)

    def test_following_tells_each_event_once_also_those_that_come_late(self) -> None:
        rounds = iter([[("a", 1000)], [("a", 1000), ("late", 900), ("b", 2000)], [("b", 2000)]])
        asked: list[int] = []

        def ask(start_ms: int) -> list[dict[str, Any]]:
            asked.append(start_ms)
            return [{"eventId": id_, "timestamp": at} for id_, at in next(rounds)]

        turns = itertools.count()
        seen = [event["eventId"] for event in logs.follow(ask, 500, lambda: next(turns) < 2)]
        assert seen == ["a", "late", "b"] and asked == [500, 500, 500]


class TestConnect:
    def test_a_shell_is_the_stacks_own_logged_document(self) -> None:
        assert argv_of("i-1", "us-east-1", "gputrain-dev-session", None, None) == [
            *("aws", "ssm", "start-session", "--region", "us-east-1", "--target", "i-1"),
            *("--document-name", "gputrain-dev-session"),
        ]

    @pytest.mark.parametrize(("local_port", "here"), [(None, "8888"), (9999, "9999")])
    def test_a_port_is_forwarded_by_awss_document(self, local_port: int | None, here: str) -> None:
        argv = argv_of("i-1", "us-east-1", "d", 8888, local_port)
        assert argv[-4:-1] == ["--document-name", "AWS-StartPortForwardingSession", "--parameters"]
        assert json.loads(argv[-1]) == {"portNumber": ["8888"], "localPortNumber": [here]}

    def test_the_only_node_needs_no_name(self) -> None:
        assert choose([node(1), node(2, state="Terminating")], None) == node(1)

    def test_of_several_one_must_be_named_and_all_are_listed(self) -> None:
        with pytest.raises(Refused) as fault:
            choose([node(1), node(2)], None)
        assert str(fault.value).count("NODE=i-") == 2
        assert choose([node(1), node(2)], node(2).instance_id) == node(2)

    @pytest.mark.parametrize(
        ("nodes", "wanted", "words"),
        [
            ([], None, "no node can be reached; the groups are empty"),
            ([node(1, state="Terminating")], None, "no node can be reached:"),
            ([node(1)], "i-00000000000000009", "i-00000000000000009 is no node of this stack; there are:"),
        ],
    )
    def test_what_cannot_be_reached(self, nodes: list[Node], wanted: str | None, words: str) -> None:
        with pytest.raises(Refused, match=words):
            choose(nodes, wanted)

    def test_hands_over_to_the_aws_cli(
        self, command: Callable[..., int], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ran: list[list[str]] = []
        monkeypatch.setattr(connect, "missing_tool", lambda: None)
        monkeypatch.setattr(connect.os, "execvp", lambda _, argv: ran.append(argv))
        command(connect, "--port", "6006")
        assert ran[0][0] == "aws" and '"6006"' in ran[0][-1]

    @pytest.mark.parametrize("lacking", ["aws", "session-manager-plugin"])
    def test_a_tool_that_is_missing_is_named_with_where_it_comes_from(
        self, lacking: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(connect.shutil, "which", lambda name: None if name == lacking else "/x")
        assert connect.main(["--stack", "dev"]) == 2
        assert f"there is no {lacking} on your PATH" in capsys.readouterr().err

    @pytest.mark.parametrize("argv", [["--node", "x"], ["--port", "0"], ["--port", "70000"]])
    def test_what_is_no_node_or_port(self, argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        assert connect.main(["--stack", "dev", *argv]) == 2
        assert capsys.readouterr().err.count("\n") == 1


class TestTheLocalStack:
    def test_its_consoles_are_tailed(self, tmp_path: Path) -> None:
        for name in ("i-1", "i-2"):
            (tmp_path / "nodes" / name).mkdir(parents=True)
            (tmp_path / "nodes" / name / "console.log").touch()
        paths = local.consoles("i-2", tmp_path)
        assert [path.parent.name for path in paths] == ["i-2"] and len(local.consoles(None, tmp_path)) == 2
        assert local.tail_argv(paths, True)[:5] == ["tail", "-v", "-n", "200", "-F"]
        with pytest.raises(Refused, match="i-3 is no node of the local stack; there are i-1, i-2"):
            local.consoles("i-3", tmp_path)

    def test_without_one_the_command_that_brings_it_up_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(Refused, match="make up"):
            local.consoles(None, tmp_path)

    def test_there_is_no_session_manager(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert connect.main(["--stack", "local"]) == 2
        assert "no Session Manager" in capsys.readouterr().err
