"""The backend that keeps everything as declared: values from the forms, nothing made anywhere."""

from __future__ import annotations

from collections.abc import Mapping

from .kinds import Maker
from .values import Tree


class Declared:
    """Creates by filling forms; an update keeps the id and what the cloud gave."""

    def create(self, maker: Maker) -> tuple[str, dict[str, Tree]]:
        made = maker.with_id(str(maker.value(maker.kind.id)))
        return made.id, made.created({})

    def update(
        self, maker: Maker, old: Mapping[str, Tree], old_inputs: Mapping[str, Tree]
    ) -> dict[str, Tree]:
        return maker.updated(old, old_inputs, {})

    def delete(self, maker: Maker, outputs: Mapping[str, Tree]) -> None:
        return None

    def exists(self, maker: Maker, outputs: Mapping[str, Tree]) -> bool:
        return True
