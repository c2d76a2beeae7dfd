"""What all contract documents have in common."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

D = TypeVar("D", bound="Document")


class Document(BaseModel):
    """A frozen model whose JSON has camelCase keys and no unknown ones."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True, allow_inf_nan=False
    )

    def to_json(self) -> str:
        """Canonical text: sorted keys, no spaces, a final newline; equal documents have equal bytes."""
        import json

        data = self.model_dump(mode="json", by_alias=True, exclude_none=True)
        return json.dumps(data, sort_keys=True, separators=(",", ":")) + "\n"

    @classmethod
    def from_json(cls: type[D], text: str | bytes) -> D:
        """Parse and validate; raises pydantic.ValidationError."""
        return cls.model_validate_json(text)


class ProgramDocument(Document):
    """What the infrastructure program writes and a trainer of another release may read: unknown keys are ignored.

    A stack can be rolled back to an older trainer, whose nodes then read documents of today's program. Within one
    schema version the program only adds keys, and only such as a node may leave aside; a change that an older reader
    must not overlook raises the schema version, which it refuses.
    """

    model_config = ConfigDict(extra="ignore")


class NodesDocument(Document):
    """What nodes write about a run, and nodes of another release go on from after a roll-back: unknown keys are
    ignored.

    Members of different releases never train together, so that nothing of a running world is overlooked.
    """

    model_config = ConfigDict(extra="ignore")
