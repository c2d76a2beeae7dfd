"""Writing pinned images into a stack file: nothing else of its text changes, comments and layout included. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import yaml

from components.settings.faults import NAMESPACE
from components.settings.group_model import PinnedImage

from .stack_file import Yaml12


class CannotEdit(Exception):
    """One line: why the text was left alone."""


def pin(text: str, pins: Mapping[str, PinnedImage]) -> str:
    """The text with `image.pinned` of each group named. Raises CannotEdit where a group or its image is not there as
    a mapping of its own, and where the result would say anything else than was meant.
    """
    edits: dict[
        int, tuple[int, str]
    ] = {}  # start -> end and replacement; groups may share a node by an anchor
    newline = "\r\n" if "\r\n" in text else "\n"
    for group, pinned in pins.items():
        for start, end, replacement in _edits(text, _image_of(text, group), pinned, newline):
            if edits.setdefault(start, (end, replacement)) != (end, replacement):
                raise CannotEdit(f"group '{group}' shares its image with another group that has another one")
    edited = text
    for start, (end, replacement) in sorted(edits.items(), reverse=True):
        edited = edited[:start] + replacement + edited[end:]
    _assert_only_pins_changed(text, edited, pins)
    return edited


def _edits(
    text: str, image: yaml.MappingNode, pinned: PinnedImage, newline: str
) -> list[tuple[int, int, str]]:
    values = {"amiId": pinned.ami_id, "name": json.dumps(pinned.name), "date": json.dumps(pinned.date)}
    flow = "{" + ", ".join(f"{key}: {value}" for key, value in values.items()) + "}"
    held = _get(image, "pinned")
    if isinstance(held, yaml.MappingNode) and {key.value for key, _ in held.value} == values.keys():
        # Value by value, so that comments between them stay.
        return [
            (value.start_mark.index, value.end_mark.index, values[key.value])
            for key, value in held.value
            if value.value != yaml.safe_load(values[key.value])
        ]
    if held is not None:
        return [(held.start_mark.index, held.end_mark.index, flow)]
    parameter = _get(image, "ssmParameter")
    if parameter is None:
        raise CannotEdit("the image has no ssmParameter")
    end = parameter.end_mark.index
    if image.flow_style:
        return [(end, end, f", pinned: {flow}")]
    # Below the parameter's line, behind a comment that may end it.
    line_end = text.find("\n", end)
    at = len(text) if line_end < 0 else line_end + 1
    indent = " " * image.value[0][0].start_mark.column
    lines = [f"{indent}pinned:", *(f"{indent}  {key}: {value}" for key, value in values.items())]
    block = newline.join(lines)
    return [(at, at, block + newline if line_end >= 0 else newline + block)]


def _image_of(text: str, group: str) -> yaml.MappingNode:
    try:
        root = yaml.compose(text, Loader=Yaml12)
    except yaml.YAMLError as error:
        raise CannotEdit(f"it is no YAML: {' '.join(str(error).split())}") from None
    groups = _get(_get(root, "config"), f"{NAMESPACE}:gpuGroups")
    for item in groups.value if isinstance(groups, yaml.SequenceNode) else []:
        name, image = _get(item, "name"), _get(item, "image")
        if name is not None and name.value == group and isinstance(image, yaml.MappingNode):
            return image
    raise CannotEdit(f"group '{group}' has no image of its own in the text")


def _get(node: yaml.Node | None, key: str) -> yaml.Node | None:
    if not isinstance(node, yaml.MappingNode):
        return None
    return next((value for name, value in node.value if name.value == key), None)


def _assert_only_pins_changed(before: str, after: str, pins: Mapping[str, PinnedImage]) -> None:
    try:
        old, new = _without_pins(before), _without_pins(after)
    except yaml.YAMLError as error:
        raise CannotEdit(f"the edited text would be no YAML: {' '.join(str(error).split())}") from None
    if old[0] != new[0]:
        raise CannotEdit("the edited text would say something else as well")
    for group, pinned in pins.items():
        meant = {"amiId": pinned.ami_id, "name": pinned.name, "date": pinned.date}
        if new[1].get(group) != meant:
            raise CannotEdit(f"the edited text would not pin group '{group}' to {pinned.ami_id}")


def _without_pins(text: str) -> tuple[Any, dict[str, Any]]:
    """The document without pinned images, and those by group."""
    document, pins = yaml.load(text, Yaml12), {}  # noqa: S506  a SafeLoader of ours
    for group in document["config"][f"{NAMESPACE}:gpuGroups"]:
        image = group.get("image")
        if isinstance(image, dict) and "pinned" in image:
            group["image"] = {key: value for key, value in image.items() if key != "pinned"}
            pins[group["name"]] = image["pinned"]
    return document, pins
