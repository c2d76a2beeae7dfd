"""How a command ends: its exit codes, and a refusal as one line."""

from __future__ import annotations

EXIT_OK = 0
EXIT_FINDINGS = 1  # what was asked for was found wanting, or failed
EXIT_USAGE = 2  # the command, the configuration or a missing tool
EXIT_NO_CREDENTIALS = 3
EXIT_INTERRUPTED = 130


class Refused(Exception):
    """What a person must know; `code` is the command's exit code."""

    def __init__(self, text: str, code: int = EXIT_USAGE) -> None:
        super().__init__(text)
        self.code = code
