"""What a run cost and who is told of its end: the sums by table and property, the message by a real topic."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trainer.agent.board import Board, utc_now
from trainer.agent.cost import all_usage, describe_cost, list_prices, node_usage, run_cost, seconds_before
from trainer.agent.ending import Ending
from trainer.agent.generation import Conclude
from trainer.agent.run_events import RunEvents, run_event, subject, text
from trainer.contracts import keys
from trainer.contracts.cluster import Cluster, GroupInfo, HourlyPrice
from trainer.contracts.cost import NodeUsage, RunUsage
from trainer.contracts.run import Member, MemberReport, RunConfig, RunResult, TrainingConfig, Versions
from trainer.contracts.run_event import RunEvent
from trainer.exit_codes import Exit
from trainer.report.progress import Progress
from trainer.runs import control
from trainer.runs.status import read_status
from trainer.runs.watch import headline

from tests.local.cloud_kit import REGION, client, wait_until
from tests.trainer import run_kit
from tests.trainer.agent_kit import Cloud, RunningAgent
from tests.trainer.kit import Bench

HOUR = 3600.0
PRICES = {
    "g6.xlarge": HourlyPrice(on_demand_usd=0.8, spot_low_usd=0.4, spot_high_usd=0.8, as_of="2026-07-20"),
    "p5.48xlarge": HourlyPrice(on_demand_usd=55.0, as_of="2026-06-01"),
}


def report(usage: NodeUsage | None, instance_id: str = "i-1") -> MemberReport:
    member = Member(instance_id=instance_id, group="gpu", address="10.0.0.1", local_world_size=1)
    return MemberReport(member=member, versions=Versions(trainer="1", torch="2"), state="ready", usage=usage)


class TestNodeUsage:
    def test_on_demand_is_one_price(self) -> None:
        usage = node_usage("g6.xlarge", "on-demand", HOUR, PRICES)
        assert (usage.usd_per_hour_low, usage.usd_per_hour_high) == (0.8, 0.8)
        assert usage.prices_as_of == "2026-07-20"

    def test_spot_is_a_range(self) -> None:
        usage = node_usage("g6.xlarge", "spot", HOUR, PRICES)
        assert (usage.life_cycle, usage.usd_per_hour_low, usage.usd_per_hour_high) == ("spot", 0.4, 0.8)

    @pytest.mark.parametrize(
        ("type_", "life_cycle"), [("p5.48xlarge", "spot"), ("g7.xlarge", "on-demand"), ("g7.xlarge", "spot")]
    )
    def test_an_unknown_price_is_not_guessed(self, type_: str, life_cycle: str) -> None:
        usage = node_usage(type_, life_cycle, HOUR, PRICES)
        assert (usage.usd_per_hour_low, usage.usd_per_hour_high, usage.prices_as_of) == (None, None, None)

    def test_a_capacity_block_was_paid_before(self) -> None:
        usage = node_usage("g6.xlarge", "capacity-block", HOUR, PRICES)
        assert (usage.life_cycle, usage.usd_per_hour_low) == ("capacity-block", None)


class TestListPrices:
    """They come from cluster.json, which changes while nodes run, and are read once for a run."""

    @pytest.fixture
    def board(self, bench: Bench) -> Board:
        return Board(bench.store, bench.bucket)

    def put(self, board: Board, prices: dict[str, HourlyPrice]) -> None:
        others = {"g6.xlarge": HourlyPrice(on_demand_usd=99.0, as_of="2026-07-20")}
        groups = {
            "gpu": GroupInfo(auto_scaling_group="test-gpu", max_nodes=2, prices=prices),
            "others": GroupInfo(auto_scaling_group="test-others", max_nodes=2, prices=others),
        }
        known = Cluster(
            stack="test", region=REGION, artifacts_bucket=board.bucket, groups=groups, datasets={}
        )
        board.put_text(keys.cluster(), known.to_json())

    def test_are_those_of_the_own_group_as_they_are_now(self, board: Board) -> None:
        self.put(board, PRICES)
        assert list_prices(board, "gpu") == PRICES
        dearer = {"g6.xlarge": HourlyPrice(on_demand_usd=1.0, as_of="2026-08-01")}
        self.put(board, dearer)
        assert list_prices(board, "gpu") == dearer

    @pytest.mark.parametrize("text", [None, "{", "{}", '{"groups": {}}'])
    def test_that_cannot_be_read_are_none_and_the_log_says_so_once(
        self, board: Board, text: str | None, capsys: pytest.CaptureFixture[str]
    ) -> None:
        if text is not None:
            board.put_text(keys.cluster(), text)
        assert list_prices(board, "gpu") == {}
        assert capsys.readouterr().out.count(f"s3://{board.bucket}/cluster.json") == 1

    def test_of_a_group_that_is_not_named_are_none(
        self, board: Board, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.put(board, PRICES)
        assert list_prices(board, "new") == {} and "the group new" in capsys.readouterr().out

    def test_that_s3_does_not_give_are_none(self, board: Board, capsys: pytest.CaptureFixture[str]) -> None:
        nowhere = Board(board.store, f"{board.bucket}-gone")  # no such bucket
        assert list_prices(nowhere, "gpu") == {} and "NoSuchBucket" in capsys.readouterr().out


class TestRunCost:
    def test_is_the_sum_over_types_and_ways_of_buying(self) -> None:
        cost = run_cost(
            {
                "i-1": node_usage("g6.xlarge", "on-demand", HOUR, PRICES),
                "i-2": node_usage("g6.xlarge", "spot", HOUR / 2, PRICES),
                "i-3": node_usage("g6.xlarge", "spot", HOUR / 2, PRICES),
                "i-4": node_usage("p5.48xlarge", "on-demand", 2 * HOUR, PRICES),
            }
        )
        assert cost is not None
        assert (cost.usd_low, cost.usd_high) == (0.8 + 0.4 + 110, 0.8 + 0.8 + 110)
        assert [(k.instance_type, k.life_cycle, k.nodes, k.hours) for k in cost.node_hours] == [
            ("g6.xlarge", "on-demand", 1, 1.0),
            ("g6.xlarge", "spot", 2, 1.0),
            ("p5.48xlarge", "on-demand", 1, 2.0),
        ]
        assert (cost.prices_as_of, cost.unpriced) == ("2026-06-01", [])

    def test_names_what_has_no_price_and_leaves_it_out(self) -> None:
        usage = {
            "i-1": node_usage("g6.xlarge", "on-demand", HOUR, PRICES),
            "i-2": node_usage("g7.xlarge", "spot", HOUR, PRICES),
        }
        cost = run_cost(usage)
        assert cost is not None and (cost.usd_high, cost.unpriced) == (0.8, ["g7.xlarge"])
        assert describe_cost(cost) == (
            "USD 0.80 (1.00 h of 1 g6.xlarge on-demand, 1.00 h of 1 g7.xlarge spot; list prices of 2026-07-20; "
            "no price is known for g7.xlarge)"
        )

    def test_says_that_it_does_not_know_rather_than_nothing(self) -> None:
        cost = run_cost({"i-1": node_usage("g7.xlarge", "spot", HOUR, PRICES)})
        assert cost is not None and describe_cost(cost).startswith("USD not known (1.00 h")

    def test_a_block_is_no_unknown_price(self) -> None:
        cost = run_cost({"i-1": node_usage("p5.48xlarge", "capacity-block", HOUR, PRICES)})
        assert cost is not None and cost.unpriced == []
        assert "paid up front" in describe_cost(cost)

    def test_nobody_told_anything(self) -> None:
        assert run_cost({}) is None


hours = st.dictionaries(
    st.sampled_from(["i-1", "i-2", "i-3"]),
    st.tuples(st.sampled_from(["g6.xlarge", "p5.48xlarge", "g7.xlarge"]), st.floats(0, 1e6)),
)


def usages(found: dict[str, tuple[str, float]]) -> dict[str, NodeUsage]:
    return {id_: node_usage(type_, "spot", seconds, PRICES) for id_, (type_, seconds) in found.items()}


@given(before=hours, since=hours)
def test_no_node_is_lost_and_none_counted_twice_over_lives_of_a_run(before: Any, since: Any) -> None:
    earlier = RunUsage(nodes=usages(before))
    now = {
        id_: report(
            usage.model_copy(update={"seconds": usage.seconds + seconds_before(id_, None, earlier)}), id_
        )
        for id_, usage in usages(since).items()
    }
    used = all_usage(now, earlier)
    total = sum(seconds for _, seconds in before.values()) + sum(seconds for _, seconds in since.values())
    assert sum(one.seconds for one in used.values()) == pytest.approx(total)
    # What `resume` writes, written twice, with the reports still there or gone already.
    assert all_usage(now, RunUsage(nodes=used)) == all_usage({}, RunUsage(nodes=used)) == used
    cost = run_cost(used)
    assert cost is None or 0 <= cost.usd_low <= cost.usd_high


def test_an_agent_goes_on_from_what_is_on_record() -> None:
    earlier = RunUsage(nodes={"i-1": node_usage("g6.xlarge", "spot", 70, PRICES)})
    told = report(node_usage("g6.xlarge", "spot", 100, PRICES))
    assert seconds_before("i-1", told, earlier) == 100
    assert seconds_before("i-1", None, earlier) == 70
    assert seconds_before("i-2", report(None), earlier) == 0


def result(**changes: Any) -> RunResult:
    values: dict[str, Any] = {
        "run": "first",
        "status": "finished",
        "exit_code": 0,
        "message": "all steps done",
        "step": 20,
        "epochs": 1.0,
        "last_loss": 0.25,
        "eval_accuracy": 0.9,
        "cost": run_cost({"i-1": node_usage("g6.xlarge", "spot", HOUR, PRICES)}),
        "finished_at": "2026-11-30T12:00:00Z",
    }
    return RunResult(**(values | changes))


def event(made: Cloud, ended: RunResult, checkpoint_step: int | None = 20) -> RunEvent:
    training = TrainingConfig(dataset="numbers@v1", steps=20)
    run = RunConfig(name=ended.run, groups=["gpu"], nodes=1, training=training, created_at=utc_now())
    return run_event(made.document(), run, ended, Progress(total_steps=20, checkpoint_step=checkpoint_step))


class TestRunEvent:
    @pytest.fixture
    def made(self, tmp_path: Path) -> Cloud:
        return Cloud("", tmp_path, None, None, "test-gpu", "artifacts")  # type: ignore[arg-type]

    def test_a_finished_run_says_how_to_fetch_it(self, made: Cloud) -> None:
        told = event(made, result())
        assert told.fetch == "trainer run fetch --run first --artifacts-bucket artifacts"
        assert told.checkpoint == "s3://artifacts/runs/first/checkpoints/step-00000020/"
        assert told.resume is None
        assert subject(told) == "[test] run first finished at step 20"
        mail = text(told)
        assert "USD 0.40 to 0.80" in mail and "90.0% held out" in mail and told.fetch in mail

    def test_a_failed_run_says_why_and_how_to_go_on(self, made: Cloud) -> None:
        told = event(made, result(status="failed", exit_code=32, message="i-2: lost"), checkpoint_step=None)
        assert (told.exit_name, told.checkpoint) == ("PEER_LOST", None)
        assert subject(told) == "[test] run first failed at step 20: PEER_LOST"
        mail = text(told)
        assert "i-2: lost" in mail and "none was completed" in mail and told.fetch not in mail
        assert told.resume == "trainer run resume --run first --artifacts-bucket artifacts"
        assert told.resume in mail

    def test_the_subject_is_one_that_sns_takes(self, made: Cloud) -> None:
        words = subject(event(made, result(run="r" * 63, step=10**9, status="failed", exit_code=32)))
        assert words.isascii() and len(words) == 100

    def test_without_a_topic_nobody_is_told(self, made: Cloud) -> None:
        assert RunEvents(None, None).publish(event(made, result())) is False


def conclude_once_more(cloud: Cloud, agent: RunningAgent) -> None:
    """A node that believes to lead too, but whose result was not the one that was written."""
    node, config = agent.agent.node, cloud.board.config("first")
    assert config is not None
    too_late = Conclude("failed", Exit.BUG, "too late")
    Ending(node, config).write(too_late, cloud.board.reports("first"), node.usage_clock(0).read())


def hear(cloud: Cloud) -> Callable[[], list[Any]]:
    """A topic for the ends of runs; what was told since the last call."""
    sns, sqs = client("sns", cloud.endpoint), client("sqs", cloud.endpoint)
    cloud.runs_topic_arn = sns.create_topic(Name=f"{cloud.group}-runs")["TopicArn"]
    queue = sqs.create_queue(QueueName=f"{cloud.group}-told")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    sns.subscribe(TopicArn=cloud.runs_topic_arn, Protocol="sqs", Endpoint=arn)

    def told() -> list[Any]:
        messages = sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10).get("Messages", [])
        return [json.loads(message["Body"]) for message in messages]

    return told


class TestAgents:
    def test_one_of_them_tells_the_end_of_a_run_and_what_it_cost(
        self, make_cloud: Callable[[int], Cloud]
    ) -> None:
        cloud = make_cloud(2)
        heard = hear(cloud)
        cloud.put_cluster(PRICES)
        agents = cloud.boot_all()
        cloud.run("first", steps=10, on_finish="release")
        ended = cloud.result("first")
        for agent in agents:  # both have seen the end: nobody is still about to tell it
            agent.join()
        assert ended.cost is not None and ended.cost.usd_low > 0
        [kind] = ended.cost.node_hours
        assert (kind.instance_type, kind.life_cycle, kind.nodes) == ("g6.xlarge", "on-demand", 2)
        conclude_once_more(cloud, agents[1])
        [sent] = heard()
        assert sent["Subject"] == "[test] run first finished at step 10"
        told = RunEvent.from_json(sent["Message"])
        assert (told.status, told.step, told.reason) == ("finished", 10, "all steps done")
        assert told.cost == ended.cost and told.loss == ended.last_loss

    def test_a_result_that_s3_took_without_an_answer_is_told_once_all_the_same(
        self, make_cloud: Callable[[int], Cloud]
    ) -> None:
        cloud = make_cloud(1)
        heard = hear(cloud)
        [agent] = cloud.boot_all()
        agent.network.lose_answer = "/result.json"
        cloud.run("first", nodes=1, steps=4, on_finish="release")
        assert agent.join() == 0 and agent.network.lose_answer is None
        [sent] = heard()
        assert RunEvent.from_json(sent["Message"]).finished_at == cloud.result("first").finished_at

    def test_a_run_without_a_price_is_none_the_worse(self, make_cloud: Callable[[int], Cloud]) -> None:
        cloud = make_cloud(1)
        cloud.board.put_text(keys.cluster(), "{")
        [agent] = cloud.boot_all()
        cloud.run("first", nodes=1, steps=4, on_finish="release")
        ended = cloud.result("first")
        assert ended.status == "finished" and agent.join() == 0
        assert ended.cost is not None and ended.cost.unpriced == ["g6.xlarge"]
        assert ended.cost.node_hours[0].hours > 0

    def test_a_topic_that_takes_no_message_loses_nothing(self, make_cloud: Callable[[int], Cloud]) -> None:
        cloud = make_cloud(1)
        cloud.runs_topic_arn = f"arn:aws:sns:{REGION}:123456789012:nowhere"
        [agent] = cloud.boot_all()
        cloud.run("first", nodes=1, steps=4, on_finish="release")
        assert cloud.result("first").status == "finished"
        assert agent.join() == 0

    def test_time_goes_on_over_restarts_of_the_agent(self, make_cloud: Callable[[int], Cloud]) -> None:
        cloud = make_cloud(1)
        cloud.put_cluster(PRICES)
        [first] = cloud.boot_all()
        cloud.run("first", nodes=1, steps=100_000)
        wait_until(lambda: cloud.step("first") > 0, "the first step")
        first.stop()
        before = cloud.report("first", first.id).usage
        assert before is not None and before.seconds > 0
        again = cloud.boot(first.id)
        wait_until(lambda: cloud.generation("first") == 2, "the next generation")
        again.stop()
        after = cloud.report("first", first.id).usage
        assert after is not None and after.seconds > before.seconds


class TestResearcher:
    def test_a_resumed_run_keeps_what_it_cost_before(self, trained: Bench) -> None:
        config = run_kit_config(trained, "first")
        run_kit.train(trained, "first", done=5)
        board = run_kit.board(trained)
        for id_, old in board.reports("first").items():
            usage = node_usage("g6.xlarge", "on-demand", HOUR, PRICES)
            board.put_report("first", old.model_copy(update={"usage": usage}))
            assert id_
        cost = read_status(board, config).cost
        assert cost is not None and cost.usd_low == 1.6
        run_kit.conclude(trained, "first", status="stopped", step=5)
        control.resume(board, "first")
        status = read_status(board, config)
        assert not status.members
        assert status.cost == cost and "USD 1.60 to 1.60" in headline(status)
        assert status.to_dict()["cost"]["usdLow"] == 1.6


def run_kit_config(bench: Bench, name: str) -> RunConfig:
    training = TrainingConfig(dataset="numbers@v1", steps=20)
    config = RunConfig(name=name, groups=["gpu"], nodes=2, training=training, created_at=utc_now())
    bench.store.put(bench.bucket, f"runs/{name}/config.json", config.to_json().encode())
    return config
