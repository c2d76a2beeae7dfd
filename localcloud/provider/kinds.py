"""What the stand-in knows about a resource kind, and the values it gives to what only a cloud would know.

A `Kind` is data: which properties exist only as outputs, which inputs AWS fills when they are absent, which
changes force a replacement. Values are *forms*: a string is a template over the fields below, any other value
is taken as it is. The same URN and inputs always give the same values.

Fields of a form: `{id}`, `{name}` (the kind's name property), `{logical}` (last part of the URN), `{region}`,
`{account}`, `{partition}`, `{dns}`, `{hex7}`, `{hex8}`, `{hex17}`, `{hex32}`, `{uuid}` (from a hash) and
`{in[property]}` (an input; empty where absent).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from .values import UNKNOWN, Asset, Tree, reveal

Form = Any


@dataclass(frozen=True)
class Kind:
    """One resource type; `held`: local mode makes it in the AWS emulation, or keeps it as declared."""

    type: str
    id: Form
    outputs: Mapping[str, Form] = field(default_factory=dict)  # never an input; unknown until created
    filled: Mapping[str, Form] = field(default_factory=dict)  # inputs that AWS fills when absent
    replace: frozenset[str] = frozenset()  # property paths whose change forces a new resource
    exclusive: frozenset[str] = frozenset()  # adding or removing one of these forces a new resource
    moves: Mapping[str, frozenset[str]] = field(default_factory=dict)  # output -> changes that leave it alone
    moves_only_with: Mapping[str, str] = field(default_factory=dict)  # output -> input that must be true
    name: str | None = None  # the unique property; given by the program it means delete-before-replace
    held: Literal["realised", "declared"] = "declared"
    regional: bool = True  # has a `region` property that the provider's own region fills
    taggable: bool = False  # has `tags`, and `tagsAll` as output
    auto_name: str = "{logical}-{hex7}"

    def forces_replacement(self, path: str, change: Literal["add", "delete", "update"]) -> bool:
        """Whether the change at `path` (as in `subnets[0].id`) needs a new resource."""
        if change != "update" and path in self.exclusive:
            return True
        return any(path == rule or path.startswith((rule + ".", rule + "[")) for rule in self.replace)

    def moved(self, changed: frozenset[str], inputs: Mapping[str, Tree]) -> frozenset[str]:
        """The outputs that an update of these properties changes too."""
        return frozenset(
            output
            for output, harmless in self.moves.items()
            if changed - harmless
            and inputs.get(output) is None
            and (output not in self.moves_only_with or reveal(inputs.get(self.moves_only_with[output])))
        )


@dataclass(frozen=True)
class Place:
    """Where the provider works: what the account and region dependent forms are made of."""

    region: str
    account: str
    default_tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def partition(self) -> str:
        if self.region.startswith("cn-"):
            return "aws-cn"
        return "aws-us-gov" if self.region.startswith("us-gov-") else "aws"

    @property
    def dns(self) -> str:
        return "amazonaws.com.cn" if self.partition == "aws-cn" else "amazonaws.com"


class _Inputs(dict[str, Tree]):
    def __missing__(self, key: str) -> str:
        return ""


def digest(urn: str, inputs: Tree) -> str:
    """Hex digest of a URN and its inputs (secrets included, one way)."""

    def plain(value: Tree) -> Tree:
        return value.fields.get("hash", "") if isinstance(value, Asset) else str(value)

    text = json.dumps([urn, reveal(inputs)], sort_keys=True, default=plain)
    return hashlib.sha256(text.encode()).hexdigest()


def logical_name(urn: str) -> str:
    return urn.rsplit("::", 1)[-1]


def stack_of(urn: str) -> str:
    """The stack in `urn:pulumi:<stack>::<project>::<type>::<name>`."""
    return urn.split("::", 1)[0].rsplit(":", 1)[-1]


@dataclass(frozen=True)
class Maker:
    """Fills a kind's forms for one resource."""

    kind: Kind
    urn: str
    inputs: Mapping[str, Tree]
    place: Place
    id: str = ""

    def with_id(self, identifier: str) -> Maker:
        return replace(self, id=identifier)

    @property
    def name(self) -> str:
        """The unique name: the program's, else its prefix with a hash, else an automatic one."""
        given = self.kind.name and reveal(self.inputs.get(self.kind.name))
        if isinstance(given, str):
            return given
        for prefix_property in ("namePrefix", "bucketPrefix"):
            prefix = reveal(self.inputs.get(prefix_property))
            if isinstance(prefix, str):
                return prefix + digest(self.urn, self.inputs)[:26]
        return self._format(self.kind.auto_name, name="")

    def value(self, form: Form) -> Tree:
        return self._format(form, self.name) if isinstance(form, str) else form

    def _format(self, form: str, name: str) -> str:
        hexes = digest(self.urn, self.inputs)
        uuid = f"{hexes[:8]}-{hexes[8:12]}-4{hexes[13:16]}-a{hexes[17:20]}-{hexes[20:32]}"
        return form.format_map(
            {
                "id": self.id,
                "name": name,
                "logical": logical_name(self.urn),
                "region": self.region,
                "account": self.place.account,
                "partition": self.place.partition,
                "dns": self.place.dns,
                "uuid": uuid,
                "in": _Inputs(reveal(dict(self.inputs))),
                **{f"hex{size}": hexes[:size] for size in (7, 8, 17, 32)},
            }
        )

    @property
    def region(self) -> str:
        given = reveal(self.inputs.get("region"))
        return given if isinstance(given, str) else self.place.region

    def known(self) -> dict[str, Tree]:
        """What is known even at preview: the inputs, the region and all tags."""
        state = {key: value for key, value in self.inputs.items() if value is not None}
        if self.kind.regional:
            state.setdefault("region", self.place.region)
        if self.kind.taggable:
            own = reveal(state.get("tags"))
            state["tagsAll"] = UNKNOWN if own is UNKNOWN else {**self.place.default_tags, **(own or {})}
        return state

    def preview(self) -> dict[str, Tree]:
        """State at preview of a creation: everything that only the cloud gives is unknown."""
        unknown = dict.fromkeys((*self.kind.outputs, *self.kind.filled), UNKNOWN)
        return {**unknown, **self.known()}

    def updated(
        self, old: Mapping[str, Tree], old_inputs: Mapping[str, Tree], real: Mapping[str, Tree]
    ) -> dict[str, Tree]:
        """State after an update: the old one, without the inputs that were taken away, with the new ones."""
        dropped = {key for key in old_inputs if key not in self.inputs and key not in self.kind.filled}
        kept = {key: value for key, value in old.items() if key not in dropped}
        return {**kept, **self.known(), **real}

    def created(self, real: Mapping[str, Tree]) -> dict[str, Tree]:
        """State after creation; `real` are values read back from the AWS emulation and win over forms."""
        made = {key: self.value(form) for key, form in {**self.kind.filled, **self.kind.outputs}.items()}
        return {**made, **self.known(), **real}
