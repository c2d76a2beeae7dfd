"""Long work tells how far it is: in a log a line now and then, and none for work that is soon over."""

from __future__ import annotations

import pytest

from trainer import progress


def test_a_log_gets_a_line_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    with progress.progress("syncing shapes@v1", "bytes") as show:
        for second in range(26):
            now = float(second)
            show(second * 1_000_000, 40_000_000)
    assert capsys.readouterr().err.splitlines() == [
        "syncing shapes@v1: 25 %, 10 of 40 MB",
        "syncing shapes@v1: 50 %, 20 of 40 MB",
    ]


def test_a_terminal_gets_a_bar(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress.sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TTY_COMPATIBLE", "1")  # what rich takes for a terminal
    with progress.progress("importing cats", "files") as show:
        show(3, 4)
    assert "importing cats" in capsys.readouterr().err


def test_machines_that_read_json_get_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", 0)
    with progress.progress("x", "files", quiet=True) as show:
        show(1, 2)
    assert capsys.readouterr().err == ""
