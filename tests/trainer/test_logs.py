"""Log lines: JSON that every reader takes, each with what it speaks of, and no secret in any."""

from __future__ import annotations

import json
import logging
import math
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from trainer.agent.secret_values import Secrets
from trainer.exit_codes import Exit
from trainer.obs.logs import bind, capture_logging, configure, get_logger, hide, to_json
from trainer.runs.watch import log_line
from trainer.train.events import EventLog

from tests.trainer.kit import Bench, Ranks, run_config


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)
    configure()


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_line_has_the_context_until_it_is_taken_back(capsys: pytest.CaptureFixture[str]) -> None:
    configure(instance="i-1")
    bind(run="r", generation=2, rank=0, step=7)
    get_logger().info("saved", seconds=0.5)
    get_logger().info("stopping", step=8)  # its own word counts
    bind(run=None, generation=None, rank=None, step=None)
    get_logger().warning("idle")
    first, second, third = lines(capsys.readouterr().out)
    assert list(first)[:8] == ["time", "level", "event", "instance", "run", "generation", "rank", "step"]
    assert (first["instance"], first["run"], first["generation"], first["step"]) == ("i-1", "r", 2, 7)
    assert second["step"] == 8
    assert third["event"] == "idle" and not {"run", "rank", "step"} & set(third)


def test_a_line_of_another_thread_speaks_of_the_same_run(capsys: pytest.CaptureFixture[str]) -> None:
    """The exporter's thread tells of XIDs, a preparing thread of downloads."""
    configure(instance="i-1")
    bind(run="r", step=3)
    thread = threading.Thread(target=lambda: get_logger().error("xid", code=79))
    thread.start()
    thread.join()
    (line,) = lines(capsys.readouterr().out)
    assert (line["instance"], line["run"], line["step"]) == ("i-1", "r", 3)


def test_what_is_no_number_is_null_and_named(capsys: pytest.CaptureFixture[str]) -> None:
    """Log G55: NaN and Infinity are not JSON; a strict reader refuses the whole line."""
    configure()
    get_logger().info("step", loss=math.nan, rates=[1.0, math.inf], deep={"a": -math.inf})
    text = capsys.readouterr().out
    (line,) = lines(text)
    assert "NaN" not in text and "Infinity" not in text
    assert line["loss"] is None and line["rates"] == [1.0, None] and line["deep"] == {"a": None}
    assert line["non_finite"] == ["loss", "rates.1", "deep.a"]
    assert to_json({"a": 1.0}) == '{"a": 1.0}'


def test_a_secret_that_an_error_quotes_does_not_get_into_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure(instance="i-1")
    hide(Secrets({"HF_TOKEN": 'hf_"quoted"abc'}).redact)
    try:
        raise ValueError('bad token hf_"quoted"abc')
    except ValueError as error:
        get_logger().exception(
            "failed", reason=str(error), more=[{"url": 'https://x/?t=hf_"quoted"abc'}], error=error
        )
    text = capsys.readouterr().out
    (line,) = lines(text)
    assert "quoted" not in text and line["reason"] == "bad token [HF_TOKEN]"
    assert "[HF_TOKEN]" in line["exception"] and line["more"] == [{"url": "https://x/?t=[HF_TOKEN]"}]
    assert line["error"] == "bad token [HF_TOKEN]"  # an exception that is given as it is


def test_libraries_speak_in_the_same_form(capsys: pytest.CaptureFixture[str]) -> None:
    configure(stream="stderr", rank=1)
    capture_logging(logging.INFO)
    capture_logging(logging.INFO)  # once is enough
    logging.getLogger("botocore.retries").warning("retrying %d", 3)
    logging.getLogger("botocore.retries").debug("not this")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("old name", DeprecationWarning, stacklevel=1)
    captured = capsys.readouterr()
    first, second = lines(captured.err)
    assert captured.out == ""
    assert (first["event"], first["logger"], first["level"], first["rank"]) == (
        "retrying 3",
        "botocore.retries",
        "warning",
        1,
    )
    assert "old name" in second["event"]


def test_a_workers_lines_have_the_step_that_it_finished(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(stream="stderr", rank=0)
    events = EventLog(tmp_path / "events")
    events.write("step", step=4, loss=1.0)
    get_logger().info("here")
    (line,) = lines(capsys.readouterr().err)
    assert line["step"] == 4


def test_a_workers_log_says_which_rank_of_which_run_ended_and_why(trained: Bench) -> None:
    ranks = Ranks(trained, run_config("broken", model="no.such:model"), generation=3, world=1)
    (code,) = ranks.wait()
    found = [json.loads(line) for line in ranks.log.read_text().splitlines() if line.startswith("{")]
    ended = next(line for line in found if line["event"] == "worker ended")
    assert code == ended["code"] == Exit.CONFIGURATION
    assert (ended["run"], ended["generation"], ended["rank"], ended["level"]) == ("broken", 3, 0, "error")
    assert "no.such" in ended["reason"]


def test_a_worker_line_is_shown_in_words_with_its_trace_below() -> None:
    line = json.dumps(
        {"time": "T", "level": "error", "event": "worker ended", "run": "r", "rank": 1, "step": 7, "code": 70,
         "exception": "Traceback:\n  ValueError"}
    )  # fmt: skip
    assert log_line(line) == "T error rank 1 step 7: worker ended, code=70\nTraceback:\n  ValueError"
    for other in ("hello from the worker", '{"not": "ours"}', "[1]"):
        assert log_line(other) == other
