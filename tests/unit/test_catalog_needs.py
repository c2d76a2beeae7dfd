"""GPUs as people count and label them, and instance types found by what a training needs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.catalog import INSTANCE_TYPES, find_types, instance_type, on_demand_price


class TestFractionalGpus:
    """The API counts 0 GPUs there: code that multiplies by the count gets none."""

    @pytest.mark.parametrize(
        ("name", "part", "gb"),
        [
            ("g6f.large", 0.125, 3),
            ("g6f.2xlarge", 0.25, 6),
            ("g6f.4xlarge", 0.5, 12),
            ("gr6f.4xlarge", 0.5, 12),
        ],
    )
    def test_one_is_seen_and_its_memory_is_the_parts(self, name: str, part: float, gb: int) -> None:
        gpu = instance_type(name).gpu
        assert (gpu.count, gpu.partition, gpu.memory_label_gb) == (1, part, gb)
        whole = instance_type("g6.xlarge").gpu.memory_mib_each
        assert gpu.memory_mib_each == pytest.approx(whole * part, abs=1)
        assert gpu.text == f"1/{round(1 / part)} L4"

    def test_a_part_is_no_gpu_for_whoever_needs_one(self) -> None:
        assert not [t.name for t in find_types(gpus=1) if t.gpu.partition < 1]
        assert "g6f.large" in [t.name for t in find_types()]


class TestTheMemoryLabel:
    @pytest.mark.parametrize(
        ("name", "label"),
        [
            *(
                ("g4dn.xlarge", 16),
                ("g5.xlarge", 24),
                ("g6.xlarge", 24),
                ("g6e.xlarge", 48),
                ("g7.2xlarge", 32),
            ),
            *(("g7e.2xlarge", 96), ("p3dn.24xlarge", 32), ("p4d.24xlarge", 40), ("p4de.24xlarge", 80)),
            *(
                ("p5.48xlarge", 80),
                ("p5en.48xlarge", 141),
                ("p6-b200.48xlarge", 192),
                ("p6-b300.48xlarge", 288),
            ),
        ],
    )
    def test_it_is_what_people_say(self, name: str, label: int) -> None:
        assert instance_type(name).gpu.memory_label_gb == label

    def test_it_is_never_below_what_the_api_reports(self) -> None:
        for type_ in INSTANCE_TYPES.values():
            assert (
                type_.gpu.memory_gib_each - 0.5
                <= type_.gpu.memory_label_gb
                <= type_.gpu.memory_gib_each * 1.08
            )


class TestFindingByNeed:
    def test_eight_gpus_of_80_gib_and_efa(self) -> None:
        found = [type_.name for type_ in find_types(gpus=8, gpu_memory_gib=80, efa=True)]
        assert found == [
            *("p4de.24xlarge", "g7e.48xlarge", "p5.48xlarge", "p5en.48xlarge", "p6-b200.48xlarge"),
            *("p6-b300.48xlarge", "p5e.48xlarge"),  # p5e has no list price and comes last
        ]

    def test_24_gb_find_a_gpu_of_which_the_api_reports_less(self) -> None:
        assert "g5.xlarge" in [type_.name for type_ in find_types(gpu_memory_gib=24)]
        assert "g5.xlarge" not in [type_.name for type_ in find_types(gpu_memory_gib=25)]

    def test_blocks_of_a_region(self) -> None:
        found = {type_.name for type_ in find_types(region="us-west-2", capacity_block=True)}
        assert found == {
            *("p4d.24xlarge", "p4de.24xlarge", "p5.4xlarge", "p5.48xlarge", "p5e.48xlarge", "p5en.48xlarge"),
            *("p6-b200.48xlarge", "p6-b300.48xlarge"),
        }

    def test_other_needs(self) -> None:
        assert {type_.family for type_ in find_types(architecture="arm64")} == {"g5g", "p6e-gb200"}
        assert [type_.name for type_ in find_types(spot=False)] == ["p6e-gb200.36xlarge"]
        assert find_types(gpus=9) == []
        assert "p5e.48xlarge" not in [type_.name for type_ in find_types(region="us-east-1")]
        assert "p3.2xlarge" not in [type_.name for type_ in find_types(region="us-east-1")]  # not known

    @given(st.integers(1, 8), st.sampled_from([16, 24, 40, 80]), st.booleans())
    def test_what_is_found_has_it_and_prices_rise(self, gpus: int, gib: int, efa: bool) -> None:
        found = find_types(gpus=gpus, gpu_memory_gib=gib, efa=efa)
        for type_ in found:
            assert type_.gpu.count >= gpus and type_.gpu.memory_label_gb >= gib
            assert (type_.max_efa_interfaces > 0) == efa
        prices = [on_demand_price(type_.name, "us-east-1") for type_ in found]
        listed = [price.low_usd for price in prices if price is not None]
        assert listed == sorted(listed) and None not in prices[: len(listed)]
