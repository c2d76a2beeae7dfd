"""The edge to Pulumi: reads the whole project namespace as the engine sent it, unknown keys included."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from components.catalog import nearest

from .faults import NAMESPACE, Fault, SettingsError
from .load import advice, load
from .model import Settings


def from_pulumi() -> Settings:
    """The settings of the stack that is being deployed.

    Raises pulumi.RunError, which is printed without a Python trace, before any resource is registered.
    """
    # Imported here, so that everything else in this package works where Pulumi is not installed.
    import pulumi
    from pulumi.runtime.config import CONFIG, get_config_env

    # pulumi.Config reads keys that one already knows; a misspelt key shows only in the whole map.
    values, faults = parse({**get_config_env(), **CONFIG.get()})
    try:
        settings = load(pulumi.get_stack(), values, faults)
    except SettingsError as error:
        raise pulumi.RunError(str(error)) from None
    for finding in advice(settings):
        (pulumi.warn if finding.level == "warning" else pulumi.info)(finding.told)
    return settings


def parse(config: Mapping[str, str]) -> tuple[dict[str, Any], list[Fault]]:
    """Our namespace's values out of the engine's flat map of ``namespace:key`` to text.

    The engine sends lists and maps as JSON and everything else as it is written. A namespace that is nearly
    ours would be ignored by everybody, and is a fault.
    """
    values: dict[str, Any] = {}
    faults: list[Fault] = []
    for full_key, text in config.items():
        namespace, _, key = full_key.partition(":")
        if namespace == NAMESPACE and text:  # empty is how Pulumi.yaml says that a text is absent
            values[key] = _parsed(text)
        elif namespace != NAMESPACE and nearest(namespace, [NAMESPACE]) is not None:
            faults.append(Fault((key,), f"set as '{full_key}', which nobody reads", "correct the namespace"))
    return values, faults


def _parsed(text: str) -> Any:
    """Lists and maps; other text stays text, since a name or a prefix is text even where it looks like a
    number.
    """
    if text[:1] not in ("[", "{"):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text  # the model says what it should have been
