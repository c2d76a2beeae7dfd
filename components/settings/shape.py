"""From pydantic's errors to faults that a person can act on, and the part of a broken configuration that is
sound.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from components.catalog import nearest

from .faults import Fault, Path
from .section import Section

KINDS = {
    "string_type": "text",
    "int_type": "a whole number, without quotes",
    "int_from_float": "a whole number",
    "float_type": "a number, without quotes",
    "bool_type": "true or false, without quotes",
    "list_type": "a list",
    "dict_type": "a map of keys and values",
    "model_type": "a map of keys and values",
}


def shape_faults(root: type[Section], errors: Collection[ErrorDetails]) -> tuple[list[Fault], set[Path]]:
    """Faults for pydantic's errors, and the paths whose values must not be judged any further.

    A misspelt key is one mistake: when its nearest match is a required key that is absent, the absence is not
    reported as well, and when it is an optional one, the default that stands in for it is not judged.
    """
    faults: list[Fault] = []
    broken: set[Path] = set()
    meant: set[Path] = set()
    for error in errors:
        path = error["loc"]
        broken.add(path)
        if error["type"] == "extra_forbidden":
            keys = _keys(_section_at(root, path[:-1]))
            close = nearest(str(path[-1]), keys)
            if close is not None:
                meant.add((*path[:-1], close))
            faults.append(Fault(path, "unknown key", f"known here: {', '.join(keys)}", close))
        else:
            faults.append(_value_fault(root, error))
    missing = {error["loc"] for error in errors if error["type"] == "missing"}
    return [f for f in faults if f.path not in meant & missing], broken | meant


def sound_part(
    section: type[Section], given: Mapping[str, Any], broken: Collection[Path], at: Path = ()
) -> Any:
    """The section without its broken fields: reading one of those raises BrokenField.

    Sections below are treated the same way; lists of sections keep their length, so that places in them stay
    true.
    """
    values: dict[str, Any] = {}
    for name, field in section.model_fields.items():
        key = field.alias or name
        path = (*at, key)
        inner = _section_of(field)
        if key not in given:
            if not field.is_required() and path not in broken:
                values[name] = field.get_default(call_default_factory=True)
        elif inner is not None and not _is_list(field) and isinstance(given[key], Mapping):
            values[name] = sound_part(inner, given[key], broken, path)
        elif inner is not None and _is_list(field) and path not in broken:
            values[name] = [
                sound_part(inner, item if isinstance(item, Mapping) else {}, broken, (*path, place))
                for place, item in enumerate(given[key])
            ]
        elif not any(bad[: len(path)] == path for bad in broken):
            values[name] = given[key]
    given_fields = {name for name, field in section.model_fields.items() if (field.alias or name) in given}
    part = section.model_construct(_fields_set=given_fields, **values)
    for name in section.model_fields.keys() & vars(part).keys() - values.keys():
        object.__delattr__(part, name)  # model_construct put its default there
    return part


def _value_fault(root: type[Section], error: ErrorDetails) -> Fault:
    path, kind, context = error["loc"], error["type"], error.get("ctx", {})
    field = _field_at(root, path)
    secret = field is not None and not field.repr
    got = "the value" if secret else _shown(error["input"])
    example = f", for example {_shown(field.examples[0])}" if field is not None and field.examples else ""
    if kind == "missing":
        return Fault(path, "missing", f"add it: {field.description}{example}" if field else "add it")
    if kind in KINDS:
        return Fault(path, f"{got} has the wrong type", f"write {KINDS[kind]}{example}")
    if kind == "literal_error" and field is not None:
        choices = [str(choice) for choice in get_args(field.annotation)]
        if isinstance(error["input"], bool):  # YAML reads a bare on or off as one
            return Fault(path, f"{got} is a boolean", f"write one of {', '.join(choices)}, in quotes")
        return Fault(
            path, f"{got} is not known", f"one of {', '.join(choices)}", nearest(str(error["input"]), choices)
        )
    if kind == "string_pattern_mismatch":
        return Fault(path, f"{got} has the wrong form", f"it must match {context['pattern']}{example}")
    if kind in ("too_short", "string_too_short"):
        return Fault(path, "empty", f"give at least {context['min_length']}{example}")
    return Fault(path, f"{got} is out of range", error["msg"].replace("Input should be", "must be"))


def _shown(value: object) -> str:
    text = f"'{value}'" if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _keys(section: type[BaseModel] | None) -> list[str]:
    if section is None:
        return []
    return [field.alias or name for name, field in section.model_fields.items() if name != "stack"]


def _section_of(field: FieldInfo) -> type[Section] | None:
    """The section that a field holds, be it one or a list of them."""
    candidates = get_args(field.annotation) or (field.annotation,)  # of a list, or of "one or absent"
    return next((c for c in candidates if isinstance(c, type) and issubclass(c, Section)), None)


def _is_list(field: FieldInfo) -> bool:
    return get_origin(field.annotation) is list


def _field_at(root: type[Section], path: Path) -> FieldInfo | None:
    """The field at a path, or None; for an item of a plain list or map this is the field that holds it."""
    section: type[Section] | None = root
    field: FieldInfo | None = None
    for step in path:
        if isinstance(step, int) or section is None:
            continue
        field = next((f for name, f in section.model_fields.items() if (f.alias or name) == step), None)
        section = _section_of(field) if field is not None else None
    return field


def _section_at(root: type[Section], path: Path) -> type[Section] | None:
    field = _field_at(root, path)
    return root if field is None else _section_of(field)
