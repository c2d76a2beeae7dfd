"""What all sections of the configuration have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

NAME = r"^[a-z][a-z0-9-]{0,30}$"


class BrokenField(AttributeError):
    """A field was read that is absent because its value in the configuration is at fault."""


class Section(BaseModel):
    """Strict: "3" is no number and unknown keys are faults."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        alias_generator=to_camel,
        populate_by_name=True,
        allow_inf_nan=False,
    )

    if not TYPE_CHECKING:  # for the type checker every field is there

        def __getattr__(self, name: str) -> Any:
            """Called for absent attributes only."""
            if name in type(self).model_fields:
                raise BrokenField(f"{type(self).__name__}.{name} has no sound value")
            return super().__getattr__(name)
