"""Rules of pinned images: what they refuse or tell, with the exact line, and what they accept."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from components.compute.plan import plan_group
from components.settings import advice, load, pinned_image_rules
from tests.unit.rule_cases import Case, configured, group, lines

PROFILE = "dlami-pytorch-ubuntu-24.04"
PARAMETER = "/gpu-training/images/pytorch"
AMI = "ami-0123456789abcdef0"
TODAY = datetime.date(2026, 11, 30)


def image(day: str = "2026-11-30", **changes: Any) -> dict[str, Any]:
    pinned = {"amiId": AMI, "name": "pytorch 2.12", "date": day}
    return {"profile": PROFILE, "ssmParameter": PARAMETER, "pinned": pinned, **changes}


def without_parameter() -> dict[str, Any]:
    return {key: value for key, value in image(amiId=AMI).items() if key != "ssmParameter"}


@pytest.fixture(autouse=True)
def today(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pinned_image_rules, "_today", lambda: TODAY)


CASES = [
    Case(
        pinned_image_rules.pinned_image_has_a_parameter,
        group(image=without_parameter()),
        "gpu-training:gpuGroups[0].image.pinned: an image is pinned, but there is no ssmParameter that it came from; "
        "remove it, or write ssmParameter instead of amiId",
        group(image=image()),
    ),
    Case(
        pinned_image_rules.pinned_day_is_a_day,
        group(image=image("2026-02-30")),
        "gpu-training:gpuGroups[0].image.pinned.date: '2026-02-30' is no day of the calendar; write the day of "
        "pinning, as `make pin-image` does",
        group(image=image("2026-02-28")),
    ),
    Case(
        pinned_image_rules.pinned_day_is_a_day,
        group(image=image("2026-12-02")),
        "gpu-training:gpuGroups[0].image.pinned.date: 2026-12-02 is still to come; write the day of pinning, as "
        "`make pin-image` does",
        group(image=image("2026-12-01")),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule.__name__)
def test_a_rule_refuses_with_this_line(case: Case) -> None:
    assert lines(case.stack, case.refused) == [case.line]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule.__name__)
def test_a_rule_accepts(case: Case) -> None:
    assert lines(case.stack, case.accepted) == []


@pytest.mark.parametrize(("day", "told"), [("2026-09-01", []), ("2026-08-31", ["91 days ago"])])
def test_an_image_pinned_a_quarter_ago_is_told_and_stops_nothing(day: str, told: list[str]) -> None:
    findings = advice(load("dev", configured(group(image=image(day)))))
    found = [finding for finding in findings if finding.validator == "pinned-image-is-recent"]
    assert [(f.level, f.wrong) for f in found] == [
        ("info", f"the image was pinned {words}") for words in told
    ]
    assert all("make pin-image STACK=dev" in finding.remedy for finding in found)


@pytest.mark.parametrize(
    ("given", "launched"),
    [
        (image(), AMI),
        ({"profile": PROFILE, "ssmParameter": PARAMETER}, f"resolve:ssm:{PARAMETER}"),
        ({"profile": PROFILE, "amiId": "ami-00000000000000001"}, "ami-00000000000000001"),
    ],
)
def test_nodes_launch_with_what_is_pinned(given: dict[str, Any], launched: str) -> None:
    settings = load("dev", configured(group(image=given)))
    assert plan_group(settings, settings.gpu_groups[0]).image_id == launched
