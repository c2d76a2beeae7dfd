"""Exceptions name a resource, a reason and an end; anything less does not hold."""

from __future__ import annotations

from datetime import date

import pytest

from policies.rules._exceptions import Exceptions
from policies.rules._judge import Outcome
from tests.policies.kit import RULE_BY_ID, R, judge

TODAY = date(2026, 11, 30)
COMPLETE = {"resource": "jump-*", "reason": "TICKET-7: partner link", "expires": "2026-11-30"}


def exceptions(**changed: object) -> Exceptions:
    return Exceptions({"exceptions": [{**COMPLETE, **changed}]}, TODAY)


def test_a_complete_exception_covers_the_resources_it_names_until_its_last_day() -> None:
    assert exceptions().covers("jump-host")
    assert not exceptions().covers("node")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"expires": "2026-11-29"}, "expired on 2026-11-29"),
        ({"expires": "some day"}, "no date"),
        ({"expires": None}, "no date"),
        ({"reason": " "}, "no reason"),
        ({"reason": None}, "no reason"),
    ],
)
def test_an_incomplete_or_expired_exception_covers_nothing_and_says_why(
    change: dict[str, object], says: str
) -> None:
    entry = exceptions(**change)
    assert not entry.covers("jump-host")
    assert says in entry.note("jump-host")
    assert entry.note("node") == ""


def test_a_rule_honours_its_exceptions_and_names_those_that_ran_out() -> None:
    rule = RULE_BY_ID["no-world-open-ingress"]
    resource = R(
        "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule", {"cidrIpv4": "0.0.0.0/0"}, "jump-in"
    )
    held = {"exceptions": [{**COMPLETE, "expires": "2999-12-31"}]}
    assert judge(rule, [resource], held).outcome is Outcome.COMPLIANT
    verdict = judge(rule, [resource], {"exceptions": [{**COMPLETE, "expires": "2000-01-01"}]})
    assert verdict.outcome is Outcome.VIOLATION
    assert "expired on 2000-01-01" in verdict.messages[0]


def test_an_exception_may_name_one_validator_of_a_rule_and_the_others_still_judge() -> None:
    rule = RULE_BY_ID["aws-would-refuse"]
    resource = R(
        "aws:ec2/launchTemplate:LaunchTemplate", {"instanceType": "p5.z", "userData": "no base64!"}, "jump-in"
    )
    entry = {**COMPLETE, "validator": "user-data-is-base64", "expires": "2999-12-31"}
    [message] = judge(rule, [resource], {"exceptions": [entry]}).messages
    assert "[instance-type-exists]" in message
    expired = judge(rule, [resource], {"exceptions": [{**entry, "expires": "2000-01-01"}]}).messages
    assert len(expired) == 2
    assert ["expired on 2000-01-01" in message for message in expired] == [False, True]
