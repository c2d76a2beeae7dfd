"""The commands that run books and operating.md tell a person at night: each is one that exists, spelt as it is."""

from __future__ import annotations

import re
import shlex
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from botocore import xform_name
from botocore.session import Session

from tests.unit.stack_files import ROOT

DOCUMENTS = ("runbooks.md", "operating.md", "cost.md", "storage.md", "security.md")
# The AWS CLI's own options, and those that it spells in its own way (SNS's endpoint).
CLI_OPTIONS = {"query", "region", "output", "max-items", "profile", "notification-endpoint"}
FOR_ALL = ("SETUP_SYSTEM", "GPU_TRAINING_NODES")  # variables of every target, which the tools read themselves
RUN_OPTIONS = {
    "start": {"scale"},
    "status": {"run"},
    "stop": {"run"},
    "resume": {"run"},
    "logs": {"run", "worker", "follow"},
}


def commands(program: str) -> list[tuple[str, str]]:
    """Document and command: what stands in backquotes or as an indented line."""
    found: list[tuple[str, str]] = []
    for name in DOCUMENTS:
        text = (ROOT / "docs" / name).read_text()
        code = re.findall(rf"`({program} [^`]+)`", text) + re.findall(
            rf"^    ({program} .+)$", text, re.MULTILINE
        )
        found += [(name, " ".join(command.partition("  #")[0].split())) for command in code]
    return found


@cache
def service(name: str) -> Any:
    return Session().get_service_model(name)


def options(words: list[str]) -> set[str]:
    return {word[2:].split("=")[0] for word in words if word.startswith("--")}


@pytest.mark.parametrize(("document", "command"), commands("aws"), ids=lambda value: value[:60])
def test_an_aws_command_is_an_operation_with_these_parameters(document: str, command: str) -> None:
    # Several lines in one block may each be a command; words in angle brackets stand for values.
    _, service_name, operation, *words = shlex.split(command)
    model = service({"s3api": "s3"}.get(service_name, service_name))
    by_cli_name = {xform_name(name, "-"): name for name in model.operation_names}
    assert operation in by_cli_name, f"{document}: {service_name} has no {operation}"
    shape = model.operation_model(by_cli_name[operation]).input_shape
    known = {xform_name(name, "-"): member for name, member in shape.members.items()}
    for option in options(words) - CLI_OPTIONS:
        flag = option.removeprefix("no-")
        boolean = flag in known and known[flag].type_name == "boolean"
        assert option in known or boolean, f"{document}: {operation} has no --{option}"


def test_there_are_aws_commands_to_be_tested() -> None:
    assert len(commands("aws")) > 20 and len(commands("make")) > 15 and len(commands("trainer")) > 8


@pytest.mark.parametrize(("document", "command"), commands("make"), ids=lambda value: value[:60])
def test_a_make_command_has_a_target_that_takes_these_variables(document: str, command: str) -> None:
    makefile = (ROOT / "Makefile").read_text()
    first = re.split(r" && | \|\| ", command)[0]
    _, target, *words = first.split()
    recipe = re.search(rf"^{re.escape(target)}:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    assert recipe, f"{document}: there is no `make {target}`"
    for word in words:
        name, separator, _ = word.partition("=")
        assert separator and f"$({name})" in recipe[1], f"{document}: make {target} takes no {word}"


def test_what_messages_tell_a_person_to_make_can_be_made() -> None:
    makefile = (ROOT / "Makefile").read_text()
    told: list[tuple[str, str]] = []
    for folder in ("components", "localcloud", "ops", "policies"):
        for path in (ROOT / folder).rglob("*.py"):
            told += re.findall(r"make ([a-z-]+)((?: [A-Z_]+=)?)", path.read_text().replace("\n", " "))
    variables = {
        (target, name.strip(" =")) for target, name in told if name.strip(" =") not in ("", *FOR_ALL)
    }
    assert ("down", "FORCE") in variables and len(variables) > 5
    for target, name in sorted(variables):
        recipe = re.search(rf"^{re.escape(target)}:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
        assert recipe and f"$({name})" in recipe[1], f"make {target} takes no {name}"


@pytest.mark.parametrize(("document", "command"), commands("trainer"), ids=lambda value: value[:60])
def test_a_trainer_command_is_one_with_these_options(document: str, command: str) -> None:
    from trainer.cli import main

    _, group, *rest = command.split()
    action = [rest[0]] if rest and not rest[0].startswith(("-", "<")) else []
    if group == "run" and action:
        assert options(rest) <= RUN_OPTIONS.get(action[0], set()) | {"set", "config", "nodes", "steps"}, (
            document
        )
        assert not [word for word in rest[1:] if word.startswith("<") and "--run" not in rest], document
    with pytest.raises(SystemExit) as end:
        main([group, *action, "--help"])
    assert end.value.code == 0, f"{document}: there is no `trainer {group} {' '.join(action)}`"


def test_every_link_leads_somewhere() -> None:
    for name in DOCUMENTS[:2]:
        text = (ROOT / "docs" / name).read_text()
        headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
        anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
        for target in re.findall(r"\]\(([^)]+)\)", text):
            path, _, anchor = target.partition("#")
            assert not path or (ROOT / "docs" / path).is_file(), f"{name}: {target}"
            assert path or anchor in anchors, f"{name}: {target}"


def test_the_ten_most_likely_pages_have_an_entry_with_look_do_and_why() -> None:
    text = (ROOT / "docs" / "runbooks.md").read_text()
    entries = dict(re.findall(r"^### (.+)\n((?:(?!^##).*\n)*)", text, re.MULTILINE))
    likely = {"node-missing", "self-check-failed", "launches-suspended", "spot-short", "idle", "run-failed"}
    likely |= {
        "budget-stop",
        "disk-full",
        "target-missing",
        "s3-denied",
        "capacity-block-end",
        "rollout-stuck",
    }
    assert likely <= entries.keys()
    for name in likely:
        for part in ("- Look: ", "- Do: ", "- Why: "):
            assert part in entries[name], f"{name} lacks {part}"


def test_make_shows_the_commands() -> None:
    shown = subprocess.run(["make"], cwd=Path(ROOT), capture_output=True, text=True, check=True).stdout
    for target in ("doctor", "pin-image", "status", "logs", "connect", "release"):
        assert f"make {target}" in shown
