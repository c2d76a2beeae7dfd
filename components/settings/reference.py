"""The reference of all keys, as Markdown, from the models: `python -m components.settings.reference`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, get_args, get_origin

from annotated_types import Ge, Gt, Le, MaxLen, MinLen
from pydantic.fields import FieldInfo

from components.catalog import IMAGE_PROFILES, INSTANCE_TYPES

from .model import Settings
from .section import Section

HEAD = """# Configuration

The keys of a stack file `Pulumi.<stack>.yaml`, all in the namespace `gpu-training`. A preview reports every fault of
the file at once, before any resource: unknown keys with their nearest match, wrong types, wrong values, and values
that contradict each other. `make preview STACK=<stack>` shows them without any credentials.

This page is written by `python -m components.settings.reference` from the models in `components/settings/model.py`.
"""


def reference() -> str:
    """The whole page."""
    parts = [HEAD, *_section("gpu-training", Settings), "## What the catalog knows\n"]
    parts.append("`make catalog` shows the instance types with prices, by need.\n")
    parts.append("| instance type | GPUs | GB each | EFA interfaces | facts as of |\n|---|---|--:|--:|---|")
    for type_ in INSTANCE_TYPES.values():
        gpu = f"{type_.gpu.text} | {type_.gpu.memory_label_gb}"
        parts.append(f"| `{type_.name}` | {gpu} | {type_.max_efa_interfaces} | {type_.as_of} |")
    parts.append(
        "\n| image profile | what it is | families | torch | not verified by any document |\n|---|---|---|---|---|"
    )
    for profile in IMAGE_PROFILES.values():
        torch = "release artifact" if profile.torch_is_artifact else "on the image"
        unverified = "; ".join(profile.unverified)
        families = "all" if "*" in profile.families else ", ".join(profile.families)
        parts.append(f"| `{profile.name}` | {profile.description} | {families} | {torch} | {unverified} |")
    return "\n".join(parts) + "\n"


def _section(path: str, section: type[Section]) -> Iterator[str]:
    yield f"## `{path}`\n\n{section.__doc__}\n\n| key | type | default | what it is |\n|---|---|---|---|"
    below: list[tuple[str, type[Section]]] = []
    for name, field in section.model_fields.items():
        if section is Settings and name == "stack":
            continue  # the stack's own name, not a key
        key = field.alias or name
        yield f"| `{key}` | {_type(field)} | {_default(field)} | {field.description} |"
        inner = _sections_in(field.annotation)
        mark = "[]" if get_origin(field.annotation) is list else ""
        below += [
            (f"{path}:{key}{mark}" if section is Settings else f"{path}.{key}{mark}", one) for one in inner
        ]
    yield ""
    for inner_path, inner in below:
        yield from _section(inner_path, inner)


def _sections_in(annotation: Any) -> list[type[Section]]:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return [annotation]
    return [inner for argument in get_args(annotation) for inner in _sections_in(argument)]


def _type(field: FieldInfo) -> str:
    return _name_of(field.annotation) + _limits(field)


def _name_of(annotation: Any) -> str:
    if _sections_in(annotation):
        return "list of maps" if get_origin(annotation) is list else "map"
    arguments = [argument for argument in get_args(annotation) if argument is not type(None)]
    if get_origin(annotation) is list:
        return "list of texts"
    if get_origin(annotation) is dict:
        return f"map of {_name_of(arguments[1])} by name"
    if arguments and all(isinstance(argument, str) for argument in arguments):
        return ", ".join(f"`{argument}`" for argument in arguments)
    if arguments:
        return _name_of(arguments[0])
    return {str: "text", int: "whole number", float: "number", bool: "`true`, `false`"}[annotation]


def _limits(field: FieldInfo) -> str:
    words: list[str] = []
    for limit in field.metadata:
        if isinstance(limit, Ge):
            words.append(f"at least {limit.ge}")
        elif isinstance(limit, Gt):
            words.append(f"above {limit.gt}")
        elif isinstance(limit, Le):
            words.append(f"at most {limit.le}")
        elif isinstance(limit, MinLen):
            words.append("not empty")
        elif isinstance(limit, MaxLen):
            words.append(f"at most {limit.max_length}")
        elif getattr(limit, "pattern", None):
            # A bar would end the table's cell.
            words.append("`" + str(limit.pattern).replace("|", "\\|") + "`")
    return f"; {', '.join(words)}" if words else ""


def _default(field: FieldInfo) -> str:
    if field.is_required():
        example = f", such as `{json.dumps(field.examples[0])}`" if field.examples else ""
        return f"**required**{example}"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, Section):
        return "see below"
    return "absent" if value is None else f"`{json.dumps(value)}`"


if __name__ == "__main__":
    print(reference(), end="")
