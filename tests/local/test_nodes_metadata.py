"""A node's metadata service: the real mock, quiet until told otherwise, IMDSv2 only, the node's own facts."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from botocore.utils import InstanceMetadataFetcher
from trainer.agent.imds import Imds

from localcloud.nodes.metadata import (
    SCHEDULED_CODES,
    Facts,
    MetadataFailed,
    MetadataService,
    Show,
    arguments,
    configuration,
)
from localcloud.nodes.names import private_name
from localcloud.nodes.service import addresses
from localcloud.toolchain import paths
from tests.local.node_kit import metadata

FACTS = Facts(
    instance_id="i-0123456789abcdef0", instance_type="g6.xlarge", availability_zone="us-east-1b",
    region="us-east-1", address="", life_cycle="spot", image_id="ami-0123456789abcdef0",
    account_id="123456789012", role="node-role",
)  # fmt: skip
ENVIRONMENT = {"PATH": "/usr/bin:/bin"}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[MetadataService]:
    found = MetadataService(paths().metadata_mock, tmp_path / "imds", next(addresses(tmp_path)))
    facts = {**FACTS.__dict__, "address": found.address}
    found.configure(Facts(**facts))
    found.show(Show.QUIET, ENVIRONMENT)
    yield found
    found.stop()


def get(service: MetadataService, path: str) -> str | None:
    """None for 404."""
    return metadata(service.endpoint, path)


def test_it_tells_the_node_who_it_is(service: MetadataService) -> None:
    asked = ("instance-id", "instance-type", "placement/availability-zone", "placement/region", "local-ipv4",
             "instance-life-cycle")  # fmt: skip
    assert [get(service, path) for path in asked] == [
        "i-0123456789abcdef0", "g6.xlarge", "us-east-1b", "us-east-1", service.address, "spot",
    ]  # fmt: skip


def test_it_is_quiet_until_told_otherwise(service: MetadataService) -> None:
    notices = ("spot/instance-action", "events/recommendations/rebalance", "events/maintenance/scheduled")
    assert [get(service, path) for path in notices] == [None, None, None]
    assert get(service, "autoscaling/target-lifecycle-state") == "InService"


def test_a_request_without_a_token_is_refused(service: MetadataService) -> None:
    with pytest.raises(urllib.error.HTTPError) as fault:
        urllib.request.urlopen(f"{service.endpoint}/latest/meta-data/instance-id", timeout=5)
    assert fault.value.code == 401


def test_the_sdk_gets_the_roles_credentials(service: MetadataService) -> None:
    found = InstanceMetadataFetcher(base_url=f"{service.endpoint}/").retrieve_iam_role_credentials()
    assert found["role_name"] == "node-role"
    assert found["access_key"].startswith("ASIA")
    assert datetime.fromisoformat(found["expiry_time"].replace("Z", "+00:00")) > datetime.now(
        timezone.utc
    ) + timedelta(days=1)


def test_a_spot_notice_names_action_and_time_and_nothing_else_is_shown(service: MetadataService) -> None:
    at = datetime(2030, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
    service.show(Show.SPOT, ENVIRONMENT, at)
    notice = json.loads(get(service, "spot/instance-action") or "{}")
    assert notice == {"action": "terminate", "time": "2030-01-02T03:04:05Z"}
    assert get(service, "instance-id") == "i-0123456789abcdef0", "the identity stays"
    assert get(service, "events/recommendations/rebalance") is None
    assert get(service, "events/maintenance/scheduled") is None


def test_a_rebalance_recommendation_is_no_interruption(service: MetadataService) -> None:
    service.show(Show.REBALANCE, ENVIRONMENT)
    assert "noticeTime" in (get(service, "events/recommendations/rebalance") or "")
    assert get(service, "spot/instance-action") is None


def test_a_node_that_its_group_takes_out_reads_terminated(service: MetadataService) -> None:
    service.show(Show.TERMINATING, ENVIRONMENT)
    assert get(service, "autoscaling/target-lifecycle-state") == "Terminated"
    assert get(service, "spot/instance-action") is None


def test_a_scheduled_event_names_code_times_and_state_and_is_no_spot_notice(service: MetadataService) -> None:
    at = datetime(2030, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
    service.show(Show.SCHEDULED, ENVIRONMENT, at, code="instance-retirement")
    (event,) = json.loads(get(service, "events/maintenance/scheduled") or "[]")
    assert (event["Code"], event["State"]) == ("instance-retirement", "active")
    assert (event["NotBefore"], event["NotAfter"]) == ("2 Jan 2030 03:04:05 GMT", "2 Jan 2030 05:04:05 GMT")
    assert get(service, "spot/instance-action") is None
    assert get(service, "events/recommendations/rebalance") is None
    assert get(service, "instance-id") == "i-0123456789abcdef0", "the identity stays"


def test_each_scheduled_event_has_an_id_of_its_own(service: MetadataService) -> None:
    seen: set[str] = set()
    for _ in range(2):
        service.show(Show.SCHEDULED, ENVIRONMENT, code="instance-stop")
        (event,) = json.loads(get(service, "events/maintenance/scheduled") or "[]")
        assert event["EventId"].startswith("instance-event-")
        seen.add(event["EventId"])
    assert len(seen) == 2


@pytest.mark.parametrize("code", SCHEDULED_CODES)
def test_every_code_is_one_that_the_service_knows(service: MetadataService, code: str) -> None:
    service.show(Show.SCHEDULED, ENVIRONMENT, code=code)
    assert f'"{code}"' in (get(service, "events/maintenance/scheduled") or "")


def test_an_unknown_code_is_a_failure_with_the_log(service: MetadataService) -> None:
    with pytest.raises(MetadataFailed, match=r"imds\.log"):
        service.show(Show.SCHEDULED, ENVIRONMENT, code="lunch")
    assert "lunch" in (service.folder / "imds.log").read_text()


# ---- as the trainer's agent reads it


def test_the_agents_client_goes_on_over_a_notice_which_ends_its_token(service: MetadataService) -> None:
    imds = Imds(service.endpoint)
    assert imds.identity().instance_id == "i-0123456789abcdef0"
    assert (imds.notice(), imds.scheduled_events(), imds.rebalance_recommended()) == (None, [], False)
    before = imds._token
    at = datetime(2030, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
    service.show(Show.SPOT, ENVIRONMENT, at)
    notice = imds.notice()
    assert notice is not None
    assert (notice.kind, notice.at) == ("spot", "2030-01-02T03:04:05Z")
    assert imds._token != before, "the old token was refused with 401 and renewed"


def test_the_agents_client_reads_a_scheduled_event(service: MetadataService) -> None:
    imds = Imds(service.endpoint)
    now = datetime.now(timezone.utc)
    at = (now + timedelta(minutes=5)).replace(microsecond=0)
    service.show(Show.SCHEDULED, ENVIRONMENT, at, code="instance-retirement")
    (event,) = imds.scheduled_events()
    assert (event.code, event.not_before) == ("instance-retirement", at)
    assert event.is_notice(now)
    assert imds.notice() is None


def test_the_agents_client_reads_what_its_group_has_in_mind(service: MetadataService) -> None:
    imds = Imds(service.endpoint)
    service.show(Show.TERMINATING, ENVIRONMENT)
    notice = imds.notice()
    assert notice is not None
    assert notice.kind == "termination"


# ---- names


@pytest.mark.parametrize(
    ("region", "name"),
    [("us-east-1", "ip-10-0-0-1.ec2.internal"), ("eu-west-1", "ip-10-0-0-1.eu-west-1.compute.internal")],
)
def test_private_names_are_spelt_as_ec2_spells_them(region: str, name: str) -> None:
    assert private_name("10.0.0.1", region) == name
    facts = Facts(**{**FACTS.__dict__, "address": "10.0.0.1", "region": region})
    values = configuration(facts, datetime.now(timezone.utc))["metadata"]["values"]
    assert (values["hostname"], values["local-hostname"]) == (name, name)


def test_the_node_reads_its_private_name(service: MetadataService) -> None:
    assert get(service, "local-hostname") == private_name(service.address, "us-east-1")


# ---- the service itself


def test_an_address_in_use_is_told_with_the_log(service: MetadataService, tmp_path: Path) -> None:
    other = MetadataService(Path("/bin/false"), tmp_path / "other", "127.254.254.254")
    other.folder.mkdir()
    with pytest.raises(MetadataFailed, match=r"127\.254\.254\.254.*imds\.log"):
        other.show(Show.QUIET, ENVIRONMENT)


def test_every_notice_is_far_off_but_the_one_asked_for() -> None:
    for show, flag in (
        (Show.SPOT, "--mock-delay-sec"),
        (Show.REBALANCE, "--rebalance-delay-sec"),
        (Show.TERMINATING, "--asg-termination-delay-sec"),
        (Show.SCHEDULED, "--mock-delay-sec"),
    ):
        given = arguments(show)
        at_once = {given[i] for i in range(len(given) - 1) if given[i + 1] == "0"}
        assert at_once == {flag}
    assert "0" not in arguments(Show.QUIET)


def test_nodes_get_addresses_of_their_own(tmp_path: Path, service: MetadataService) -> None:
    found = addresses(tmp_path)
    assert next(found) != service.address, "an address whose metadata port is taken is passed over"
    assert len({next(found) for _ in range(20)}) == 20
