"""How long a run may train, what of a node counts as idle, and one run on two groups. No test waits for an hour."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trainer.agent.board import utc_now
from trainer.agent.generation import Conclude, Publish, Stop, Wait, decide, used_up_message
from trainer.agent.hours import COUNT_SECONDS, TrainingCount, trained_seconds
from trainer.contracts.cluster import Cluster as ClusterDocument
from trainer.contracts.cluster import GroupInfo
from trainer.contracts.cost import RunUsage
from trainer.contracts.run import RunConfig, RunPointer, TrainingConfig
from trainer.exit_codes import Exit
from trainer.runs import control

from tests.local.cloud_kit import REGION, client, wait_until
from tests.trainer.agent_kit import Cloud
from tests.trainer.test_generation import peer, report, view, world

DAY = 24 * 3600.0
USED_UP = used_up_message(DAY)


class TestARunThatMayTrainADay:
    def test_is_stopped_with_a_save_when_it_has(self) -> None:
        peers = [peer("i-a", "running", 3), peer("i-b", "running", 3)]
        here = {"most_seconds": DAY, "generation": world(3, "i-a", "i-b")}
        assert decide(view("i-b", peers, trained_seconds=DAY - 1, **here)) == Wait("training")
        assert decide(view("i-b", peers, trained_seconds=DAY, **here)) == Stop(
            save=True, why=USED_UP, reason="limit"
        )
        assert "24 h" in USED_UP and "maxRunHours" in USED_UP

    def test_is_not_stopped_where_the_group_has_no_limit(self) -> None:
        peers = [peer("i-a", "running", 3)]
        assert decide(view("i-a", peers, world(3, "i-a"), trained_seconds=1e9)) == Wait("training")

    @pytest.mark.parametrize("code", [Exit.STOPPED_SAVED, Exit.STOPPED_STALE])
    def test_ends_as_stopped_and_lets_its_nodes_go_whoever_noticed_it(self, code: Exit) -> None:
        """Also by members whose own group has no limit, so that nobody begins another generation."""
        done = peer("i-b", "finished", 3, exit_code=int(code), message=USED_UP)
        peers = [peer("i-a", "ready", 3, exit_code=int(Exit.STOPPED_SAVED)), done]
        assert decide(view("i-a", peers, world(3, "i-a", "i-b"))) == Conclude(
            "stopped", code, USED_UP, released=True
        )

    def test_waits_for_members_that_still_save(self) -> None:
        done = peer("i-b", "finished", 3, exit_code=int(Exit.STOPPED_SAVED))
        found = decide(view("i-b", [peer("i-a", "running", 3), done], world(3, "i-a", "i-b")))
        assert isinstance(found, Wait)

    def test_that_reached_its_last_step_has_finished_all_the_same(self) -> None:
        peers = [peer("i-a", "finished", 3, exit_code=0), peer("i-b", "finished", 3, exit_code=0)]
        found = decide(view("i-a", peers, world(3, "i-a", "i-b"), trained_seconds=DAY, most_seconds=DAY))
        assert isinstance(found, Conclude) and found.status == "finished" and not found.released

    def test_begins_no_further_generation_when_it_is_resumed(self) -> None:
        peers = [peer("i-a"), peer("i-b")]
        for before in (None, world(2, "i-a", "i-b")):  # that was published and not begun
            found = decide(view("i-b", peers, before, trained_seconds=DAY, most_seconds=DAY))
            assert found == Conclude("stopped", Exit.STOPPED_SAVED, USED_UP, released=True)
        assert isinstance(decide(view("i-a", peers, trained_seconds=DAY, most_seconds=DAY + 1)), Publish)


class TestHowLongARunHasTrained:
    def test_is_the_longest_that_anybody_knows_also_those_who_left(self) -> None:
        reports = {
            "i-a": report("i-a", "running", 2, trained_seconds=70),
            "i-gone": report("i-gone", "leaving", 1, trained_seconds=60),
        }
        generation = world(2, "i-a")
        assert trained_seconds(reports, generation, None) == 70
        assert trained_seconds(reports, generation.model_copy(update={"trained_seconds": 90}), None) == 90
        assert trained_seconds({}, None, RunUsage(trained_seconds=50)) == 50
        assert trained_seconds({}, None, None) == 0

    @given(st.lists(st.floats(0, 1e6), min_size=1, max_size=8))
    def test_never_shrinks_from_generation_to_generation(self, lengths: list[float]) -> None:
        """Each generation has one new member, which goes on from what the leader published."""
        reports, total = {}, 0.0
        for n, length in enumerate(lengths, 1):
            before = trained_seconds(reports, None, None)
            id_ = f"i-{n}"
            reports[id_] = report(id_, "ready", n, trained_seconds=before + length)
            total += length
        assert trained_seconds(reports, None, None) == pytest.approx(total)


class TestTheIdleCount:
    def test_comes_once_a_minute_and_says_whether_the_node_trained_since_the_last(self) -> None:
        count = TrainingCount()
        told = [(second, count.look(1000.0 + second, 70 <= second < 80)) for second in range(0, 241, 10)]
        assert [entry for entry in told if entry[1] is not None] == [(60, 0), (120, 1), (180, 0), (240, 0)]

    def test_of_a_node_that_trains_at_the_moment_goes_on_counting(self) -> None:
        count = TrainingCount()
        assert [count.look(second, True) for second in (0.0, 60.0, 120.0)] == [None, 1, 1]

    def test_makes_up_for_nothing_after_a_pause(self) -> None:
        count = TrainingCount()
        count.look(0.0, False)
        assert count.look(600.0, False) == 0
        assert count.look(601.0, False) is None

    @given(st.lists(st.tuples(st.integers(1, 90), st.booleans()), max_size=60))
    def test_never_comes_twice_within_a_minute_and_never_forgets_training(
        self, looks: list[tuple[int, bool]]
    ) -> None:
        count, now, last, trained = TrainingCount(), 0, 0, False
        count.look(0.0, False)
        for later, trains in looks:
            now, trained = now + later, trained or trains
            value = count.look(now, trains)
            if value is not None:
                assert now - last >= COUNT_SECONDS and value == int(trained)
                last, trained = now, trains


def with_document(cloud: Cloud, **changes: Any) -> None:
    """Nodes that boot from now on are told this too."""
    document = cloud.document().model_copy(update=changes)
    cloud.document = lambda: document  # type: ignore[method-assign]


def test_a_run_that_used_its_hours_saves_and_its_nodes_leave_though_they_were_to_stay(
    make_cloud: Callable[[int], Cloud],
) -> None:
    cloud = make_cloud(2)
    with_document(cloud, max_run_hours=1e-6)  # reached by any generation that runs at all
    agents = cloud.boot_all()
    cloud.run("long", steps=100_000, seconds=0.01, on_finish="keep")
    result = cloud.result("long")
    assert (result.status, result.exit_code, result.released) == ("stopped", Exit.STOPPED_SAVED, True)
    assert "maxRunHours" in result.message and result.step < 100_000
    assert [agent.join() for agent in agents] == [Exit.DONE, Exit.DONE]  # as with onFinish: release
    # Gone on with, it has had its hours: nobody trains a second generation.
    control.resume(cloud.board, "long")
    usage = cloud.board.usage("long")
    assert usage is not None and usage.trained_seconds > 0
    again = cloud.boot(agents[0].id)
    assert cloud.result("long").status == "stopped"
    assert again.join() == Exit.DONE and again.state.get("trainer_run_active") == 0
    assert again.state.get("trainer_generation") is None


def test_an_agent_that_is_started_again_forgets_no_hour_of_its_run(
    make_cloud: Callable[[int], Cloud],
) -> None:
    """Its own report may be the only place that has them: no other member, no generation since."""
    cloud = make_cloud(1)
    (agent,) = cloud.boot_all()
    cloud.run("lonely", nodes=1, steps=100_000, seconds=0.01)
    wait_until(lambda: cloud.step("lonely") > 0, "a step")
    agent.stop()
    before = cloud.report("lonely", agent.id)
    cloud.board.put_report("lonely", before.model_copy(update={"trained_seconds": DAY}))
    cloud.boot(agent.id)
    wait_until(lambda: cloud.generation("lonely") == 2, "the next generation")
    generation, _ = cloud.board.generation("lonely")
    assert generation is not None and generation.trained_seconds >= DAY


def test_one_run_trains_on_a_spot_group_and_on_the_group_it_falls_back_to(
    make_cloud: Callable[[int], Cloud],
) -> None:
    cloud = make_cloud(1)
    other = f"{cloud.group}-on-demand"
    cloud.cluster.group(other, 0)
    known = ClusterDocument(
        stack="test",
        region=REGION,
        artifacts_bucket=cloud.bucket,
        groups={
            "gpu": GroupInfo(auto_scaling_group=cloud.group, max_nodes=2),
            "on-demand": GroupInfo(auto_scaling_group=other, max_nodes=2),
        },
        datasets=cloud.document().datasets,
    )
    config = RunConfig(
        name="both",
        groups=["gpu", "on-demand"],
        nodes=2,
        training=TrainingConfig(dataset="numbers@v1", steps=20),
        created_at=utc_now(),
    )
    control.start(cloud.board, known, config, None)
    # Also the group without a node has its pointer: a node that comes later finds the run.
    assert [cloud.board.pointer(group).run for group in config.groups] == ["both", "both"]  # type: ignore[union-attr]
    (spot,) = cloud.boot_all()
    wait_until(lambda: spot.id in cloud.board.reports("both"), "the spot node to wait for a second member")
    assert cloud.generation("both") == 0
    client("autoscaling", cloud.endpoint).set_desired_capacity(AutoScalingGroupName=other, DesiredCapacity=1)
    wait_until(lambda: len(cloud.cluster.states(other)) == 1, "the fall-back node")
    with_document(cloud, group="on-demand", auto_scaling_group=other)
    fallback = cloud.boot(next(iter(cloud.cluster.states(other))))
    assert cloud.result("both").status == "finished"
    generation, _ = cloud.board.generation("both")
    assert generation is not None
    assert {member.instance_id: member.group for member in generation.members} == {
        spot.id: "gpu",
        fallback.id: "on-demand",
    }


def test_a_node_counts_training_only_where_the_group_stops_when_idle(
    make_cloud: Callable[[int], Cloud], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainer.agent.hours.COUNT_SECONDS", 0.2)
    cloud = make_cloud(2)
    first, second = sorted(cloud.states)
    cloud.boot(first)
    with_document(cloud, idle_stop_minutes=10)
    counting = cloud.boot(second)
    cloudwatch = client("cloudwatch", cloud.endpoint)

    def values() -> list[float]:
        found = cloudwatch.list_metrics(Namespace="GpuTraining", MetricName="NodesTraining")["Metrics"]
        mine = [metric for metric in found if metric["Dimensions"][0]["Value"] == cloud.group]
        if not mine:
            return []
        points = cloudwatch.get_metric_statistics(
            Namespace="GpuTraining",
            MetricName="NodesTraining",
            Dimensions=mine[0]["Dimensions"],
            StartTime="2020-01-01T00:00:00Z",
            EndTime="2100-01-01T00:00:00Z",
            Period=60,
            Statistics=["Maximum", "Minimum"],
        )["Datapoints"]
        return [value for point in points for value in (point["Minimum"], point["Maximum"])]

    wait_until(lambda: 0.0 in values(), "a count of an idle node")
    assert 1.0 not in values()
    run = cloud.run("counted", steps=100_000, seconds=0.01)
    wait_until(lambda: 1.0 in values(), "a count of a training node")
    cloud.board.put_pointer("gpu", RunPointer(run=run.name, action="stop", updated_at=utc_now()))
    cloud.result("counted")
    assert counting.code is None
