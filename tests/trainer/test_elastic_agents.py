"""Agents on a local cloud with workers in lockstep: worlds that shrink, grow, fall apart, hang and lose S3."""

from __future__ import annotations

import datetime
import json
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from trainer.agent.pace import Pace
from trainer.contracts.run import ElasticSettings, RunPointer
from trainer.exit_codes import Exit

from tests.local.cloud_kit import wait_until
from tests.trainer.agent_kit import Cloud, RunningAgent

QUICK = replace(
    Pace(), settle_seconds=0.3, partition_seconds=0.5, probe_timeout_seconds=0.5, hang_dump_seconds=0.5
)
SMALL = ElasticSettings(min_world_nodes=1, shrink_after_seconds=0.5)
FOREVER = 100_000


@pytest.fixture
def make_cloud(make_cloud: Callable[[int], Cloud]) -> Callable[[int], Cloud]:
    """Clouds whose agents wait shorter."""

    def make(nodes: int) -> Cloud:
        made = make_cloud(nodes)
        made.pace = QUICK
        return made

    return make


def steps_of(agent: RunningAgent, run: str, generation: int) -> list[int]:
    return [event.step or 0 for event in agent.events(run, generation) if event.kind == "step"]


def wait_for_world(cloud: Cloud, run: str, *members: RunningAgent) -> None:
    """Until exactly these train together and have made a step of their own."""
    ids = sorted(agent.id for agent in members)

    def trains() -> bool:
        return sorted(cloud.world(run)) == ids and all(
            steps_of(agent, run, cloud.generation(run)) for agent in members if files(agent)
        )

    def files(agent: RunningAgent) -> list[Path]:
        return list(agent.folder.glob(f"runs/{run}/gen-{cloud.generation(run):04d}/events-rank*.jsonl"))

    wait_until(lambda: all(files(agent) for agent in members) and trains(), f"{len(ids)} nodes to train")


def stop(cloud: Cloud, run: str) -> None:
    cloud.board.put_pointer("gpu", RunPointer(run=run, action="stop", updated_at="now"))
    assert cloud.result(run).status == "stopped"


def test_a_world_grows_at_one_step_shrinks_when_a_node_leaves_and_loses_no_step(
    make_cloud: Callable[[int], Cloud],
) -> None:
    cloud = make_cloud(2)
    first_id, second_id = sorted(cloud.states)
    second = cloud.boot(second_id)
    cloud.run("elastic", steps=FOREVER, elastic=SMALL)
    wait_for_world(cloud, "elastic", second)
    first = cloud.boot(first_id)  # the smaller id: it will lead, although it came later
    wait_for_world(cloud, "elastic", first, second)
    assert cloud.report("elastic", second_id).exit_code is None  # running again
    grown = cloud.generation("elastic")  # 2, or later where a busy machine needed another try
    alone, together = second.events("elastic", 1), first.events("elastic", grown)
    assert alone[-1].kind == "stopped" and alone[-1].saved
    assert together[0].step == alone[-1].step  # where the small world stopped
    stops = list(second.folder.glob("runs/elastic/gen-0001/stop"))
    assert [path.read_text() for path in stops] == ["regroup"]
    first.imds.interrupt()
    assert first.join() == Exit.STOPPED_SAVED
    wait_for_world(cloud, "elastic", second)
    shrunk = cloud.generation("elastic")
    assert shrunk > grown
    assert second.events("elastic", shrunk)[0].step == second.events("elastic", grown)[-1].step
    assert second.state.get("trainer_lost_steps_total") == 0
    stop(cloud, "elastic")


