"""The metadata client: tokens, notices, silence; against a server that insists on tokens and against the real mock."""

from __future__ import annotations

import datetime
import json
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from trainer.agent.imds import Identity, Imds, ImdsUnreachable, Notice, ScheduledEvent

from localcloud.toolchain import Paths
from tests.trainer.agent_kit import FakeImds

NODE = {"instance-id": "i-1", "local-ipv4": "10.0.0.7", "instance-life-cycle": "spot"}


@pytest.fixture
def service() -> Iterator[FakeImds]:
    fake = FakeImds(NODE)
    yield fake
    fake.close()


def test_one_token_serves_many_questions(service: FakeImds) -> None:
    imds = Imds(service.endpoint)
    assert imds.identity() == Identity("i-1", "10.0.0.7", "spot")
    assert imds.notice() is None
    assert [asked for asked in service.asked if asked.startswith("PUT")] == ["PUT 3600"]


def test_a_token_that_is_no_longer_known_is_renewed(service: FakeImds) -> None:
    """B11 (aws-node-termination-handler#732, #668): a 401 is answered with a new token, not with the end."""
    imds = Imds(service.endpoint)
    imds.identity()
    service.tokens.clear()  # the service was restarted
    assert imds.get("instance-id") == "i-1"
    assert len([asked for asked in service.asked if asked.startswith("PUT")]) == 2


def test_404_is_the_normal_answer(service: FakeImds) -> None:
    imds = Imds(service.endpoint)
    assert imds.get("spot/instance-action") is None
    assert not imds.rebalance_recommended()


def test_notices_are_told_apart(service: FakeImds) -> None:
    imds = Imds(service.endpoint)
    service.paths["autoscaling/target-lifecycle-state"] = "InService"
    assert imds.notice() is None
    service.paths["autoscaling/target-lifecycle-state"] = "Terminated"
    assert imds.notice() == Notice("termination")
    service.interrupt()
    assert imds.notice() == Notice("spot", "2026-11-30T00:02:00Z")
    service.paths["spot/instance-action"] = "not JSON"
    assert imds.notice() == Notice("spot", None)  # a notice all the same
    service.paths["events/recommendations/rebalance"] = json.dumps({"noticeTime": "2026-11-30T00:00:00Z"})
    assert imds.rebalance_recommended()


@pytest.mark.parametrize("state", ["Warmed:Stopped", "Warmed:Running", "Standby", "Detached"])
def test_a_target_state_that_takes_nothing_away_is_no_notice(service: FakeImds, state: str) -> None:
    service.paths["autoscaling/target-lifecycle-state"] = state
    assert Imds(service.endpoint).notice() is None


EVENT = {
    "NotBefore": "21 Jan 2027 09:00:43 GMT",
    "Code": "instance-retirement",
    "EventId": "instance-event-0d59937288b749b32",
    "Description": "The instance is running on degraded hardware",
    "State": "active",
}
AT = datetime.datetime(2027, 1, 21, 9, 0, 43, tzinfo=datetime.timezone.utc)


def test_scheduled_events_are_those_that_are_still_to_come(service: FakeImds) -> None:
    imds, path = Imds(service.endpoint), "events/maintenance/scheduled"
    assert imds.scheduled_events() == []  # 404
    for nothing in ("[]", "", "not JSON", "{}", '[{"Code": "x"}]', "[1]"):
        service.paths[path] = nothing
        assert imds.scheduled_events() == []
    over = [{**EVENT, "EventId": state, "State": state} for state in ("completed", "canceled")]
    service.paths[path] = json.dumps([EVENT, *over, {**EVENT, "EventId": "e", "NotBefore": "soon"}])
    assert imds.scheduled_events() == [
        ScheduledEvent("instance-event-0d59937288b749b32", "instance-retirement", AT),
        ScheduledEvent("e", "instance-retirement", None),
    ]


@pytest.mark.parametrize(
    ("code", "minutes_ahead", "notice"),
    [
        ("instance-retirement", 16, False),
        ("instance-retirement", 14, True),
        ("instance-stop", 14, True),
        ("instance-stop", -60, True),  # it may come at any moment
        ("instance-reboot", 1, False),  # the node comes back by itself
        ("system-reboot", 1, False),
        ("system-maintenance", 1, False),
    ],
)
def test_only_an_event_that_takes_the_machine_away_soon_is_a_notice(
    code: str, minutes_ahead: int, notice: bool
) -> None:
    now = AT - datetime.timedelta(minutes=minutes_ahead)
    assert ScheduledEvent("e", code, AT).is_notice(now) is notice


def test_silence_and_refusal_are_unreachable_not_a_crash() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        imds = Imds(f"http://127.0.0.1:{deaf.getsockname()[1]}", timeout_seconds=0.2)
        with pytest.raises(ImdsUnreachable, match="hop limit"):
            imds.notice()
        port = deaf.getsockname()[1]
    with pytest.raises(ImdsUnreachable):
        Imds(f"http://127.0.0.1:{port}", timeout_seconds=0.2).notice()


def test_the_sdks_variable_names_the_service_and_no_proxy_is_asked(
    service: FakeImds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", service.endpoint + "/")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert Imds().identity().instance_id == "i-1"


def test_the_real_mock_gives_identity_and_a_spot_notice_after_a_restart(tools: Paths, tmp_path: Path) -> None:
    """A restart makes old tokens invalid; the notice is there from its second 0 on."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]

    def start(*mode: str) -> subprocess.Popen[bytes]:
        command = [str(tools.metadata_mock), *mode, "-n", "127.0.0.1", "-p", str(port), "-I"]
        process = subprocess.Popen(
            command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            try:
                Imds(f"http://127.0.0.1:{port}").get("instance-id")
                return process
            except ImdsUnreachable:
                time.sleep(0.1)
        process.kill()
        raise AssertionError("the mock did not answer within 20 s")

    quiet = start("-d", "3600", "--rebalance-delay-sec", "3600", "--asg-termination-delay-sec", "3600")
    imds = Imds(f"http://127.0.0.1:{port}")
    try:
        identity = imds.identity()
        assert identity.instance_id.startswith("i-") and identity.address
        assert imds.notice() is None
    finally:
        quiet.kill()
        quiet.wait()
    noticed = start("spot", "-d", "0")
    try:
        notice = imds.notice()  # with the token of before
        assert notice is not None and notice.kind == "spot" and notice.at is not None
    finally:
        noticed.kill()
        noticed.wait()
