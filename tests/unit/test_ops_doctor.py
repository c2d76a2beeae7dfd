"""`make doctor`: what each answer of AWS means, that one silent service hides nothing, and the whole against moto.

moto has no capacity reservations, placement groups, cost allocation tags or EC2 quotas: those verdicts are tested on
answers in the API's own form, and the whole says "could not ask".
"""

from __future__ import annotations

import datetime
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from components.catalog import image_profile
from components.compute.plan import GroupPlan, plan_group
from components.settings.group_model import Reservation
from components.settings.model import ExistingNetwork
from components.settings.quota_rules import quota_needs
from ops.account import Account
from ops.doctor import __main__ as doctor
from ops.doctor import capacity, images, launches, network, reserved, standing
from ops.doctor.finding import Check, Finding, ok
from ops.doctor.network import Vpc
from ops.doctor.runner import run
from tests.unit.ops_kit import GOOD, PARAMETER, account_of, cloud, publish, session, settings_with

NOW = datetime.datetime(2026, 11, 30, 12, tzinfo=datetime.timezone.utc)
PROFILE = "dlami-pytorch-ubuntu-24.04"


def plan_with(**group: Any) -> GroupPlan:
    settings = settings_with(group=group)
    return plan_group(settings, settings.gpu_groups[0])


class TestTheRunner:
    def check(self, name: str, ask: Any) -> Check:
        return Check(name, "asked", "a:Right", ask)

    def test_keeps_the_order_of_the_checks_whoever_answers_first(self) -> None:
        first_may_end = threading.Event()

        def slow() -> list[Finding]:
            assert first_may_end.wait(5)
            return [ok("slow", "", "")]

        def quick() -> list[Finding]:
            first_may_end.set()
            return [ok("quick", "", "")]

        found = run([self.check("slow", slow), self.check("quick", quick)])
        assert [finding.check for finding in found] == ["slow", "quick"]

    def test_one_that_fails_hides_nothing_and_names_the_missing_right(self) -> None:
        def denied() -> list[Finding]:
            raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "Describe")

        found = run([self.check("a", denied), self.check("b", lambda: [ok("b", "", "")])])
        assert [(f.verdict, f.todo) for f in found] == [
            ("could not ask", "ask for the right a:Right"),
            ("ok", ""),
        ]

    def test_one_that_breaks_is_a_row_too(self) -> None:
        def broken() -> list[Finding]:
            raise KeyError("Foo")

        [found] = run([self.check("a", broken)])
        assert (found.verdict, found.answer) == ("could not ask", "'Foo'")

    def test_one_that_does_not_answer_is_given_up_after_the_limit(self) -> None:
        stop = threading.Event()
        checks = [
            self.check("hangs", lambda: [ok("hangs", "", "")] if stop.wait(30) else []),
            self.check("b", lambda: [ok("b", "", "")]),
        ]
        found = run(checks, limit_seconds=0.2, at_once=1)
        stop.set()
        assert [(f.check, f.verdict) for f in found] == [("hangs", "could not ask"), ("b", "ok")]
        assert found[0].answer == "no answer within 0.2 s"

    def test_no_more_than_the_limit_ask_at_once(self) -> None:
        asking, most, lock = 0, 0, threading.Lock()

        def ask() -> list[Finding]:
            nonlocal asking, most
            with lock:
                asking += 1
                most = max(most, asking)
            time.sleep(0.01)
            with lock:
                asking -= 1
            return []

        run([self.check(str(n), ask) for n in range(12)], at_once=3)
        assert most <= 3


class TestQuotas:
    def need(self) -> Any:
        settings = settings_with(
            group={"instanceTypes": ["p5.48xlarge"], "maxNodes": 4, "zones": ["us-east-1a"]}
        )
        return next(need for need in quota_needs(settings) if need.quota.code == "L-417A185B")

    def test_enough_is_enough(self) -> None:
        assert capacity.quota_verdict(self.need(), 768.0).verdict == "ok"

    def test_one_too_few_fails_with_the_command_that_asks_for_more(self) -> None:
        finding = capacity.quota_verdict(self.need(), 767.0)
        assert finding.verdict == "fail" and finding.answer.startswith("767 vCPUs; the stack takes 768 vCPUs")
        assert finding.todo == (
            "aws service-quotas request-service-quota-increase --service-code ec2 --quota-code L-417A185B "
            "--desired-value 768"
        )

    def test_one_that_the_service_does_not_know_is_not_judged(self) -> None:
        assert capacity.quota_verdict(self.need(), None).verdict == "could not ask"


