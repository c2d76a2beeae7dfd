"""From the values of a stack's configuration to `Settings`, or to all faults at once. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from .faults import Fault, Path, SettingsError
from .model import Settings
from .rules import judge
from .shape import shape_faults, sound_part


def load(stack: str, namespace: Mapping[str, Any], already_found: Sequence[Fault] = ()) -> Settings:
    """Settings from the parsed values of the namespace `gpu-training`.

    Raises SettingsError with all faults at once: those already found, those of single values, and those that
    the sound values have together. What is no error, `advice` tells.
    """
    faults = list(already_found)
    given = {**namespace, "stack": stack}
    if "stack" in namespace:
        faults.append(Fault(("stack",), "unknown key", "remove it: the stack has its name without it"))
    settings: Settings
    try:
        # Keys as the files spell them; the Python names are for the code only.
        settings = Settings.model_validate(given, by_alias=True, by_name=False)
    except ValidationError as invalid:
        shape, broken = shape_faults(Settings, invalid.errors(include_url=False))
        faults += shape
        settings = sound_part(Settings, given, broken)
    faults += [fault for fault in judge(settings) if fault.level == "error"]
    if faults:
        raise SettingsError(stack, sorted(faults, key=_reading_order))
    return settings


def advice(settings: Settings) -> list[Fault]:
    """Warnings and information about settings without errors, and what was suppressed, for whoever deploys."""
    found = [fault for fault in judge(settings) if fault.level != "error"]
    found += [
        Fault(("suppressValidators", id_), "suppressed", reason, validator=id_, level="info")
        for id_, reason in settings.suppress_validators.items()
    ]
    return sorted(found, key=_reading_order)


def _reading_order(fault: Fault) -> tuple[int, list[tuple[int, str]]]:
    """The reference's order of the keys at the top, then places and names below them; unknown keys last."""
    order = [field.alias for field in Settings.model_fields.values()]
    top: Path = fault.path[:1]
    rank = order.index(str(top[0])) if top and top[0] in order else len(order)
    return rank, [(step, "") if isinstance(step, int) else (-1, step) for step in fault.path]
