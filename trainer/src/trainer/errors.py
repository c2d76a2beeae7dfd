"""The one exception for people: a line that says what is wrong, where and what to do, with its exit code."""

from __future__ import annotations

from .exit_codes import Exit


class TrainerError(Exception):
    """A fault with a named exit code; ``trainer`` prints its line without a stack trace."""

    def __init__(self, code: Exit, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