class TestOfferings:
    def verdicts(self, offered: dict[str, set[str]], **group: Any) -> list[str]:
        plan = plan_with(**{"instanceTypes": ["g6.xlarge"], **group})
        return [finding.verdict for finding in capacity.offering_verdict(plan, offered)]

    def test_in_all_zones_some_or_none(self) -> None:
        assert self.verdicts({"g6.xlarge": {"us-east-1a", "us-east-1b", "us-east-1c"}}) == ["ok"]
        assert self.verdicts({"g6.xlarge": {"us-east-1a"}}) == ["warn"]
        assert self.verdicts({"g6.xlarge": {"us-east-1c"}}) == ["fail"]
        assert self.verdicts({}) == ["fail"]

    def test_one_type_of_several_may_be_missing(self) -> None:
        types = ["g6.xlarge", "g6.2xlarge"]
        assert self.verdicts({"g6.2xlarge": {"us-east-1a", "us-east-1b"}}, instanceTypes=types) == [
            "warn",
            "ok",
        ]

    def test_where_it_is_offered_instead_is_told(self) -> None:
        [finding] = capacity.offering_verdict(plan_with(), {"g6.xlarge": {"us-east-1d", "us-east-1c"}})
        assert finding.answer == "not offered; offered in us-east-1c, us-east-1d"

    def test_a_zone_that_the_account_lacks_fails(self) -> None:
        zones = [{"ZoneName": "us-east-1a", "ZoneId": "use1-az6", "State": "available"}]
        assert capacity.zone_verdict(["us-east-1a"], zones).answer == "us-east-1a is use1-az6"
        assert capacity.zone_verdict(["use1-az6"], zones).verdict == "ok"
        assert (
            capacity.zone_verdict(["us-east-1a", "us-east-1f"], zones).answer
            == "no zone of this account: us-east-1f"
        )


class TestReservations:
    HELD: dict[str, Any] = {  # noqa: RUF012  DescribeCapacityReservations' row of a block
        "CapacityReservationId": "cr-0123456789abcdef0",
        "InstanceType": "p5.48xlarge",
        "AvailabilityZone": "us-east-1a",
        "AvailabilityZoneId": "use1-az6",
        "TotalInstanceCount": 4,
        "AvailableInstanceCount": 4,
        "State": "active",
        "ReservationType": "capacity-block",
        "StartDate": datetime.datetime(2026, 11, 29, 11, 30, tzinfo=datetime.timezone.utc),
        "EndDate": datetime.datetime(2026, 12, 6, 11, 30, tzinfo=datetime.timezone.utc),
    }

    def judge(self, wanted: dict[str, Any] | None = None, **held: Any) -> Finding:
        reservation = {
            "kind": "capacity-block",
            "id": "cr-0123456789abcdef0",
            "zone": "us-east-1a",
            "count": 4,
            "startsAt": "2026-11-29T11:30:00Z",
            "endsAt": "2026-12-06T11:30:00Z",
            **(wanted or {}),
        }
        group = settings_with().gpu_groups[0].model_copy(update={"instance_types": ["p5.48xlarge"]})
        model = Reservation.model_validate(reservation)
        return reserved.reservation_verdict(group, model, {**self.HELD, **held}, NOW)

    def test_one_that_is_as_it_is_said_is_fine(self) -> None:
        assert self.judge() == Finding(
            "reservation of trainers",
            "cr-0123456789abcdef0",
            "active, 4 p5.48xlarge in us-east-1a, capacity-block, until 2026-12-06T11:30Z",
            "ok",
        )

    @pytest.mark.parametrize(
        ("held", "words"),
        [
            ({"InstanceType": "p5e.48xlarge"}, "it is of p5e.48xlarge, the group of p5.48xlarge"),
            ({"AvailabilityZone": "us-east-1b", "AvailabilityZoneId": "use1-az1"}, "it lies in us-east-1b"),
            ({"TotalInstanceCount": 3}, "it holds 3 instances, not 4"),
            ({"ReservationType": "default"}, "it is of kind on-demand, not capacity-block"),
            ({"State": "expired"}, "it is expired"),
            ({"State": "payment-failed"}, "it is payment-failed"),
            ({"EndDate": NOW - datetime.timedelta(hours=1)}, "its end has passed"),
            (
                {"EndDate": NOW + datetime.timedelta(days=1)},
                "endsAt says 2026-12-06T11:30:00Z, it has 2026-12-01",
            ),
        ],
    )
    def test_what_differs_fails_and_is_named(self, held: dict[str, Any], words: str) -> None:
        finding = self.judge(**held)
        assert finding.verdict == "fail" and words in finding.answer

    @pytest.mark.parametrize("held", [{"State": "scheduled"}, {"AvailableInstanceCount": 1}])
    def test_what_is_not_yet_or_partly_used_is_a_warning(self, held: dict[str, Any]) -> None:
        assert self.judge(**held).verdict == "warn"

    def test_a_zone_may_be_named_by_its_id(self) -> None:
        assert self.judge({"zone": "use1-az6"}).verdict == "ok"