def test_a_partition_leaves_one_lineage_and_the_cut_off_node_comes_back_when_it_is_over(
    make_cloud: Callable[[int], Cloud],
    capsys: pytest.CaptureFixture[str],
) -> None:
    cloud = make_cloud(3)
    agents = cloud.boot_all()
    left, right, alone = agents
    cloud.run("halves", nodes=3, steps=FOREVER, elastic=SMALL, peer_seconds=60, save_every=5)
    wait_for_world(cloud, "halves", *agents)
    for agent in (left, right):
        agent.network.blocked.add(alone.id)  # one direction: nobody reaches it, it reaches all
    wait_for_world(cloud, "halves", left, right)
    n = cloud.generation("halves")
    assert cloud.report("halves", left.id).unreachable == [alone.id]
    waiting = cloud.report("halves", alone.id)
    assert (waiting.state, waiting.unreachable) == ("ready", [])
    assert "network partition" in (waiting.message or "")
    assert left.state.get("trainer_peers_partitioned") == 1
    wait_until(lambda: f"cut off from {left.id}, {right.id}: waits" in capsys.readouterr().out, "its word", 5)
    for agent in (left, right):
        agent.network.blocked.clear()
    wait_for_world(cloud, "halves", *agents)
    assert cloud.generation("halves") > n
    assert left.state.get("trainer_peers_partitioned") == 0
    stop(cloud, "halves")


def test_a_hang_is_ended_with_its_stacks_and_its_reason_and_the_run_goes_on(
    make_cloud: Callable[[int], Cloud], capsys: pytest.CaptureFixture[str]
) -> None:
    cloud = make_cloud(2)
    cloud.pace = replace(QUICK, hang_floor_seconds=2.0, apart_seconds=30.0)
    agents = cloud.boot_all()
    cloud.run("hang", steps=FOREVER, peer_seconds=60, save_every=5)
    wait_for_world(cloud, "hang", *agents)
    os.kill(agents[1].worker_pid, signal.SIGSTOP)
    wait_until(lambda: cloud.generation("hang") == 2, "the next generation")
    wait_for_world(cloud, "hang", *agents)
    for agent in agents:
        assert agent.state.get("trainer_hangs_total") == 1
    out = capsys.readouterr().out
    assert "no step for 2 s (limit 2 s): rank 1 process state T (stopped)" in out
    key = f"runs/hang/logs/gen-0001/{agents[0].id}/worker.log"
    wait_until(lambda: cloud.store.get(cloud.bucket, key) is not None, "the log of the rank that waited")
    log = cloud.store.get(cloud.bucket, key)
    assert log is not None and b"in agree" in log.body  # where it waited
    assert "in agree" in out
    stop(cloud, "hang")


def test_a_node_without_s3_ends_its_workers_and_comes_back_with_s3(
    make_cloud: Callable[[int], Cloud], capsys: pytest.CaptureFixture[str]
) -> None:
    cloud = make_cloud(2)
    cloud.pace = replace(QUICK, lease_seconds=5.0)
    agents = cloud.boot_all()
    stays, lost = agents
    cloud.run("cut", steps=FOREVER, elastic=SMALL, peer_seconds=60, save_every=5)
    wait_for_world(cloud, "cut", *agents)
    lost.network.s3_cut = True
    wait_until(lambda: lost.state.get("trainer_run_active") == 0, "it to end its workers")
    wait_for_world(cloud, "cut", stays)
    out = capsys.readouterr().out
    assert "S3 out of reach for 5 s: others count this node as lost" in out
    assert lost.code is None
    lost.network.s3_cut = False
    wait_for_world(cloud, "cut", *agents)
    log = f"runs/cut/logs/gen-0001/{lost.id}/worker.log"
    wait_until(lambda: cloud.store.get(cloud.bucket, log) is not None, "the log that could not be sent")
    stop(cloud, "cut")


def test_a_node_whose_word_does_not_reach_s3_starts_its_workers_when_it_does(
    make_cloud: Callable[[int], Cloud],
) -> None:
    """A generation begins with the node's report; without it nothing runs, and nothing may look as if."""
    cloud = make_cloud(1)
    agent = cloud.boot_all()[0]
    agent.network.refuse_once = b'"state":"running"'
    cloud.run("word", nodes=1, steps=5)
    assert cloud.result("word").status == "finished"
    assert agent.network.refuse_once is None  # it was refused indeed
    assert cloud.generation("word") == 1


