"""The agent against a real S3 and Auto Scaling API: boots, trains in generations, survives, leaves."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from trainer.agent import prepare
from trainer.agent.board import utc_now
from trainer.agent.supervisor import kill_leftovers
from trainer.agent.uploads import Logs
from trainer.contracts import keys
from trainer.contracts.node_document import SelfCheckSettings
from trainer.contracts.run import Generation, Member, RunPointer, Versions
from trainer.exit_codes import Exit
from trainer.report.reader import EventReader

from tests.local.cloud_kit import wait_until
from tests.trainer.agent_kit import Cloud


def add_a_later_key(cloud: Cloud, key: str, *sections: str) -> None:
    """As a release of next year would have written the object: one more key on top and in these sections."""
    fetched = cloud.store.get(cloud.bucket, key)
    assert fetched is not None
    document = json.loads(fetched.body)
    for section in (document, *(document[name] for name in sections)):
        section["cameLater"] = {"deep": [1]}
    cloud.store.put(cloud.bucket, key, json.dumps(document).encode())


def test_two_nodes_boot_prove_themselves_and_finish_a_run(make_cloud: Callable[[int], Cloud]) -> None:
    cloud = make_cloud(2)
    ids = sorted(cloud.states)
    cloud.boot_all()
    wait_until(lambda: set(cloud.states.values()) == {"InService"}, "both nodes to be in service")
    cloud.run("first", steps=20)
    result = cloud.result("first")
    assert (result.status, result.exit_code, result.step) == ("finished", 0, 20)
    assert result.first_loss == pytest.approx(1.925) and result.last_loss == pytest.approx(1.025)
    generation, _ = cloud.board.generation("first")
    assert generation is not None and [member.instance_id for member in generation.members] == ids
    assert generation.n == 1 and generation.master_address == cloud.agents[0].agent.node.address
    for id_ in ids:
        assert cloud.store.get(cloud.bucket, f"groups/gpu/selfcheck/{id_}.json")
        assert cloud.store.get(cloud.bucket, f"runs/first/selfcheck/{id_}.json")
    wait_until(lambda: bool(cloud.store.list_objects(cloud.bucket, "runs/first/report.html")), "the page")
    page = cloud.store.get(cloud.bucket, "runs/first/report.html")
    assert page is not None and b'aria-label="Loss. training: from ' in page.body
    cloud.run("second", steps=4)  # the nodes were kept and are ready for more
    assert cloud.result("second").status == "finished"


def test_a_streamed_run_leaves_nothing_on_the_node(make_cloud: Callable[[int], Cloud]) -> None:
    cloud = make_cloud(1)
    (id_,) = cloud.states
    streams = cloud.root / id_ / "data" / ".stream"
    (streams / "killed" / "gen-0001").mkdir(parents=True)  # of an agent that was killed
    cloud.boot_all()
    cloud.run("streamed", nodes=1, steps=20, data="stream", seconds=0.05)
    wait_until(lambda: cloud.step("streamed") > 2, "some steps")
    assert [folder.name for folder in streams.iterdir()] == ["streamed"]
    assert (streams / "streamed" / "dataset" / "manifest.json").is_file()
    assert cloud.result("streamed").status == "finished"
    wait_until(lambda: not streams.exists(), "the node's room to be free again")


def test_two_leaders_at_once_make_one_lineage(make_cloud: Callable[[int], Cloud]) -> None:
    """Both believe to lead and write at the same moment, generation after generation: one wins each time."""
    cloud = make_cloud(0)
    members = [
        Member(instance_id=f"i-{n}", group="gpu", address=f"10.0.0.{n}", local_world_size=1) for n in (1, 2)
    ]
    for n in (1, 2, 3):
        before, etag = cloud.board.generation("race")
        assert (before.n if before else 0) == n - 1
        both = [
            Generation(
                n=n,
                members=[me],
                master_address=me.address,
                master_port=29500,
                versions=Versions(trainer="1", torch="2"),
                published_at=me.instance_id,
            )
            for me in members
        ]
        with ThreadPoolExecutor(2) as pool:
            won = list(pool.map(lambda mine, seen=etag: cloud.board.publish("race", mine, seen), both))
        assert sorted(won) == [False, True]
        now, _ = cloud.board.generation("race")
        assert now == both[won.index(True)]


def test_a_worker_killed_by_the_system_leads_to_generation_2_on_the_same_nodes(
    make_cloud: Callable[[int], Cloud],
) -> None:
    cloud = make_cloud(2)
    agents = cloud.boot_all()
    cloud.run("killed", steps=60, seconds=0.05, save_every=5)
    wait_until(lambda: cloud.step("killed") > 7, "some steps")
    os.kill(agents[1].worker_pid, signal.SIGKILL)
    result = cloud.result("killed")
    assert (result.status, result.step, cloud.generation("killed")) == ("finished", 60, 2)
    for agent in agents:
        assert agent.state.get("trainer_recoveries_total") == 1
        before, after = agent.events("killed", 1), agent.events("killed", 2)
        resumed = after[0].step
        assert after[0].kind == "started" and resumed is not None and resumed % 5 == 0 and resumed > 0
        # The killed rank may have been a step behind the save.
        lost = max(0, (before[-1].step or 0) - resumed)
        assert agent.state.get("trainer_lost_steps_total") == lost


def test_a_noticed_node_leaves_with_75_and_the_others_go_on_with_its_replacement(
    make_cloud: Callable[[int], Cloud],
) -> None:
    cloud = make_cloud(2)
    agents = cloud.boot_all()
    cloud.run("spot", steps=80, seconds=0.03)
    wait_until(lambda: cloud.step("spot") > 5, "some steps")
    leaver, stayer = agents[0], agents[1]  # rank 0: the one that saves and leads
    leaver.imds.interrupt()
    assert leaver.join() == Exit.STOPPED_SAVED
    gone = leaver.agent.node.instance_id
    assert cloud.board.reports("spot")[gone].state == "leaving"
    assert leaver.state.get("trainer_interruption_notices_total", kind="spot") == 1
    assert stayer.code is None
    # Nobody terminated it: it gave itself up, long before EC2's two minutes are over.
    wait_until(lambda: len(cloud.states) == 2 and gone not in cloud.states, "the replacement")
    replacement = next(id_ for id_ in cloud.states if id_ != stayer.agent.node.instance_id)
    cloud.boot(replacement)
    result = cloud.result("spot")
    assert (result.status, result.step, cloud.generation("spot")) == ("finished", 80, 2)
    assert stayer.state.get("trainer_lost_steps_total") == 0


def test_a_metadata_service_that_falls_silent_is_told_and_the_training_goes_on(
    make_cloud: Callable[[int], Cloud],
) -> None:
    cloud = make_cloud(1)
    agent = cloud.boot_all()[0]
    cloud.run("silent", nodes=1, steps=100_000, seconds=0.02)
    wait_until(lambda: cloud.step("silent") > 3, "some steps")
    assert agent.state.get("trainer_imds_up") == 1
    agent.imds.close()
    wait_until(lambda: agent.state.get("trainer_imds_up") == 0, "the metric")
    (told,) = agent.agent._faults
    assert "is the hop limit 2?" in told
    then = cloud.step("silent")
    wait_until(lambda: cloud.step("silent") > then, "further steps")
    assert agent.stop() == Exit.STOPPED_SAVED


def test_sigterm_saves_and_ends_with_75_and_a_restarted_agent_goes_on(
    make_cloud: Callable[[int], Cloud],
) -> None:
    cloud = make_cloud(1)
    agent = cloud.boot_all()[0]
    cloud.run("term", nodes=1, steps=60, seconds=0.03)
    wait_until(lambda: cloud.step("term") > 3, "some steps")
    assert agent.stop() == Exit.STOPPED_SAVED
    again = cloud.boot(agent.agent.node.instance_id)
    result = cloud.result("term")
    assert (result.status, result.step, cloud.generation("term")) == ("finished", 60, 2)
    assert again.state.get("trainer_step") == 60


def test_an_agent_killed_while_training_finds_its_place_and_its_leftovers(
    make_cloud: Callable[[int], Cloud],
) -> None:
    cloud = make_cloud(1)
    agent = cloud.boot_all()[0]
    cloud.run("crash", nodes=1, steps=40, seconds=0.1, save_every=4)
    wait_until(lambda: cloud.step("crash") > 5, "some steps")
    left_over = agent.worker_pid
    session = agent.agent._session
    assert session is not None
    session._training = None  # as after kill -9: nobody ends the workers, the report still says running
    session.close = lambda: None  # type: ignore[method-assign]
    agent.agent._session = None
    agent.agent._closed = agent.agent._opened
    assert os.path.exists(f"/proc/{left_over}")
    assert kill_leftovers(agent.folder / "nothing-of-ours") == 0 and os.path.exists(f"/proc/{left_over}")
    agent.agent.on_signal(15, None)
    agent.join()
    cloud.boot(agent.agent.node.instance_id)
    result = cloud.result("crash")
    assert (result.status, result.step, cloud.generation("crash")) == ("finished", 40, 2)


def test_a_failed_self_check_abandons_the_launch_and_too_many_suspend_the_group(
    make_cloud: Callable[[int], Cloud], capsys: pytest.CaptureFixture[str]
) -> None:
    cloud = make_cloud(1)
    cloud.self_check = SelfCheckSettings(max_replacements=1)
    first = next(iter(cloud.states))
    assert cloud.boot(first, "fail", Exit.PERFORMANCE).join() == Exit.PERFORMANCE
    wait_until(lambda: first not in cloud.states and len(cloud.states) == 1, "the replacement")
    second = next(iter(cloud.states))
    assert cloud.boot(second, "fail", Exit.DEVICE).join() == Exit.DEVICE
    wait_until(lambda: second not in cloud.states, "the abandoned node to go")
    found = cloud.cluster.autoscaling.describe_auto_scaling_groups(AutoScalingGroupNames=[cloud.group])
    suspended = [process["ProcessName"] for process in found["AutoScalingGroups"][0]["SuspendedProcesses"]]
    assert suspended == ["Launch"]
    assert "aws autoscaling resume-processes" in capsys.readouterr().out
    assert cloud.states == {}
    stored = cloud.store.get(cloud.bucket, f"groups/gpu/selfcheck/{second}.json")
    assert stored is not None and b'"exitCode":10' in stored.body


def test_where_a_failure_is_only_reported_the_node_goes_into_service(
    make_cloud: Callable[[int], Cloud],
) -> None:
    cloud = make_cloud(1)
    cloud.self_check = SelfCheckSettings(on_failure="report")
    agent = cloud.boot(next(iter(cloud.states)), "fail", Exit.PERFORMANCE)
    wait_until(lambda: set(cloud.states.values()) == {"InService"}, "the node to be in service")
    assert agent.state.get("trainer_selfcheck_passed") == 0


def test_a_corrupted_shard_fails_the_run_by_name_and_replaces_nobody(
    make_cloud: Callable[[int], Cloud],
) -> None:
    cloud = make_cloud(1)
    shard = next(
        entry.key
        for entry in cloud.store.list_objects(cloud.bucket, "datasets/numbers/v1/")
        if entry.key.endswith(".npz")
    )
    stored = cloud.store.get(cloud.bucket, shard)
    assert stored is not None
    cloud.store.put(cloud.bucket, shard, stored.body[:-1] + b"x")
    before = sorted(cloud.states)
    cloud.boot_all()
    cloud.run("rotten", nodes=1)
    result = cloud.result("rotten")
    assert (result.status, result.exit_code) == ("failed", Exit.DATASET)
    assert shard.rsplit("/", 1)[1] in result.message
    assert cloud.agents[0].code is None and sorted(cloud.states) == before


def test_a_fault_that_a_new_node_would_meet_again_fails_the_run_at_once(
    make_cloud: Callable[[int], Cloud],
) -> None:
    cloud = make_cloud(1)
    cloud.boot_all()
    cloud.run("memory", nodes=1, fail=1, code=int(Exit.OUT_OF_MEMORY))
    result = cloud.result("memory")
    assert (result.status, result.exit_code, cloud.generation("memory")) == ("failed", Exit.OUT_OF_MEMORY, 1)
    assert "told to fail" in result.message


def test_a_faulty_device_ends_the_agent_and_the_group_replaces_the_node(
    make_cloud: Callable[[int], Cloud],
) -> None:
    cloud = make_cloud(1)
    agent = cloud.boot_all()[0]
    cloud.run("device", nodes=1, fail=1, code=int(Exit.DEVICE))
    assert agent.join() == Exit.DEVICE
    wait_until(lambda: agent.agent.node.instance_id not in cloud.states, "the faulty node to be replaced")
    assert cloud.board.result("device") is None  # the run waits for the replacement


def test_after_a_run_with_release_the_agent_ends_with_0_and_a_restarted_one_waits(
    make_cloud: Callable[[int], Cloud],
) -> None:
    """The node's root helper takes it out of its group; a group that needs it gets its agent back."""
    cloud = make_cloud(2)
    agents = cloud.boot_all()
    cloud.run("once", steps=5, on_finish="release")
    assert cloud.result("once").status == "finished"
    assert [agent.join() for agent in agents] == [Exit.DONE, Exit.DONE]
    assert len(cloud.states) == 2  # nobody asked AWS for anything
    again = [cloud.boot(agent.id) for agent in agents]
    cloud.run("next", steps=4)
    assert cloud.result("next").status == "finished"
    assert [agent.code for agent in again] == [None, None]


