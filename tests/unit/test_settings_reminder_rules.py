"""What a group gives away without need is told, and stops nothing."""

from __future__ import annotations

import pytest

from components.settings import advice, load
from tests.unit.rule_cases import Changes, configured, group


def told(changes: Changes) -> list[str]:
    found = advice(load("dev", configured(changes)))
    return [str(one) for one in found if one.validator == "efa-is-used-where-it-is"]


def test_efa_off_on_a_type_that_has_it_is_told() -> None:
    changes = group(instanceTypes=["g6.12xlarge"], zones=["us-east-1a"], efa="off")
    assert told(changes) == [
        "gpu-training:gpuGroups[0].efa: off, and g6.12xlarge has EFA: the nodes exchange gradients by TCP; write auto"
    ]


@pytest.mark.parametrize(
    "changes",
    [
        group(instanceTypes=["g6.12xlarge"], zones=["us-east-1a"]),
        group(instanceTypes=["g6.12xlarge"], efa="off"),
        group(instanceTypes=["g6.xlarge"], zones=["us-east-1a"], efa="off"),
        group(instanceTypes=["g6.12xlarge"], zones=["us-east-1a"], efa="off", maxNodes=1),
    ],
    ids=["used", "over two zones", "a type without EFA", "one node"],
)
def test_where_efa_is_used_or_has_no_use_nothing_is_told(changes: Changes) -> None:
    assert told(changes) == []