class TestPlacementGroups:
    @pytest.mark.parametrize(
        ("held", "verdict"),
        [
            (None, "fail"),
            ({"GroupName": "g", "Strategy": "cluster", "State": "available"}, "ok"),
            ({"GroupName": "g", "Strategy": "spread", "State": "available"}, "warn"),
            ({"GroupName": "g", "Strategy": "cluster", "State": "deleting"}, "fail"),
        ],
    )
    def test_are_there_and_of_strategy_cluster(self, held: dict[str, Any] | None, verdict: str) -> None:
        assert reserved.placement_verdict("g", "pg-0123456789abcdef0", held).verdict == verdict


class TestImages:
    IMAGE: dict[str, Any] = {  # noqa: RUF012  DescribeImages' row
        "ImageId": "ami-0123456789abcdef0",
        "Name": "Deep Learning OSS Nvidia Driver AMI GPU PyTorch 2.12 (Ubuntu 24.04) 20261005",
        "State": "available",
        "Architecture": "x86_64",
        "RootDeviceName": "/dev/sda1",
        "RootDeviceType": "ebs",
        "ImageOwnerAlias": "amazon",
        "OwnerId": "898082745236",
        "CreationDate": "2026-10-05T10:00:00.000Z",
        "EnaSupport": True,
    }

    def judge(self, **changes: Any) -> Finding:
        group = settings_with().gpu_groups[0]
        image = {**self.IMAGE, **changes}
        return images.verdict_of(group, images.Resolved("ami-0123456789abcdef0", "amiId", image), "1", NOW)

    def test_one_that_keeps_the_profiles_promise(self) -> None:
        assert self.judge().verdict == "ok"

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"State": "pending"}, "its state is pending"),
            ({"Architecture": "arm64"}, "it is arm64"),
            ({"RootDeviceName": "/dev/xvda"}, "its root device is /dev/xvda, the profile's is /dev/sda1"),
            ({"RootDeviceType": "instance-store"}, "its root is no EBS volume"),
            ({"EnaSupport": False}, "no ENA driver"),
        ],
    )
    def test_one_that_does_not_fails_and_says_why(self, changes: dict[str, Any], words: str) -> None:
        finding = self.judge(**changes)
        assert finding.verdict == "fail" and words in finding.answer

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"CreationDate": "2026-05-01T00:00:00.000Z"}, "213 days old"),
            ({"DeprecationTime": "2026-11-29T00:00:00.000Z"}, "deprecated since 2026-11-29"),
            ({"ImageOwnerAlias": None, "OwnerId": "999999999999"}, "not of AWS and not of this account"),
        ],
    )
    def test_age_and_unknown_owners_are_warnings(self, changes: dict[str, Any], words: str) -> None:
        finding = self.judge(**changes)
        assert finding.verdict == "warn" and words in finding.answer

    def test_this_accounts_own_images_are_nothing_strange(self) -> None:
        assert self.judge(ImageOwnerAlias=None, OwnerId="1").verdict == "ok"

    def test_a_deprecated_one_is_asked_for_too_since_nodes_still_launch_with_it(self) -> None:
        asked: dict[str, Any] = {}

        class Ec2:
            def describe_images(self, **arguments: Any) -> Any:
                asked.update(arguments)
                return {"Images": [TestImages.IMAGE]}

        account = Account("1", "arn", "us-east-1", None, {("ec2", "us-east-1"): Ec2()})
        settings = settings_with(group={"image": {"profile": PROFILE, "amiId": "ami-0123456789abcdef0"}})
        images.resolve(account, settings.gpu_groups[0].image)
        assert asked == {"ImageIds": ["ami-0123456789abcdef0"], "IncludeDeprecated": True}

    def test_a_boot_mode_that_a_type_lacks(self) -> None:
        profile = image_profile(PROFILE)
        assert images.faults_of({**self.IMAGE, "BootMode": "uefi"}, profile, ["p4d.24xlarge"])
        assert not images.faults_of({**self.IMAGE, "BootMode": "uefi-preferred"}, profile, ["p4d.24xlarge"])


