"""Pulumi's property trees as the parameters of an AWS call, driven by botocore's own model of that call.

Pulumi spells a parameter in lower camel case and in the plural where it holds a list; the API has its own
case. Keys are matched without regard to case and to a final "s"; what differs more is named in `rename`, by
dotted path. A property that has no place in the call is an error: nothing is dropped in silence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from botocore.model import ListShape, Shape, StructureShape

from ..values import Tree

Rename = Mapping[str, str | None]  # dotted property path -> API member, or None: not part of this call


def parameters(
    client: Any, operation: str, tree: Mapping[str, Tree], rename: Rename | None = None
) -> dict[str, Any]:
    """The call's parameters. Raises ValueError for a property the call does not have."""
    shape = client.meta.service_model.operation_model(operation).input_shape
    return _structure(shape, tree, rename or {}, ())


def _structure(
    shape: StructureShape, tree: Mapping[str, Tree], rename: Rename, path: tuple[str, ...]
) -> dict[str, Any]:
    shapes = cast("dict[str, Shape]", shape.members)
    members = {_loose(name): name for name in shapes}
    result: dict[str, Any] = {}
    for key, value in tree.items():
        here = (*path, key)
        target = rename.get(".".join(here), key)
        if value is None or target is None:
            continue
        member = members.get(_loose(target))
        if member is None:
            raise ValueError(f"property {'.'.join(here)} has no place in {shape.name}")
        result[member] = _value(shapes[member], value, rename, here)
    return result


def _loose(name: str) -> str:
    return name.lower().removesuffix("s")


def _value(shape: Shape, value: Tree, rename: Rename, path: tuple[str, ...]) -> Any:
    if isinstance(shape, StructureShape):
        # A list block of at most one entry is a single structure in the API.
        return _structure(shape, value[0] if isinstance(value, list) else value, rename, path)
    kind = shape.type_name
    if kind == "list":
        element: Any = cast(ListShape, shape).member
        if isinstance(value, Mapping) and (named := _pair_names(element)):
            label, text = named
            return [{label: str(key), text: str(item)} for key, item in sorted(value.items())]
        return [
            _value(element, item, rename, path) for item in (value if isinstance(value, list) else [value])
        ]
    if kind == "map":
        return {str(key): str(item) for key, item in value.items()}
    if kind == "boolean":
        return value.lower() == "true" if isinstance(value, str) else bool(value)
    if kind in ("integer", "long"):
        return int(value)
    if kind in ("float", "double"):
        return float(value)
    if kind == "string":
        return str(value).lower() if isinstance(value, bool) else str(value)
    return value


def _pair_names(element: Any) -> tuple[str, str] | None:
    """How the API names key and value where it has a list of pairs instead of a mapping; None: it has no pairs."""
    names = {name.lower(): name for name in element.members}
    label = names.get("key") or names.get("name")
    return (label, names["value"]) if label and len(names) == 2 and "value" in names else None