def test_a_stopped_run_saves_at_one_step_and_ends_as_stopped(make_cloud: Callable[[int], Cloud]) -> None:
    cloud = make_cloud(2)
    cloud.boot_all()
    cloud.run("enough", steps=500, seconds=0.02)
    wait_until(lambda: cloud.step("enough") > 3, "some steps")
    cloud.board.put_pointer("gpu", RunPointer(run="enough", action="stop", updated_at=utc_now()))
    result = cloud.result("enough")
    assert (result.status, result.exit_code) == ("stopped", Exit.STOPPED_SAVED)
    assert {report.exit_code for report in cloud.board.reports("enough").values()} == {Exit.STOPPED_SAVED}
    assert 3 < result.step < 500


def test_a_run_that_is_stopped_while_its_data_come_gives_up_before_the_next_one_fetches_them(
    make_cloud: Callable[[int], Cloud], monkeypatch: pytest.MonkeyPatch
) -> None:
    at_work: list[float] = []
    most, let_through = [0], threading.Event()
    sync = prepare.sync_dataset

    def slow(*arguments: Any) -> Any:
        at_work.append(time.monotonic())
        most.append(len(at_work))
        try:
            while not let_through.wait(0.01):
                arguments[-1](0, 1)  # some more bytes came
            return sync(*arguments)
        finally:
            at_work.pop()

    monkeypatch.setattr(prepare, "sync_dataset", slow)
    cloud = make_cloud(1)
    cloud.boot_all()
    cloud.run("wrong", nodes=1)
    wait_until(lambda: bool(at_work), "the data to come")
    cloud.board.put_pointer("gpu", RunPointer(run="wrong", action="stop", updated_at=utc_now()))
    assert cloud.result("wrong").status == "stopped"
    wait_until(lambda: not at_work, "the download to be given up")
    cloud.run("right", nodes=1, steps=4)
    wait_until(lambda: bool(at_work), "the data to come again")
    let_through.set()
    assert cloud.result("right").status == "finished"
    assert max(most) == 1


