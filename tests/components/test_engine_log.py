"""The program keeps the SDK's debug messages to itself, unless somebody asks for them."""

from __future__ import annotations

import pulumi.log
import pytest

from components.engine_log import DEBUG_VARIABLE, SDK_DEBUG, without_debug_messages


@pytest.fixture(autouse=True)
def as_the_sdk_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever ran the program before has taken its debug messages away."""
    monkeypatch.setattr(pulumi.log, "debug", SDK_DEBUG)


def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a debug and an info message make the SDK send to the engine."""
    messages: list[str] = []
    monkeypatch.setattr(pulumi.log, "get_engine", object)
    monkeypatch.setattr(pulumi.log, "_log", lambda engine, severity, message, *rest: messages.append(message))
    pulumi.log.debug("a detail")
    pulumi.log.info("a line for people")
    return messages


def test_debug_messages_are_not_sent_and_others_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(DEBUG_VARIABLE, raising=False)
    assert sent(monkeypatch) == ["a detail", "a line for people"], "the SDK sends both by itself"
    without_debug_messages()
    assert sent(monkeypatch) == ["a line for people"]


def test_who_debugs_the_program_gets_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DEBUG_VARIABLE, "1")
    without_debug_messages()
    assert sent(monkeypatch) == ["a detail", "a line for people"]