def scheduled(code: str, in_minutes: float, event_id: str) -> str:
    at = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(minutes=in_minutes)
    entry = {
        "Code": code,
        "EventId": event_id,
        "NotBefore": at.strftime("%d %b %Y %H:%M:%S GMT"),
        "State": "active",
    }
    return json.dumps([entry])


def test_maintenance_is_told_once_and_a_stop_that_is_near_is_a_notice(
    make_cloud: Callable[[int], Cloud], capsys: pytest.CaptureFixture[str]
) -> None:
    cloud = make_cloud(1)
    agent = cloud.boot_all()[0]
    cloud.run("retired", nodes=1, steps=FOREVER)
    wait_for_world(cloud, "retired", agent)
    events = "events/maintenance/scheduled"

    def told() -> float:
        return agent.state.get("trainer_interruption_notices_total", kind="scheduled") or 0

    agent.imds.paths[events] = scheduled("system-reboot", 1, "event-1")
    wait_until(lambda: told() == 1, "the reboot to be told", 5)
    agent.imds.paths[events] = scheduled("instance-retirement", 60 * 24, "event-2")
    wait_until(lambda: told() == 2, "the retirement to be told", 5)
    asked = agent.imds.asked.count(events)
    wait_until(lambda: agent.imds.asked.count(events) > asked + 3, "more polls", 5)
    assert told() == 2 and agent.code is None  # neither takes the machine away soon
    agent.imds.paths[events] = scheduled("instance-retirement", 10, "event-2")
    assert agent.join() == Exit.STOPPED_SAVED
    assert told() == 2
    out = capsys.readouterr().out
    assert out.count("maintenance scheduled") == 2 and "instance-retirement" in out
    wait_until(lambda: agent.id not in cloud.states, "the replacement that it asked for")


def test_a_rebalance_recommendation_saves_and_training_goes_on(make_cloud: Callable[[int], Cloud]) -> None:
    cloud = make_cloud(1)
    agent = cloud.boot_all()[0]
    cloud.run("rebalance", nodes=1, steps=FOREVER)
    wait_for_world(cloud, "rebalance", agent)
    agent.imds.paths["events/recommendations/rebalance"] = '{"noticeTime": "2026-11-30T00:00:00Z"}'

    def saves() -> list[int]:
        return [i for i, e in enumerate(agent.events("rebalance", 1)) if e.kind == "checkpoint"]

    wait_until(lambda: bool(saves()), "the save", 10)
    after = saves()[0]
    wait_until(lambda: len(agent.events("rebalance", 1)) > after + 3, "more steps", 10)
    assert len(saves()) == 1 and agent.code is None
    stop(cloud, "rebalance")


def test_a_straggler_is_named_by_its_instance_until_the_next_generation(
    make_cloud: Callable[[int], Cloud], capsys: pytest.CaptureFixture[str]
) -> None:
    cloud = make_cloud(2)
    agents = cloud.boot_all()
    cloud.run("slow", steps=FOREVER, save_every=5, straggle_at=6)
    first, slow = agents

    def ratio() -> float | None:
        return first.state.get("trainer_straggler_ratio", peer=slow.id)

    wait_until(lambda: ratio() == 2.5, "the straggler to be told")
    assert slow.state.get("trainer_straggler_ratio", peer=slow.id) is None  # only by the node of rank 0
    assert f"straggler: rank 1 on {slow.id} takes 2.5 times" in capsys.readouterr().out
    os.kill(slow.worker_pid, signal.SIGKILL)
    wait_until(lambda: first.state.get("trainer_generation") == 2, "the next generation")
    assert ratio() is None
    stop(cloud, "slow")