def test_what_s3_did_not_take_of_one_generation_is_not_forgotten_for_the_next(
    make_cloud: Callable[[int], Cloud], monkeypatch: pytest.MonkeyPatch
) -> None:
    put, refused = Logs._put, [True]

    def refuse(log: Logs, name: str, data: bytes) -> bool:
        return put(log, name, data) if not refused[0] or log.workers.config.generation.n > 1 else False

    monkeypatch.setattr(Logs, "_put", refuse)
    cloud = make_cloud(1)
    (agent,) = cloud.boot_all()
    cloud.run("kept", nodes=1, steps=200, seconds=0.02)
    for generation in (1, 2):
        files = f"runs/kept/gen-{generation:04d}/events-rank*.jsonl"
        told_some = partial(lambda files: any(p.stat().st_size for p in agent.folder.glob(files)), files)
        wait_until(told_some, f"events of generation {generation}")
        os.kill(agent.worker_pid, signal.SIGKILL)
    wait_until(lambda: cloud.generation("kept") == 3, "the third generation")
    refused[0] = False
    cloud.result("kept")

    def told() -> list[int]:
        return [part.generation for part in EventReader(cloud.store, cloud.bucket, "kept").look()]

    wait_until(lambda: told()[:2] == [1, 2], "the events of both")


def test_a_run_goes_on_after_a_roll_back_to_a_release_that_knows_fewer_keys(
    make_cloud: Callable[[int], Cloud],
) -> None:
    cloud = make_cloud(1)
    (agent,) = cloud.boot_all()
    cloud.run("rolled-back", nodes=1, steps=100, seconds=0.01)
    wait_until(lambda: cloud.step("rolled-back") > 0, "a step")
    agent.stop()
    add_a_later_key(cloud, keys.generation("rolled-back"), "versions")
    add_a_later_key(cloud, keys.member("rolled-back", agent.id), "member", "versions", "usage")
    seconds = cloud.report("rolled-back", agent.id).usage
    cloud.boot(agent.id)
    result = cloud.result("rolled-back")
    assert (result.status, cloud.generation("rolled-back")) == ("finished", 2)
    after = cloud.report("rolled-back", agent.id).usage
    assert seconds is not None and after is not None and after.seconds > seconds.seconds
    add_a_later_key(cloud, keys.result("rolled-back"), "cost")
    assert cloud.board.result("rolled-back") == result
