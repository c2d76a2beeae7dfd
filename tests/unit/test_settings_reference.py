"""docs/configuration.md is what the models say."""

from __future__ import annotations

from components.settings.reference import reference
from tests.unit.stack_files import ROOT


def test_the_reference_is_up_to_date() -> None:
    written = (ROOT / "docs" / "configuration.md").read_text("utf-8")
    assert written == reference(), "run: python -m components.settings.reference > docs/configuration.md"


def test_the_reference_tells_type_limit_default_and_meaning() -> None:
    lines = reference().splitlines()
    assert (
        "| `spotPercent` | whole number; at least 0, at most 100 | `0` | "
        "Share of the nodes above `onDemandBase` that is bought as spot, in %. |"
    ) in lines
    assert "## `gpu-training:gpuGroups[].purchase`" in lines
    assert any(line.startswith("| `region` |") and "**required**" in line for line in lines)
