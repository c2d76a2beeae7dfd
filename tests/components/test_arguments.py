"""Every argument of every component is documented, and a number's name says what it counts."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.components.kit import ROOT

# What a number may be called after: its unit, or the thing that it counts.
UNITS = ("_days", "_seconds", "_gib", "_port", "_nodes", "_percent", "_usd_per_hour", "_count")


def arguments_classes() -> list[tuple[str, ast.ClassDef]]:
    found = []
    for path in sorted((ROOT / "components").rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        found += [
            (f"{path.relative_to(ROOT)}:{node.name}", node)
            for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef) and node.name.endswith("Args")
        ]
    return found


def fields(node: ast.ClassDef) -> list[tuple[str, str, str | None]]:
    """Name, annotation and docstring of each field."""
    described = []
    for place, statement in enumerate(node.body):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            after = node.body[place + 1] if place + 1 < len(node.body) else None
            text = (
                after.value.value
                if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
                else None
            )
            described.append((statement.target.id, ast.unparse(statement.annotation), text))
    return described


CLASSES = arguments_classes()


def test_there_are_components_to_look_at() -> None:
    assert {"NetworkArgs", "SecureBucketArgs", "GpuGroupArgs", "NodeRoleArgs", "MonitoringArgs"} <= {
        node.name for _, node in CLASSES
    }


@pytest.mark.parametrize(("where", "node"), CLASSES, ids=[where for where, _ in CLASSES])
class TestTheArgumentsOf:
    def test_are_documented(self, where: str, node: ast.ClassDef) -> None:
        assert ast.get_docstring(node)
        assert not [name for name, _, text in fields(node) if not text or len(text) < 15]

    def test_tell_what_absence_means(self, where: str, node: ast.ClassDef) -> None:
        optional = [
            (name, text)
            for name, annotation, text in fields(node)
            if "None" in annotation or "Optional" in annotation
        ]
        assert not [name for name, text in optional if "None:" not in (text or "")]

    def test_have_units_in_the_names_of_numbers(self, where: str, node: ast.ClassDef) -> None:
        numbers = [
            name
            for name, annotation, _ in fields(node)
            if annotation.startswith(("int", "float", "Optional[int"))
        ]
        assert not [name for name in numbers if not name.endswith(UNITS)]


def test_a_component_neither_reads_the_configuration_nor_calls_aws() -> None:
    """What a component needs is handed to it; it looks nothing up by itself."""
    forbidden = ("pulumi.Config(", "StackReference", "import boto3", "from boto3", "import budget_stop")
    shipped = ROOT / "components" / "cost" / "budget_stop.py"  # the text of a function that runs in Lambda
    for path in {*(ROOT / "components").rglob("*.py")} - {shipped}:
        text = Path(path).read_text("utf-8")
        assert not [word for word in forbidden if word in text], path


def test_components_and_trainer_import_nothing_of_each_other() -> None:
    for folder, other in (("components", "trainer"), ("trainer/src", "components")):
        for path in (ROOT / folder).rglob("*.py"):
            tree = ast.parse(path.read_text("utf-8"))
            imported = {
                n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.level == 0
            }
            imported |= {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
            assert not [name for name in imported if name.split(".")[0] == other], path
