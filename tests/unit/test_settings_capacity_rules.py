"""Reservations, schedules and idle stop: each rule once broken, with its line, and once satisfied."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.compute.scaling import BLOCK_END, BLOCK_LEAVES_MINUTES, BLOCK_START
from components.settings import capacity_rules as rules
from components.settings import schedule_rules
from components.settings.cron import FIELDS, MONTHS, WEEKDAYS, cron_fault
from components.settings.faults import id_of, level_of
from tests.unit.rule_cases import Case, group
from tests.unit.stack_files import minimal
from tests.unit.test_settings_purchase_rules import told

ODCR: dict[str, Any] = {
    "kind": "on-demand",
    "id": "cr-0123456789abcdef0",
    "zone": "us-east-1a",
    "count": 2,
}
TIMES = {"startsAt": "2027-01-11T11:30:00Z", "endsAt": "2027-01-18T11:30:00Z"}
BLOCK: dict[str, Any] = {**ODCR, "kind": "capacity-block", **TIMES}
RESERVED: dict[str, Any] = {"zones": ["us-east-1a"], "reservation": ODCR}
IN_BLOCK: dict[str, Any] = {
    "instanceTypes": ["p5en.48xlarge"],
    "zones": ["us-east-1a"],
    "reservation": BLOCK,
}
EVENING = {"name": "evening", "recurrence": "0 20 * * 1-5", "desiredNodes": 2}
RUNNING_SINCE = datetime.datetime.now(datetime.timezone.utc).replace(second=0) - datetime.timedelta(days=1)
RUNNING = {
    "startsAt": f"{RUNNING_SINCE:%Y-%m-%dT%H:%M}Z",
    "endsAt": f"{RUNNING_SINCE + datetime.timedelta(days=7):%Y-%m-%dT%H:%M}Z",
}
NIGHT = {"name": "night", "recurrence": "0 23 * * *", "maxNodes": 0}


def block(**changes: Any) -> dict[str, Any]:
    return {**BLOCK, **changes}


def scheduled(**changes: Any) -> dict[str, Any]:
    return {"schedules": [{**EVENING, **changes}]}


AT = "gpu-training:gpuGroups[0]"
CASES = [
    Case(
        rules.reservation_is_in_the_groups_zone,
        group(reservation=ODCR),
        f"{AT}: the group launches in us-east-1a, us-east-1b, its reservation is in us-east-1a; write zones: "
        "[us-east-1a]",
        group(**RESERVED),
    ),
    Case(
        rules.reservation_is_in_the_groups_zone,
        group(**{**RESERVED, "zones": ["us-east-1b"]}),
        f"{AT}.zones: the group launches in us-east-1b, its reservation is in us-east-1a; write zones: [us-east-1a]",
        group(**RESERVED),
    ),
    Case(
        rules.reservation_holds_the_group,
        group(**RESERVED, maxNodes=3),
        f"{AT}.maxNodes: 3 nodes, the reservation holds 2; at most 2",
        group(**RESERVED, maxNodes=2),
    ),
    Case(
        rules.reservation_is_of_one_type,
        group(**RESERVED, instanceTypes=["g6.xlarge", "g6.2xlarge"]),
        f"{AT}.instanceTypes: 2 types for one reservation; name the reserved type alone",
        group(**RESERVED),
    ),
    Case(  # kops#10104: never a market type beside a mixed policy
        rules.reserved_group_buys_no_spot,
        group(**IN_BLOCK, purchase={"spotPercent": 1}),
        f"{AT}.purchase.spotPercent: 1 in a group that launches into cr-0123456789abcdef0; write 0",
        group(**IN_BLOCK),
    ),
    Case(
        rules.capacity_block_has_its_times,
        group(**{**RESERVED, "reservation": {**ODCR, "endsAt": TIMES["endsAt"]}}),
        f"{AT}.reservation.endsAt: only a capacity block has it; remove it, or write kind: capacity-block",
        group(**RESERVED),
    ),
    Case(
        rules.capacity_block_has_its_times,
        group(**{**IN_BLOCK, "reservation": {**ODCR, "kind": "capacity-block", "endsAt": TIMES["endsAt"]}}),
        f"{AT}.reservation.startsAt: a capacity block needs it; write its time in UTC, as EC2 shows it",
        group(**IN_BLOCK),
    ),
    Case(
        rules.capacity_block_has_its_times,
        group(**{**IN_BLOCK, "reservation": block(endsAt="2027-01-11T12:15:00Z")}),
        f"{AT}.reservation.endsAt: no time is left: nodes leave 45 minutes before the end; at least a day after "
        "startsAt",
        group(**{**IN_BLOCK, "reservation": block(endsAt="2027-01-11T12:16Z")}),
    ),
    Case(
        rules.capacity_block_has_its_times,
        group(**{**IN_BLOCK, "reservation": block(endsAt="2027-07-12T11:30:01Z")}),
        f"{AT}.reservation.endsAt: 182 days after startsAt; a block has at most 182",
        group(**{**IN_BLOCK, "reservation": block(endsAt="2027-07-12T11:30:00Z")}),
    ),
    Case(
        rules.capacity_block_has_its_times,
        group(**{**IN_BLOCK, "reservation": block(startsAt="2027-02-30T11:30:00Z")}),
        f"{AT}.reservation.startsAt: '2027-02-30T11:30:00Z' is no day and hour; such as 2027-01-11T11:30:00Z",
        group(**IN_BLOCK),
    ),
    Case(
        rules.capacity_block_is_one_that_is_sold,
        group(**{**IN_BLOCK, "instanceTypes": ["g6.xlarge"]}),
        f"{AT}.instanceTypes[0]: g6.xlarge is not sold in capacity blocks; use reservation.kind: on-demand",
        group(**IN_BLOCK),
    ),
    Case(
        rules.capacity_block_is_one_that_is_sold,
        group(instanceTypes=["p6e-gb200.36xlarge"]),
        f"{AT}.instanceTypes[0]: p6e-gb200.36xlarge is sold in capacity blocks only; add a reservation of that kind",
        group(**IN_BLOCK),
    ),
    Case(
        rules.capacity_block_is_one_that_is_sold,
        group(**{**IN_BLOCK, "reservation": block(count=65)}),
        f"{AT}.reservation.count: 65 instances; a block has at most 64",
        group(**{**IN_BLOCK, "reservation": block(count=64)}),
    ),
    Case(
        rules.capacity_block_is_empty_at_first,
        group(**IN_BLOCK, minNodes=1),
        f"{AT}.minNodes: 1 in a capacity block's group; write 0: its times set its size",
        group(**RESERVED, minNodes=1),
    ),
    Case(
        rules.capacity_block_is_empty_at_first,
        group(**IN_BLOCK, desiredNodes=2),
        f"{AT}.desiredNodes: 2 in a capacity block's group; write 0: its times set its size",
        group(**IN_BLOCK, desiredNodes=0),
    ),
    Case(  # terraform-aws-eks PR 3730
        rules.capacity_block_has_no_placement_group,
        group(**IN_BLOCK, placement="cluster"),
        f"{AT}.placement: cluster in a capacity block; write none",
        group(**IN_BLOCK, placement="none"),
    ),
    Case(  # awsome-distributed-ai: no capacity for reservations in a placement group of their own
        rules.reservation_is_of_the_placement_group,
        group(**RESERVED, placement="cluster"),
        f"{AT}.placement: cluster makes a new placement group, in which cr-0123456789abcdef0 cannot be; write the id "
        "of the placement group that it was reserved in, or none",
        group(**RESERVED, placement="pg-0123456789abcdef0"),
    ),
    Case(
        rules.capacity_block_has_no_placement_group,
        group(**IN_BLOCK, placement="pg-0123456789abcdef0"),
        f"{AT}.placement: pg-0123456789abcdef0 in a capacity block; write none",
        group(**IN_BLOCK),
    ),
    Case(
        rules.capacity_block_is_paid_for,
        group(**IN_BLOCK, idleStopMinutes=60),
        f"{AT}.idleStopMinutes: a stop of a capacity block's nodes saves nothing; remove it",
        group(**RESERVED, idleStopMinutes=60),
    ),
    Case(
        rules.capacity_block_is_paid_for,
        group(**IN_BLOCK, schedules=[EVENING]),
        f"{AT}.schedules: a capacity block's nodes cost the same at any size, and outside its time every launch fails; "
        "remove them: startsAt and endsAt set the size",
        group(**RESERVED, schedules=[EVENING]),
    ),
    Case(
        rules.capacity_block_is_not_over,
        group(
            **{
                **IN_BLOCK,
                "reservation": block(startsAt="2026-01-11T11:30:00Z", endsAt="2026-01-18T11:30:00Z"),
            }
        ),
        f"{AT}.reservation.endsAt: the capacity block ended at 2026-01-18 11:30 UTC: the group stays empty; write the "
        "next block's id and times, or remove the group",
        group(
            **{
                **IN_BLOCK,
                "reservation": block(startsAt="2096-01-11T11:30:00Z", endsAt="2096-01-18T11:30:00Z"),
            }
        ),
    ),
    Case(
        rules.capacity_block_is_to_come,
        group(**{**IN_BLOCK, "reservation": block(**RUNNING)}),
        f"{AT}.reservation.startsAt: the capacity block began at {RUNNING_SINCE:%Y-%m-%d %H:%M} UTC: only a new "
        "group is filled now; where gputrain-dev-trainers is empty: aws autoscaling set-desired-capacity "
        "--auto-scaling-group-name gputrain-dev-trainers --desired-capacity 2",
        group(
            **{
                **IN_BLOCK,
                "reservation": block(startsAt="2096-01-11T11:30:00Z", endsAt="2096-01-18T11:30:00Z"),
            }
        ),
    ),
    Case(
        schedule_rules.schedules_leave_each_other_room,
        group(schedules=[NIGHT, EVENING]),
        f"{AT}.schedules[1].desiredNodes: 2 is above maxNodes 0, which 'night' sets; write maxNodes here too, or "
        "desiredNodes in place of it there",
        group(schedules=[NIGHT, {**EVENING, "maxNodes": 2}]),
    ),
    Case(
        schedule_rules.schedules_leave_each_other_room,
        group(schedules=[{**EVENING, "minNodes": 1}, {**NIGHT, "maxNodes": 2, "desiredNodes": 0}]),
        f"{AT}.schedules[1].desiredNodes: 0 is below minNodes 1, which 'evening' sets; write minNodes here too, or "
        "desiredNodes in place of it there",
        group(
            schedules=[{**EVENING, "minNodes": 1}, {**NIGHT, "maxNodes": 2, "minNodes": 0, "desiredNodes": 0}]
        ),
    ),
    Case(
        schedule_rules.schedules_have_names_of_their_own,
        group(schedules=[EVENING, {**EVENING, "recurrence": "0 8 * * *"}]),
        f"{AT}.schedules[1].name: 'evening' is there twice; name each schedule once",
        group(schedules=[EVENING, {**EVENING, "name": "morning", "recurrence": "0 8 * * *"}]),
    ),
    Case(
        schedule_rules.schedules_have_names_of_their_own,
        group(**scheduled(name="capacity-block-end")),
        f"{AT}.schedules[0].name: 'capacity-block-end' is the name of a capacity block's action; choose another",
        group(**scheduled()),
    ),
    Case(
        schedule_rules.schedules_are_times,
        group(**scheduled(recurrence="0 24 * * *")),
        f"{AT}.schedules[0].recurrence: hour '24': is not within 0 and 23; such as '0 20 * * 1-5', weekdays at "
        "eight in the evening",
        group(**scheduled(recurrence="0 23 * * *")),
    ),
    Case(
        schedule_rules.schedules_are_times,
        group(**scheduled(timeZone="Europe/Berlim")),
        f"{AT}.schedules[0].timeZone: unknown time zone 'Europe/Berlim'; an IANA name such as Europe/Berlin "
        "(nearest match: Europe/Berlin)",
        group(**scheduled(timeZone="Europe/Berlin")),
    ),
    Case(
        schedule_rules.schedules_are_times,
        group(schedules=[EVENING, {**EVENING, "name": "again", "recurrence": "0  20 * * 1-5"}]),
        f"{AT}.schedules[1].recurrence: another schedule has this time; put both into one, or move one",
        group(schedules=[EVENING, {**EVENING, "name": "again", "timeZone": "Europe/Berlin"}]),
    ),
    Case(
        schedule_rules.schedules_keep_within_the_group,
        group(**scheduled(desiredNodes=3)),
        f"{AT}.schedules[0].desiredNodes: 3 is outside the group's minNodes and maxNodes; from 0 to 2",
        group(**scheduled(desiredNodes=2)),
    ),
    Case(
        schedule_rules.schedules_keep_within_the_group,
        group(**scheduled(minNodes=2, desiredNodes=1)),
        f"{AT}.schedules[0]: minNodes, desiredNodes and maxNodes are not in order; from small to large",
        group(**scheduled(minNodes=1, desiredNodes=1, maxNodes=1)),
    ),
    Case(
        schedule_rules.schedules_keep_within_the_group,
        group(schedules=[{"name": "nothing", "recurrence": "0 1 * * *"}]),
        f"{AT}.schedules[0]: changes nothing; give desiredNodes, minNodes or maxNodes",
        group(schedules=[{"name": "zero", "recurrence": "0 1 * * *", "maxNodes": 0}]),
    ),
    Case(
        schedule_rules.idle_stop_may_empty_the_group,
        group(idleStopMinutes=30, minNodes=1),
        f"{AT}.minNodes: 1 nodes would stay after idleStopMinutes; write 0, or remove that",
        group(idleStopMinutes=30, minNodes=0),
    ),
    Case(
        schedule_rules.idle_stop_may_empty_the_group,
        group(idleStopMinutes=30, **scheduled(minNodes=1)),
        f"{AT}.schedules[0].minNodes: 1 nodes would stay after idleStopMinutes; write 0, or remove that",
        group(idleStopMinutes=30, **scheduled(minNodes=0)),
    ),
]


def test_groups_of_one_reservation_fill_it_together() -> None:
    one = {**minimal()["gpuGroups"][0], **RESERVED}
    two = {**one, "name": "more", "maxNodes": 1}
    line = (
        "gpu-training:gpuGroups[1].maxNodes: trainers, more launch into cr-0123456789abcdef0: 3 nodes, it holds 2; at "
        "most 2 together"
    )
    assert [text for text, level in told({("gpuGroups",): [one, two]}).items() if level == "error"] == [line]
    half = {**one, "maxNodes": 1}
    assert "error" not in told({("gpuGroups",): [half, two]}).values()


@pytest.mark.parametrize("case", CASES, ids=[f"{id_of(c.rule)}-{n}" for n, c in enumerate(CASES)])
def test_a_broken_rule_is_told_at_its_level_and_a_kept_one_is_silent(case: Case) -> None:
    assert told(case.refused).get(case.line) == level_of(case.rule)
    assert case.line not in told(case.accepted)
    assert "error" not in told(case.accepted).values()


def test_every_rule_has_a_case_and_a_reason() -> None:
    every = {*rules.RULES, *schedule_rules.RULES}
    assert {case.rule for case in CASES} == every
    assert all(rule.__doc__ for rule in every)


def test_the_rules_and_the_plan_know_the_same_facts() -> None:
    assert rules.BLOCK_LEAVES_MINUTES == BLOCK_LEAVES_MINUTES > 30
    assert (BLOCK_START, BLOCK_END) == schedule_rules.BLOCK_ACTIONS


class TestCronText:
    @pytest.mark.parametrize(
        "text",
        ["0 20 * * 1-5", "*/15 * * * *", "0,30 8-18/2 1,15 * *", "59 23 31 12 7", "0 0 * jan-Mar SUN,fri"],
    )
    def test_of_five_sound_fields_has_no_fault(self, text: str) -> None:
        assert cron_fault(text) is None

    @pytest.mark.parametrize(
        ("text", "fault"),
        [
            ("0 20 * *", "4 fields, cron text has five: minute, hour, day of the month, month, weekday"),
            ("0 20 * * * 2027", "6 fields, cron text has five: minute, hour, day of the month, month, weekday"),
            ("60 * * * *", "minute '60': is not within 0 and 59"),
            ("0 0 0 * *", "day of the month '0': is not within 1 and 31"),
            ("0 0 * 13 *", "month '13': is not within 1 and 12"),
            ("0 0 * * mom", "weekday 'mom': is not within 0 and 7"),
            ("0 0 * * 5-1", "weekday '5-1': the range ends before it begins"),
            ("*/0 * * * *", "minute '*/0': the step is not within 1 and 59"),
            ("0 20 ? * *", "day of the month '?': must be *, a number, a range, a list of these, or one of them with "
             "a step such as */15"),
        ],
    )  # fmt: skip
    def test_is_told_what_is_wrong_with_it(self, text: str, fault: str) -> None:
        assert cron_fault(text) == fault

    @given(st.data())
    def test_every_number_in_its_fields_range_is_taken_and_the_next_one_refused(
        self, data: st.DataObject
    ) -> None:
        values = [data.draw(st.integers(field.least, field.most)) for field in FIELDS]
        assert cron_fault(" ".join(map(str, values))) is None
        place = data.draw(st.integers(0, 4))
        values[place] = FIELDS[place].most + data.draw(st.integers(1, 100))
        assert f"is not within {FIELDS[place].least}" in (cron_fault(" ".join(map(str, values))) or "")

    @given(st.sampled_from(MONTHS), st.sampled_from(WEEKDAYS))
    def test_months_and_weekdays_have_names(self, month: str, weekday: str) -> None:
        assert cron_fault(f"0 0 1 {month} {weekday}") is None

    @given(st.text(max_size=30))
    def test_any_other_text_is_refused_in_words(self, text: str) -> None:
        if len(text.split()) != len(FIELDS):
            assert "cron text has five" in (cron_fault(text) or "")
        else:
            cron_fault(text)  # judged, whatever is in it
