"""Prices are dated, sane and never guessed."""

from __future__ import annotations

from datetime import date

import pytest

from components.catalog import INSTANCE_TYPES, item_price, on_demand_price, spot_price
from components.catalog.prices import PRICES

NODE_PRICES = [price for price in PRICES.values() if price.kind != "item"]


def test_a_price_is_dated_and_sane() -> None:
    for price in PRICES.values():
        assert 0 < price.low_usd <= price.high_usd
        assert date(2025, 1, 1) <= price.as_of <= date(2026, 11, 30)
        assert price.source


def test_the_price_of_a_node_is_of_a_type_that_the_region_offers() -> None:
    assert len(NODE_PRICES) > 100
    for price in NODE_PRICES:
        type_ = INSTANCE_TYPES[price.item]
        assert price.kind in type_.purchase_options and price.unit == "hour"
        assert type_.regions is None or price.region in type_.regions
        on_demand = on_demand_price(price.item, price.region)
        if price.kind == "on-demand":
            assert price.low_usd == price.high_usd < 200
        elif on_demand is not None:  # EC2 never asks more for spot than for on demand
            assert price.high_usd <= on_demand.high_usd


def test_spot_prices_span_the_zones_and_leave_out_local_ones() -> None:
    p5 = spot_price("p5.48xlarge", "us-east-1")
    assert p5 is not None and (p5.low_usd, p5.high_usd) == (17.6289, 55.04)  # 10.24 in Atlanta's local zone


def test_where_no_zone_was_read_the_average_saving_and_the_on_demand_price_are_the_range() -> None:
    l4 = spot_price("g6.xlarge", "us-east-1")
    assert l4 is not None and l4.high_usd == 0.8048 and l4.low_usd == pytest.approx(0.8048 * 0.51, abs=1e-4)
    assert "average saving of 49 %" in l4.source


def test_an_unknown_price_is_none_and_no_guess() -> None:
    assert on_demand_price("g6.xlarge", "us-west-2") is None
    assert on_demand_price("p5e.48xlarge", "us-east-1") is None
    assert spot_price("p6-b300.48xlarge", "us-east-1") is None
    assert item_price("nat-gateway-hour", "mars-north-1") is None
