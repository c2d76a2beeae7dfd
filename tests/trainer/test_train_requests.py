"""What a running world tells the agent, and what it does at its request without ending."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

import pytest
from trainer.contracts.worker import SAVE_FILE
from trainer.exit_codes import Exit
from trainer.train.stragglers import WINDOW_STEPS, Straggler, Stragglers

from tests.trainer.kit import Bench, Ranks, run_config
from tests.trainer.test_train_runs import ENDLESS, until


def test_a_save_at_request_and_stacks_at_request_leave_the_run_going(trained: Bench) -> None:
    settings = {"steps": ENDLESS, "model_args": {"step_seconds": 0.05}}
    ranks = Ranks(trained, run_config(**settings), 1, world=2)
    until(lambda: len(ranks.events(0, "step")) >= 2, "the second step")
    pid = ranks.processes[1].pid
    assert pid is not None
    os.kill(pid, signal.SIGUSR1)
    until(lambda: "in train\n" in ranks.log.read_text(), "the stacks in the log")
    assert "Current thread" in ranks.log.read_text()
    for expected in (1, 2):
        (ranks.gen_dir / SAVE_FILE).touch()
        until(lambda: len(ranks.events(0, "checkpoint")) == expected, "a checkpoint")  # noqa: B023
        assert not (ranks.gen_dir / SAVE_FILE).exists()
    saved = ranks.events(0, "checkpoint")[-1]
    until(lambda: ranks.events(1, "step")[-1]["step"] > saved["step"] + 1, "further steps")
    (ranks.gen_dir / "stop").write_text("user")
    assert ranks.wait() == [Exit.STOPPED_SAVED, Exit.STOPPED_SAVED]
    reasons = [event["reason"] for event in ranks.events(0, "checkpoint")]
    assert reasons == ["requested", "requested", "user"]


def test_every_rank_tells_of_a_pause_before_it_saves_or_evaluates(trained: Bench) -> None:
    settings = {"steps": 6, "eval_every_steps": 3, "checkpoint": {"every_seconds": 0.001, "keep": 2}}
    ranks = Ranks(trained, run_config(**settings), 1, world=2)
    assert ranks.wait() == [Exit.DONE, Exit.DONE]
    first, second = ([(e["kind"], e["step"], e.get("reason")) for e in ranks.events(rank)] for rank in (0, 1))
    pauses = [event for event in first if event[0] == "pause"]
    assert pauses == [event for event in second if event[0] == "pause"]
    assert {("pause", 3, "eval"), ("pause", 6, "eval"), ("pause", 6, "save")} <= set(pauses)
    for place, (kind, step, _) in enumerate(first):
        if kind == "eval":
            told = [event for event in first[:place] if event[0] in ("step", "pause")]
            assert told[-1] == ("pause", step, "eval")  # a save from before may end meanwhile
    kinds = [kind for kind, _, _ in second]
    assert kinds[kinds.index("pause") + 1 :].count("step") == 3  # and goes on after it


def test_a_rank_that_makes_its_peers_wait_is_named_once(trained: Bench) -> None:
    arguments = {"step_seconds": 0.03, "slow_rank": 1}
    ranks = Ranks(trained, run_config(steps=2 * WINDOW_STEPS + 1, model_args=arguments), 1, world=2)
    assert ranks.wait() == [Exit.DONE, Exit.DONE]
    (straggler,) = ranks.events(0, "straggler")
    assert (straggler["step"], straggler["slowRank"]) == (WINDOW_STEPS, 1) and straggler["ratio"] > 1.5
    assert ranks.events(1, "straggler") == []


def told(stragglers: Stragglers, *windows: Sequence[float]) -> list[Straggler | None]:
    """The answers at the end of windows in which each rank is busy for so many milliseconds a step."""
    answers = []
    for window in windows:
        steps = [stragglers.take([value / 1000 for value in window]) for _ in range(WINDOW_STEPS)]
        assert not any(steps[:-1])
        answers.append(steps[-1])
    return answers


@pytest.mark.parametrize(
    ("busy", "slow"),
    [
        ([20, 20, 20, 31], 3),
        ([20, 20, 20, 29], None),  # not by half
        ([31, 20], 0),  # the slower of two
        ([2, 2, 2, 6.5], None),  # not by 5 ms
        ([20, 50, 20, 60], 3),  # the slowest
        ([20], None),
    ],
)
def test_slow_is_half_as_much_again_as_the_median_and_five_milliseconds(
    busy: list[float], slow: int | None
) -> None:
    (answer,) = told(Stragglers([4] * len(busy)), busy)
    assert (answer.rank if answer else None) == slow
    if answer:
        assert answer.ratio == pytest.approx(busy[answer.rank] / 20)


def test_a_straggler_is_told_again_only_after_a_change() -> None:
    third, second, none = [20, 20, 40], [20, 40, 20], [20, 20, 20]
    answers = told(Stragglers([4, 4, 4]), third, third, second, none, second)
    assert [answer.rank if answer else None for answer in answers] == [2, None, 1, None, 1]


def test_one_slow_step_makes_no_straggler() -> None:
    stragglers = Stragglers([4, 4])
    steps = [[0.02, 0.9]] * 9 + [[0.02, 0.02]] * 11
    assert not any(stragglers.take(step) for step in steps)


def test_a_larger_share_may_take_longer() -> None:
    assert told(Stragglers([2, 1, 1]), [40, 20, 20]) == [None]
    assert told(Stragglers([2, 1, 1]), [61, 20, 20]) != [None]
