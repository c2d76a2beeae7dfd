"""What counts as a change, where it is, and what it takes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localcloud.provider.diff import compare, walk
from localcloud.provider.kinds import Kind
from localcloud.provider.tables import AWS
from localcloud.provider.values import UNKNOWN, Secret

PLAIN = Kind("test:index:Thing", "thing", replace=frozenset({"zone", "metadata.name"}), name="name")

LEAVES = st.booleans() | st.integers() | st.text(max_size=5)
TREES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(min_size=1, max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)
INPUTS = st.dictionaries(st.text(min_size=1, max_size=5), TREES, max_size=4)


def paths(old: dict, new: dict, kind: Kind = PLAIN) -> dict[str, str]:
    return {
        change.path: change.change + (" replace" if change.replaces else "")
        for change in compare(kind, old, new).changes
    }


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({"a": 1}, {"a": 2}, {"a": "update"}),
        ({}, {"a": 1}, {"a": "add"}),
        ({"a": 1}, {}, {"a": "delete"}),
        ({"a": None}, {}, {}),
        ({"a": 1}, {"a": UNKNOWN}, {"a": "update"}),
        ({}, {"a": UNKNOWN}, {"a": "add"}),
        ({"tags": {"x": "1"}}, {"tags": {"x": "2"}}, {"tags.x": "update"}),
        ({"tags": {"a.b": "1"}}, {"tags": {"a.b": "2"}}, {'tags["a.b"]': "update"}),
        ({"l": [{"p": 1}]}, {"l": [{"p": 2}, {"p": 3}]}, {"l[0].p": "update", "l[1]": "add"}),
        ({"l": [1, 2]}, {"l": [1]}, {"l[1]": "delete"}),
        ({"a": Secret("x")}, {"a": "x"}, {}),
        ({"a": Secret("x")}, {"a": Secret("y")}, {"a": "update"}),
        ({"zone": "a"}, {"zone": "b"}, {"zone": "update replace"}),
        ({"zone": {"id": "a"}}, {"zone": {"id": "b"}}, {"zone.id": "update replace"}),
        ({"zones": "a"}, {"zones": "b"}, {"zones": "update"}),
        ({"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}, {"metadata.name": "update replace"}),
        ({"metadata": {"names": "a"}}, {"metadata": {"names": "b"}}, {"metadata.names": "update"}),
    ],
)
def test_changes(old: dict, new: dict, expected: dict[str, str]) -> None:
    assert paths(old, new) == expected


@given(INPUTS)
def test_nothing_differs_from_itself(inputs: dict) -> None:
    assert compare(PLAIN, inputs, inputs).changes == ()


@given(INPUTS, INPUTS)
def test_equal_exactly_when_no_change_is_found(old: dict, new: dict) -> None:
    """Where there are no nulls and no unknowns."""
    assert (not list(walk(old, new))) == (old == new)


@given(INPUTS, INPUTS)
def test_a_change_backwards_is_at_the_same_places(old: dict, new: dict) -> None:
    opposite = {"add": "delete", "delete": "add", "update": "update"}
    there = {(path, change) for path, change in walk(old, new)}
    back = {(path, opposite[change]) for path, change in walk(new, old)}
    assert there == back


def test_a_kept_fixed_name_needs_the_old_one_gone_first() -> None:
    fixed = compare(PLAIN, {"name": "n", "zone": "a"}, {"name": "n", "zone": "b"})
    renamed = compare(PLAIN, {"name": "n", "zone": "a"}, {"name": "m", "zone": "b"})
    generated = compare(PLAIN, {"zone": "a"}, {"zone": "b"})
    harmless = compare(PLAIN, {"name": "n", "size": 1}, {"name": "n", "size": 2})
    wanted = [difference.delete_before_replace for difference in (fixed, renamed, generated, harmless)]
    assert wanted == [True, False, False, False]


@pytest.mark.parametrize(
    ("type_", "old", "new", "replaces"),
    [
        ("aws:ec2/vpc:Vpc", {"cidrBlock": "10.0.0.0/16"}, {"cidrBlock": "10.1.0.0/16"}, True),
        ("aws:ec2/vpc:Vpc", {"tags": {"a": "1"}}, {"tags": {"a": "2"}}, False),
        ("aws:ec2/subnet:Subnet", {"vpcId": "vpc-1"}, {"vpcId": UNKNOWN}, True),
        ("aws:ec2/launchTemplate:LaunchTemplate", {"imageId": "ami-1"}, {"imageId": "ami-2"}, False),
        ("aws:autoscaling/group:Group", {"maxSize": 1}, {"maxSize": 2}, False),
        ("aws:autoscaling/group:Group", {"name": "a"}, {"name": "b"}, True),
        ("aws:s3/bucket:Bucket", {"bucket": "a"}, {"bucket": "b"}, True),
        ("aws:iam/role:Role", {"path": "/a/"}, {"path": "/b/"}, True),
        ("aws:ec2/securityGroup:SecurityGroup", {"description": "a"}, {"description": "b"}, True),
        (
            "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule",
            {"cidrIpv4": "10.0.0.0/8"},
            {"referencedSecurityGroupId": "sg-1"},
            True,
        ),
        (
            "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule",
            {"cidrIpv4": "10.0.0.0/8"},
            {"cidrIpv4": "10.0.0.0/9"},
            False,
        ),
        ("aws:sns/topic:Topic", {"region": "eu-west-1"}, {"region": "eu-west-2"}, True),
    ],
)
def test_what_the_tables_say_about_replacement(type_: str, old: dict, new: dict, replaces: bool) -> None:
    assert compare(AWS[type_], old, new).replaces is replaces