class TestLaunches:
    def tried(self, **group: Any) -> list[tuple[str, str]]:
        return [(one.instance_type, one.market) for one in launches.launches_of(plan_with(**group))]

    def test_every_type_and_way_of_buying_is_tried_not_only_the_first(self) -> None:
        types = ["g6.xlarge", "g6.2xlarge"]
        purchase = {"onDemandBase": 1, "spotPercent": 100}
        assert self.tried(instanceTypes=types, purchase=purchase) == [
            ("g6.xlarge", "on-demand"),
            ("g6.xlarge", "spot"),
            ("g6.2xlarge", "on-demand"),
            ("g6.2xlarge", "spot"),
        ]
        assert self.tried() == [("g6.xlarge", "on-demand")]
        assert self.tried(purchase={"spotPercent": 100}) == [("g6.xlarge", "spot")]

    def request(self, market: launches.Market = "on-demand", **group: Any) -> dict[str, Any]:
        plan = plan_with(**group)
        launch = launches.Launch(plan.name, plan.instance_types[0], plan.zones[0], market)
        return launches.request_of(plan, launch, "subnet-1")

    def test_nothing_is_ever_launched(self) -> None:
        for market in ("on-demand", "spot", "capacity-block"):
            assert self.request(market)["DryRun"] is True

    def test_the_interfaces_are_the_templates_each_in_the_subnet_and_without_a_public_address(self) -> None:
        interfaces = self.request(instanceTypes=["p5.48xlarge"], zones=["us-east-1a"])["NetworkInterfaces"]
        places = [(one["NetworkCardIndex"], one["DeviceIndex"], one["InterfaceType"]) for one in interfaces]
        assert len(interfaces) == 33 and places[:2] == [(0, 0, "interface"), (0, 1, "efa-only")]
        assert all(
            one["SubnetId"] == "subnet-1" and not one["AssociatePublicIpAddress"] for one in interfaces
        )

    def test_spot_says_its_price_limit(self) -> None:
        options = self.request("spot", purchase={"spotPercent": 100, "maxPriceUsdPerHour": 0.5})
        assert options["InstanceMarketOptions"]["SpotOptions"]["MaxPrice"] == "0.5"

    def test_a_block_is_targeted_and_its_market_named(self) -> None:
        reservation = {
            "kind": "capacity-block",
            "id": "cr-0123456789abcdef0",
            "zone": "us-east-1a",
            "count": 2,
            "startsAt": "2027-01-11T11:30:00Z",
            "endsAt": "2027-01-18T11:30:00Z",
        }
        group = {"instanceTypes": ["p5.48xlarge"], "zones": ["us-east-1a"], "reservation": reservation}
        assert self.tried(**group) == [("p5.48xlarge", "capacity-block")]
        request = self.request("capacity-block", **group)
        assert request["InstanceMarketOptions"] == {"MarketType": "capacity-block"}
        target = request["CapacityReservationSpecification"]["CapacityReservationTarget"]
        assert target == {"CapacityReservationId": "cr-0123456789abcdef0"}

    @pytest.mark.parametrize(
        ("code", "verdict"),
        [
            ("DryRunOperation", "ok"),
            ("InsufficientInstanceCapacity", "warn"),
            ("VcpuLimitExceeded", "fail"),
            ("MaxSpotInstanceCountExceeded", "fail"),
            ("UnsupportedOperation", "fail"),
            ("Unsupported", "fail"),
            ("InvalidParameterValue", "fail"),
            ("InvalidParameterCombination", "fail"),
            ("InvalidAMIID.NotFound", "fail"),
            ("InvalidCapacityReservationId.NotFound", "fail"),
            ("MissingParameter", "fail"),
            ("UnauthorizedOperation", "could not ask"),
            ("RequestLimitExceeded", "could not ask"),
            ("SomethingNew", "warn"),
        ],
    )
    def test_ec2s_answer_has_a_meaning(self, code: str, verdict: str) -> None:
        found, answer, todo = launches.verdict_of(code, "as EC2 says")
        assert found == verdict
        assert (answer == "EC2 would launch it") if verdict == "ok" else (f"({code}: as EC2 says)" in answer)
        assert todo or verdict == "ok" or code == "SomethingNew"

    def test_the_longest_known_beginning_counts(self) -> None:
        assert launches.verdict_of("InvalidAMIID.Malformed", "")[1].startswith("the image is not there")


