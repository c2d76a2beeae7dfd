"""What `make bench` says of two contestants: above 1 we are faster, and a peer that is not there is told."""

from __future__ import annotations

import os

import pytest

from benchmarks.races import Race, kept_environment


@pytest.mark.parametrize(
    ("unit", "ours", "theirs"), [("s", [2.0, 1.0], [4.0, 3.0]), ("samples/s", [4, 3], [2, 1])]
)
def test_less_time_and_more_samples_are_faster(unit: str, ours: list[float], theirs: list[float]) -> None:
    race = Race("sync", "s5cmd", 0.8, ours, theirs, unit)
    assert race.ratios == [2.0, 3.0]
    assert race.row()[1:] == ("2.50", "2.00 to 3.00", "at least 0.8")
    assert race.to_json()["ratio"] == 2.5


def test_a_peer_that_is_not_installed_is_told_in_its_row() -> None:
    race = Race("sync", "s5cmd", 0.8, [1.0], [], "s")
    assert race.row() == ("sync, to s5cmd", "not installed", "", "at least 0.8")
    assert race.to_json()["ratio"] is None


def test_what_a_contestant_puts_into_the_environment_is_not_the_next_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BENCH_HERE", "before")
    with kept_environment():
        os.environ.update({"BENCH_HERE": "changed", "BENCH_RANK": "0"})
    assert os.environ["BENCH_HERE"] == "before" and "BENCH_RANK" not in os.environ
