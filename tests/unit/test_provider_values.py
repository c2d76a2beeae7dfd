"""Wire values: what goes in comes out, and unknown, secret and asset keep their meaning."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf import struct_pb2
from hypothesis import given
from hypothesis import strategies as st
from pulumi.runtime import rpc

from localcloud.provider.values import SIGNATURE, UNKNOWN, Asset, Secret, decode, encode, reveal

SCALARS = st.none() | st.booleans() | st.integers(-(2**50), 2**50) | st.text() | st.just(UNKNOWN)
KEYS = st.text(min_size=1).filter(lambda key: key != SIGNATURE)
TREES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4) | inner.map(Secret),
    max_leaves=12,
)


@given(st.dictionaries(KEYS, TREES, max_size=5))
def test_decoding_is_the_inverse_of_encoding(tree: dict) -> None:
    assert decode(encode(tree)) == tree


@given(st.dictionaries(KEYS, TREES, max_size=5))
def test_a_revealed_tree_holds_no_secret_mark_and_else_the_same(tree: dict) -> None:
    revealed = reveal(tree)
    assert not list(_secrets(revealed))
    assert reveal(revealed) == revealed
    assert list(_leaves(revealed)) == list(_leaves(tree))


def _secrets(tree: object) -> Iterator[Secret]:
    if isinstance(tree, Secret):
        yield tree
    for value in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        yield from _secrets(value)


def _leaves(tree: object) -> Iterator[object]:
    if isinstance(tree, Secret):
        yield from _leaves(tree.value)
    elif isinstance(tree, (dict, list)):
        for value in tree.values() if isinstance(tree, dict) else tree:
            yield from _leaves(value)
    else:
        yield tree


def test_whole_numbers_are_ints_because_aws_refuses_floats() -> None:
    struct = struct_pb2.Struct()
    struct.update({"port": 22, "ratio": 0.5})
    assert decode(struct) == {"port": 22, "ratio": 0.5}
    assert isinstance(decode(struct)["port"], int)


def test_the_engines_sentinel_is_the_unknown_value() -> None:
    struct = struct_pb2.Struct()
    struct.update({"id": rpc.UNKNOWN})
    assert decode(struct)["id"] is UNKNOWN


def test_an_output_value_without_a_value_is_unknown_and_a_secret_one_stays_secret() -> None:
    struct = struct_pb2.Struct()
    struct.update({"a": {SIGNATURE: rpc._special_output_value_sig, "secret": True}})
    assert decode(struct) == {"a": Secret(UNKNOWN)}


def test_a_resource_reference_is_the_resources_id() -> None:
    struct = struct_pb2.Struct()
    struct.update({"r": {SIGNATURE: rpc._special_resource_sig, "urn": "urn:x", "id": "vpc-1"}})
    assert decode(struct) == {"r": "vpc-1"}


def test_a_secret_is_never_printed() -> None:
    assert "hunter2" not in repr({"password": Secret("hunter2")})


def asset(**fields: str) -> Asset:
    return Asset({SIGNATURE: rpc._special_asset_sig, **fields})


def test_assets_of_equal_content_are_equal_wherever_they_lie() -> None:
    assert asset(path="/a", hash="1") == asset(path="/b", hash="1")
    assert asset(path="/a", hash="1") != asset(path="/a", hash="2")
    assert asset(text="x") != asset(text="y")


def test_an_assets_content_is_its_file_or_its_text(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"\x00bytes")
    assert asset(path=str(tmp_path / "file"), hash="1").content() == b"\x00bytes"
    assert asset(text="text", hash="1").content() == b"text"


def test_an_archive_cannot_be_uploaded() -> None:
    archive = Asset({SIGNATURE: rpc._special_archive_sig, "path": "/folder", "hash": "1"})
    with pytest.raises(ValueError, match="only file and string assets"):
        archive.content()
