"""The lock files: every version pinned with hashes, one version of a package everywhere, no index named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from localcloud.toolchain.golang import TOOLS, pinned
from localcloud.toolchain.lock import PIN
from localcloud.toolchain.places import REQUIREMENTS, ROOT

NAMES = ("bootstrap", "go", "image", "program", "tests", "torch", "trainer")
LOCKS = [REQUIREMENTS / f"{name}.txt" for name in NAMES]


def pins(path: Path) -> list[Requirement]:
    return [Requirement(pin.strip()) for pin in PIN.findall(path.read_text())]


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_source_has_a_lock_and_every_lock_a_source():
    assert sorted(path.stem for path in REQUIREMENTS.glob("*.in")) == sorted(NAMES)
    assert sorted(path.stem for path in REQUIREMENTS.glob("*.txt")) == sorted(NAMES)


@pytest.mark.parametrize("path", LOCKS, ids=NAMES)
def test_every_package_is_pinned_with_hashes(path: Path):
    blocks = re.split(r"\n(?=[A-Za-z0-9])", path.read_text())[1:]
    assert len(blocks) == len(pins(path)) > 0
    for block in blocks:
        assert re.match(r"[A-Za-z0-9._-]+(\[[a-z0-9,-]+\])?==[^\s;]+", block), block.splitlines()[0]
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", block), block.splitlines()[0]


@pytest.mark.parametrize(
    "path", [*LOCKS, *REQUIREMENTS.glob("*.in"), ROOT / "requirements.txt"], ids=lambda path: path.name
)
def test_no_index_is_named(path: Path):
    text = path.read_text()
    assert "://" not in text
    assert not re.search(r"--(index-url|extra-index-url|find-links|trusted-host)", text)


@pytest.mark.parametrize("source", sorted(REQUIREMENTS.glob("*.in")), ids=lambda path: path.name)
def test_what_is_asked_for_is_locked_in_its_range(source: Path):
    locked = pins(source.with_suffix(".txt"))
    lines = [
        line.split(" #")[0] for line in source.read_text().splitlines() if line and not line.startswith("#")
    ]
    for asked in map(Requirement, lines):
        versions = [
            next(iter(pin.specifier)).version
            for pin in locked
            if canonical(pin.name) == canonical(asked.name)
        ]
        assert versions, f"{asked.name} is not locked: run `make lock`"
        assert all(asked.specifier.contains(version, prereleases=True) for version in versions)


def test_a_package_has_one_version_in_all_files():
    seen: dict[tuple[str, str], set[str]] = {}
    for path in LOCKS:
        for pin in pins(path):
            seen.setdefault((canonical(pin.name), str(pin.marker or "")), set()).add(str(pin.specifier))
    assert {name: versions for name, versions in seen.items() if len(versions) > 1} == {}


def test_the_program_needs_no_torch():
    for name in ("program", "trainer", "tests"):
        assert "torch" not in {canonical(pin.name) for pin in pins(REQUIREMENTS / f"{name}.txt")}


def test_go_tools_are_pinned_and_the_sdk_is_of_the_engine_s_version():
    assert pinned("github.com/pulumi/pulumi/sdk/v3") == pinned("github.com/pulumi/pulumi/pkg/v3")
    for module, package in TOOLS.values():
        assert re.search(rf"^(tool |\t){re.escape(package)}$", (module / "go.mod").read_text(), re.MULTILINE)
        assert (module / "go.sum").stat().st_size > 0
