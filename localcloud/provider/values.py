"""Property values: between the wire's protobuf structs and plain Python.

A decoded tree holds None, bool, int, float, str, list and dict, plus three kinds of leaf that JSON has no
word for: `UNKNOWN` (a value the engine will only know later), `Secret` (a marked value) and `Asset` (a file,
text or archive; compared by the content hash that the engine computed). The signatures are the Pulumi SDK's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf import struct_pb2
from pulumi.runtime import rpc

SIGNATURE = rpc._special_sig_key
SECRET = rpc._special_secret_sig
ASSETS = (rpc._special_asset_sig, rpc._special_archive_sig)
OUTPUT_VALUE = rpc._special_output_value_sig
RESOURCE = rpc._special_resource_sig

Tree = Any


class _Unknown:
    """The one value that is not known yet; equal to nothing but itself."""

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN = _Unknown()


@dataclass(frozen=True)
class Secret:
    """A value the engine must keep encrypted; never printed."""

    value: Tree

    def __repr__(self) -> str:
        return "Secret(…)"


@dataclass(frozen=True)
class Asset:
    """An asset or archive as the wire spells it (`path`, `text`, `uri` or `assets`, and `hash`)."""

    fields: Mapping[str, Any]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Asset):
            return NotImplemented
        mine, theirs = self.fields.get("hash"), other.fields.get("hash")
        if mine and theirs:
            return mine == theirs
        return dict(self.fields) == dict(other.fields)

    def __hash__(self) -> int:
        return hash(self.fields.get("hash"))

    def content(self) -> bytes:
        """The bytes of a file or text asset. Raises ValueError for archives and remote assets."""
        if "text" in self.fields:
            return str(self.fields["text"]).encode()
        if "path" in self.fields and self.fields[SIGNATURE] == rpc._special_asset_sig:
            return Path(str(self.fields["path"])).read_bytes()
        raise ValueError("only file and string assets can be uploaded by the stand-in")


def decode(struct: struct_pb2.Struct) -> dict[str, Tree]:
    """A struct's fields as plain Python; whole numbers become ints, as AWS's APIs want them."""
    return {key: _decode_value(value) for key, value in struct.fields.items()}


def _decode_value(value: struct_pb2.Value) -> Tree:
    kind = value.WhichOneof("kind")
    if kind is None or kind == "null_value":
        return None
    if kind == "number_value":
        number = value.number_value
        return int(number) if number.is_integer() else number
    if kind == "string_value":
        return UNKNOWN if value.string_value == rpc.UNKNOWN else value.string_value
    if kind == "list_value":
        return [_decode_value(item) for item in value.list_value.values]
    if kind == "struct_value":
        return _decode_struct(value.struct_value)
    return getattr(value, kind)


def _decode_struct(struct: struct_pb2.Struct) -> Tree:
    fields = decode(struct)
    signature = fields.get(SIGNATURE)
    if signature == SECRET:
        return Secret(fields.get("value"))
    if signature in ASSETS:
        return Asset(fields)
    if signature == OUTPUT_VALUE:
        inner = fields.get("value", UNKNOWN)
        return Secret(inner) if fields.get("secret") else inner
    if signature == RESOURCE:
        return fields.get("id", UNKNOWN)
    return fields


def encode(tree: Mapping[str, Tree]) -> struct_pb2.Struct:
    """The struct of a tree; the inverse of `decode` for everything `decode` returns."""
    return struct_pb2.Struct(fields={key: _encode_value(value) for key, value in tree.items()})


def _encode_value(value: Tree) -> struct_pb2.Value:
    if value is None:
        return struct_pb2.Value(null_value=struct_pb2.NULL_VALUE)
    if value is UNKNOWN:
        return struct_pb2.Value(string_value=rpc.UNKNOWN)
    if isinstance(value, bool):
        return struct_pb2.Value(bool_value=value)
    if isinstance(value, (int, float)):
        return struct_pb2.Value(number_value=value)
    if isinstance(value, str):
        return struct_pb2.Value(string_value=value)
    if isinstance(value, Secret):
        return struct_pb2.Value(struct_value=encode({SIGNATURE: SECRET, "value": value.value}))
    if isinstance(value, Asset):
        return struct_pb2.Value(struct_value=encode(value.fields))
    if isinstance(value, (list, tuple)):
        return struct_pb2.Value(
            list_value=struct_pb2.ListValue(values=[_encode_value(item) for item in value])
        )
    if isinstance(value, Mapping):
        return struct_pb2.Value(struct_value=encode(value))
    raise TypeError(f"no wire form for a {type(value).__name__}")


def reveal(tree: Tree) -> Tree:
    """The same tree without secret marks: for comparison and for calls, never for output."""
    if isinstance(tree, Secret):
        return reveal(tree.value)
    if isinstance(tree, dict):
        return {key: reveal(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [reveal(value) for value in tree]
    return tree
