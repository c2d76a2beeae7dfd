"""What the laboratory writes down: a page and a table on the screen, from records that survive as JSON."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from localcloud.faults.report import FaultRecord, Header, NotRun, print_table, render, seconds
from localcloud.faults.timing import Timing
from localcloud.faults.verdict import Verdict

HEADER = Header("2027-03-01", "2 cores, 24 GiB, Linux 6.18", "machine", 7, 0.1, 754.2)
KILL = FaultRecord(
    name="kill-node",
    group="Processes",
    description="the node's power fails",
    driver="machine",
    time_factor=0.1,
    verdict=Verdict(True, (), "finished with worlds of 3, 2, 3 ranks"),
    timing=Timing(2.534, "error of i-1: stopping workers", 24.04, None, 2, 118.6),
    seconds=71.3,
)
CORRUPT = replace(
    KILL,
    name="corrupt-shard",
    group="S3",
    description="a shard has other bytes",
    verdict=Verdict(
        False,
        ("message: expected it to say 'publish', found 'shard | 3'",),
        "failed with exit code 20 (DATASET): shard | 3 < expected",
    ),
    timing=Timing(None, None, None, None, None, None),
)


def test_each_group_has_a_table_in_the_order_of_its_records():
    lines = render([KILL, CORRUPT, replace(KILL, name="kill-agent")], HEADER).splitlines()
    first, second = lines.index("## Processes"), lines.index("## S3")
    assert first < second
    assert (
        lines[first + 2]
        == "| fault | what happened | detected s | recovered s | lost steps | idle node-s | verdict |"
    )
    assert lines[first + 4] == (
        "| `kill-node`: the node's power fails | finished with worlds of 3, 2, 3 ranks "
        "| 2.5 | 24.0 | 2 | 119 | passed |"
    )
    assert lines[first + 5].startswith("| `kill-agent`")


def test_what_does_not_apply_is_a_dash_and_a_cell_stays_a_cell():
    assert (
        "| `corrupt-shard`: a shard has other bytes | failed with exit code 20 (DATASET): shard \\| 3 &lt; expected "
        "| – | – | – | – | FAILED |"
    ) in render([CORRUPT], HEADER)


def test_the_page_says_where_when_and_how_many_passed():
    text = render([KILL, CORRUPT], HEADER)
    assert (
        "2027-03-01, 2 cores, 24 GiB, Linux 6.18; driver `machine`, seed 7, time factor 0.1, 12 min 34 s: "
        "**1 of 2 passed**."
    ) in text
    assert "`make faults`" in text


def test_faults_and_what_was_not_run_are_told_with_their_reasons_and_only_where_there_are_some():
    text = render([KILL, CORRUPT], HEADER, [NotRun("loss", "nft is not installed")])
    assert "- `corrupt-shard`: message: expected it to say 'publish', found 'shard | 3'\n" in text
    assert "## Not run\n\n- `loss`: nft is not installed\n" in text
    alone = render([KILL], HEADER)
    assert "## Not run" not in alone
    assert "## What failed" not in alone


def test_recovery_after_a_lifted_fault_stands_in_brackets():
    record = replace(KILL, timing=replace(KILL.timing, after_healing_seconds=3.96))
    assert "| 24.0 (4.0) |" in render([record], HEADER)


def test_a_fault_that_ran_under_other_terms_says_so():
    record = replace(KILL, driver="process", time_factor=1.0)
    assert "| `kill-node`: the node's power fails (driver process, time factor 1) |" in render(
        [record], HEADER
    )


@pytest.mark.parametrize(
    ("value", "text"), [(None, "–"), (0.0, "0"), (0.314, "0.31"), (9.96, "10.0"), (118.6, "119")]
)
def test_figures_have_as_many_digits_as_make_sense(value: float | None, text: str):
    assert seconds(value) == text


@pytest.mark.parametrize("record", [KILL, CORRUPT])
def test_a_record_survives_as_json(record: FaultRecord):
    assert FaultRecord.from_json(record.to_json()) == record


def test_the_screen_shows_the_same_and_why_a_fault_failed():
    out = io.StringIO()
    print_table([KILL, CORRUPT], Console(file=out, width=200))
    text = out.getvalue()
    assert [word for word in ("kill-node", "24.0", "119", "FAILED") if word not in text] == []
    assert "corrupt-shard: message: expected it to say 'publish', found 'shard | 3'" in text
