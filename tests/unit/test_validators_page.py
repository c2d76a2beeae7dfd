"""docs/validators.md is what the validators say of themselves, and each says something."""

from __future__ import annotations

import subprocess
import sys

from components.settings.rules import validators
from tests.unit.stack_files import ROOT


def test_the_page_is_up_to_date() -> None:
    command = [sys.executable, "-m", "components.settings.validators"]
    written = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    page = (ROOT / "docs" / "validators.md").read_text("utf-8")
    assert page == written, "run: python -m components.settings.validators > docs/validators.md"


def test_every_validator_says_what_it_is_about() -> None:
    assert [id_ for id_, _, text in validators() if not text] == []


def test_no_two_validators_have_one_id() -> None:
    ids = [id_ for id_, _, _ in validators()]
    assert len(set(ids)) == len(ids)