class TestStandingThings:
    def test_a_role_that_a_key_policy_names_must_be_there_first(self) -> None:
        role = "AWSServiceRoleForAutoScaling"
        assert standing.role_verdict(role, True, True).verdict == "ok"
        assert standing.role_verdict(role, False, False).verdict == "warn"
        assert standing.role_verdict(role, False, True).verdict == "fail"
        assert standing.role_verdict("AWSServiceRoleForEC2Spot", False, True).verdict == "warn"

    @pytest.mark.parametrize(
        ("mode", "named"), [("create", True), ("existing", False), ("aws-managed", False)]
    )
    def test_only_a_key_of_the_stacks_own_has_a_policy_that_names_roles(
        self, mode: str, named: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        key = {"keyArn": "arn:aws:kms:us-east-1:123456789012:key/1"} if mode == "existing" else {}
        settings = settings_with(kms={"mode": mode, **key})
        told: list[bool] = []
        monkeypatch.setattr(standing, "role_verdict", lambda role, there, own: told.append(own))

        class Iam:
            def get_role(self, **_: Any) -> Any:
                return {}

        account = Account("1", "arn", "us-east-1", None, {("iam", "us-east-1"): Iam()})
        for check in standing._role_checks(account, settings, []):
            check.ask()
        assert told == [named]

    def test_every_bucket_of_the_stack_is_asked_for(self) -> None:
        settings = settings_with(datasets=[{"name": "shapes"}])
        kinds = [
            name.removeprefix("gputrain-dev-").removesuffix("-123456789012")
            for name in standing._buckets(settings)
        ]
        assert kinds == ["artifacts", "data-shapes", "access-logs"]
        without = settings_with(accessLogs={"retentionDays": None})
        assert len(standing._buckets(without)) == 1

    @pytest.mark.parametrize(
        ("key", "verdict"),
        [
            (None, "fail"),
            ({"KeyState": "Enabled", "KeyUsage": "ENCRYPT_DECRYPT"}, "ok"),
            ({"KeyState": "PendingDeletion", "KeyUsage": "ENCRYPT_DECRYPT"}, "fail"),
            ({"KeyState": "Enabled", "KeyUsage": "SIGN_VERIFY", "KeySpec": "RSA_2048"}, "fail"),
            ({"KeyState": "Enabled", "KeyUsage": "ENCRYPT_DECRYPT", "KeyManager": "AWS"}, "fail"),
        ],
    )
    def test_a_key_can_encrypt_volumes(self, key: dict[str, Any] | None, verdict: str) -> None:
        assert standing.key_verdict("arn", key).verdict == verdict

    @pytest.mark.parametrize(
        ("code", "verdict"), [("", "ok"), ("404", "ok"), ("403", "fail"), ("301", "warn")]
    )
    def test_a_bucket_is_ours_or_its_name_is_free(self, code: str, verdict: str) -> None:
        assert standing.bucket_verdict("b", code).verdict == verdict

    def test_a_budget_needs_an_active_tag(self) -> None:
        tag = {"TagKey": "gpu-training:stack", "Status": "Active"}
        assert standing.tag_verdict([tag]).verdict == "ok"
        assert "not active" in standing.tag_verdict([{**tag, "Status": "Inactive"}]).answer
        assert "takes a day" in standing.tag_verdict([]).answer

    def test_secrets_are_there_and_not_on_their_way_out(self) -> None:
        assert standing.secret_verdict("T", "n", None).verdict == "fail"
        assert standing.secret_verdict("T", "n", {"Name": "n"}).verdict == "ok"
        assert "restore-secret" in standing.secret_verdict("T", "n", {"DeletedDate": NOW}).todo


class TestAnExistingNetwork:
    EXISTING = ExistingNetwork(
        vpc_id="vpc-0123456789abcdef0", subnet_ids={"us-east-1a": "subnet-0123456789abcdef0"}
    )

    def judge(
        self, needed: int = 4, vpc: dict[str, Any] | None = None, **subnet: Any
    ) -> list[tuple[str, str]]:
        row = {
            "AvailabilityZone": "us-east-1a",
            "AvailabilityZoneId": "use1-az6",
            "AvailableIpAddressCount": 100,
        }
        known = {
            "dns_support": True,
            "dns_hostnames": True,
            "subnets": {"subnet-0123456789abcdef0": {**row, **subnet}},
            "ways_out": {"subnet-0123456789abcdef0": "NAT"},
            "endpoints": frozenset({"s3"}),
            **(vpc or {}),
        }
        found = network.verdicts(self.EXISTING, {"us-east-1a": needed}, Vpc(True, **known))
        return [(finding.verdict, finding.answer) for finding in found]

    def test_a_private_subnet_with_nat_and_dns_is_fine(self) -> None:
        assert [verdict for verdict, _ in self.judge()] == ["ok", "ok"]

    def test_a_vpc_that_is_not_there(self) -> None:
        [finding] = network.verdicts(self.EXISTING, {}, Vpc(False))
        assert finding.verdict == "fail"

    @pytest.mark.parametrize(
        ("subnet", "vpc", "needed", "words"),
        [
            ({"AvailabilityZone": "us-east-1b", "AvailabilityZoneId": "x"}, {}, 4, "it lies in us-east-1b"),
            ({"AvailableIpAddressCount": 3}, {}, 4, "nodes may need 4 addresses"),
            ({}, {"ways_out": {"subnet-0123456789abcdef0": "internet gateway"}}, 4, "it is a public subnet"),
            ({}, {"ways_out": {}}, 4, "neither NAT nor endpoints for autoscaling, logs, monitoring, ssm"),
            ({}, {"subnets": {}}, 4, "there is none in vpc-"),
        ],
    )
    def test_a_subnet_in_which_nodes_cannot_live(
        self, subnet: dict[str, Any], vpc: dict[str, Any], needed: int, words: str
    ) -> None:
        verdict, answer = self.judge(needed, vpc, **subnet)[1]
        assert verdict == "fail" and words in answer

    def test_endpoints_stand_in_for_nat(self) -> None:
        vpc = {"ways_out": {}, "endpoints": frozenset(network.NEEDED_ENDPOINTS)}
        assert self.judge(vpc=vpc)[1][0] == "ok"

    def test_dns_names_must_resolve(self) -> None:
        verdict, answer = self.judge(vpc={"dns_hostnames": False})[0]
        assert (verdict, answer) == ("fail", "off: enableDnsHostnames")

    def test_no_endpoint_for_s3_and_public_addresses_are_warnings(self) -> None:
        assert self.judge(vpc={"endpoints": frozenset()})[1][0] == "warn"
        assert self.judge(MapPublicIpOnLaunch=True)[1][0] == "warn"

    def test_a_subnet_without_a_table_of_its_own_has_the_main_one(self) -> None:
        nat = [{"DestinationCidrBlock": "0.0.0.0/0", "NatGatewayId": "nat-1"}]
        main = {"Associations": [{"Main": True}], "Routes": nat}
        own = {"Associations": [{"SubnetId": "subnet-a"}], "Routes": []}
        assert network.way_out("subnet-b", [main, own]) == "NAT"
        assert network.way_out("subnet-a", [main, own]) == "none"


GROUP: dict[str, Any] = {
    "purchase": {"spotPercent": 100},
    "placement": "pg-0123456789abcdef0",
    "zones": ["us-east-1a"],
    "image": {"profile": PROFILE, "ssmParameter": PARAMETER},
}


@pytest.fixture(scope="module")
def whole() -> Iterator[dict[str, list[Finding]]]:
    """Everything asked of moto, once: the findings by check, and the instances that are there afterwards."""
    with pytest.MonkeyPatch.context() as monkeypatch, cloud(monkeypatch):
        publish(GOOD)
        budget = {"monthlyUsd": 5000.0, "emails": ["a@example.com"]}
        settings = settings_with(group=GROUP, budget=budget, secrets={"TOKEN": "nope"})
        found = doctor.diagnose(account_of(settings), settings, NOW)
        left = session().client("ec2").describe_instances()["Reservations"]
        by_check = {f.check: [g for g in found if g.check == f.check] for f in found}
        yield {**by_check, "instances left": [ok("", "", "") for _ in left]}


class TestTheWhole:
    @pytest.mark.parametrize(
        ("check", "verdict"),
        [
            ("identity", "ok"),
            ("zones", "ok"),
            ("offering of trainers", "ok"),
            ("image of trainers", "ok"),
            ("launch of trainers", "ok"),
            ("bucket", "ok"),
            ("secret TOKEN", "fail"),
            ("service-linked role", "warn"),
            ("disk encryption", "warn"),
            # What moto has not.
            ("quota spot-g", "could not ask"),
            ("placement group of trainers", "could not ask"),
            ("cost tag", "could not ask"),
        ],
    )
    def test_what_moto_answers_is_judged_and_what_it_lacks_is_told(
        self, whole: dict[str, list[Finding]], check: str, verdict: str
    ) -> None:
        assert {finding.verdict for finding in whole[check]} == {verdict}, whole[check]

    def test_the_launch_says_where_and_how_it_was_tried(self, whole: dict[str, list[Finding]]) -> None:
        [finding] = whole["launch of trainers"]
        assert finding.asked.startswith("g6.xlarge in us-east-1a, spot, a default subnet subnet-")

    def test_no_instance_is_left_by_it(self, whole: dict[str, list[Finding]]) -> None:
        assert whole["instances left"] == []

    def test_a_table_for_people_and_json_for_machines_with_one_exit_code(
        self,
        whole: dict[str, list[Finding]],
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        findings = [finding for rows in whole.values() for finding in rows]
        account = Account("123456789012", "arn", "us-east-1", None)
        monkeypatch.setattr(doctor, "open_account", lambda settings: account)
        monkeypatch.setattr(doctor, "diagnose", lambda *_: findings)
        assert doctor.main(["--stack", "dev"]) == 1
        table = capsys.readouterr().out
        assert "stack dev in account 123456789012, us-east-1" in table and "doctor dev: " in table
        assert doctor.main(["--stack", "dev", "--json"]) == 1
        document = json.loads(capsys.readouterr().out)
        assert document["failed"] is True and len(document["findings"]) == len(findings)

    def test_without_a_failure_the_code_is_zero_and_brackets_are_printed_as_they_are(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        rows = [ok("a", "b", "[red]x"), Finding("c", "d", "e", "could not ask")]
        monkeypatch.setattr(doctor, "open_account", lambda settings: Account("1", "arn", "r", None))
        monkeypatch.setattr(doctor, "diagnose", lambda *_: rows)
        assert doctor.main(["--stack", "dev"]) == 0
        told = capsys.readouterr().out
        assert "[red]x" in told and "doctor dev: 1 ok, 1 could not ask" in told


def test_an_existing_vpc_is_asked_for_dns_subnets_and_ways_out(monkeypatch: pytest.MonkeyPatch) -> None:
    with cloud(monkeypatch):
        ec2 = session().client("ec2")
        vpc = ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
        subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.9.0.0/24", AvailabilityZone="us-east-1a")[
            "Subnet"
        ]
        existing = {"vpcId": vpc, "subnetIds": {"us-east-1a": subnet["SubnetId"]}}
        net = {"availabilityZones": ["us-east-1a"], "cidr": "10.9.0.0/16", "existing": existing}
        settings = settings_with(network=net)
        plans = [plan_group(settings, group) for group in settings.gpu_groups]
        [check] = network.checks(account_of(settings), settings, plans)
        vpc_row, subnet_row = check.ask()
    assert (vpc_row.verdict, vpc_row.answer) == ("fail", "off: enableDnsHostnames")
    assert subnet_row.verdict == "fail" and "neither NAT nor endpoints for s3" in subnet_row.answer
    assert "251 free addresses" in subnet_row.answer
