"""What a budget and a price limit may be, beside what the stack costs by list prices."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from components.catalog import on_demand_price

from .faults import Fault, Path, named_twice, warning
from .group_model import GpuGroupSettings
from .model import Settings

ADDRESS = re.compile(r"[^@\s,;]+@[^@\s,;]+\.[^@\s.,;]+")
FIRST_TOLD_PERCENT = 80  # the plan of the budget tells people from there on; a test compares


def budget_is_above_what_stands(s: Settings) -> Iterator[Fault]:
    """What stands without any node (NAT, endpoints, file system, alarms) uses up the month's budget."""
    from components.cost.estimate import empty_stack  # it reads settings: not at the top

    if s.budget is None:
        return
    standing = empty_stack(s).high
    if standing >= s.budget.monthly_usd:
        yield Fault(
            ("budget", "monthlyUsd"),
            f"{s.budget.monthly_usd:g} USD is used up by what stands without any node training: "
            f"{standing:.0f} USD a month",
            f"write more than {standing:.0f}, or take away what stands",
        )


@warning
def budget_covers_full_groups(s: Settings) -> Iterator[Fault]:
    """Every group full for a month costs more than the budget: it will be passed before the month ends."""
    from components.cost.estimate import estimate

    if s.budget is None:
        return
    full = estimate(s, at_max=True)
    month = full.a_month
    if month.low > s.budget.monthly_usd:
        unknown = f", and what has no known price: {'; '.join(full.unknown)}" if full.unknown else ""
        days = 30.4 * s.budget.monthly_usd / month.low
        yield Fault(
            ("budget", "monthlyUsd"),
            f"{s.budget.monthly_usd:g} USD lasts {days:.1f} days with every group full, which costs "
            f"{month.low:,.0f} USD a month or more{unknown}",
            "meant so: nothing to do; else raise it or lower maxNodes",
        )


def budget_addresses_are_addresses(s: Settings) -> Iterator[Fault]:
    """AWS Budgets mails to whole addresses only, each named once."""
    if s.budget is not None:
        yield from _addresses(s.budget.emails, ("budget", "emails"))


def run_addresses_are_addresses(s: Settings) -> Iterator[Fault]:
    """SNS mails to whole addresses only, each named once."""
    yield from _addresses(s.monitoring.alerts.run_emails, ("monitoring", "alerts", "runEmails"))


@warning
def people_are_told_before_the_stop(s: Settings) -> Iterator[Fault]:
    """The first message of a budget is that of 80 %: a stop at or below it comes unannounced."""
    if s.budget is None or s.budget.stop_at_percent is None:
        return
    if s.budget.stop_at_percent <= FIRST_TOLD_PERCENT:
        yield Fault(
            ("budget", "stopAtPercent"),
            f"{s.budget.stop_at_percent} % stops all groups before or as people are told at {FIRST_TOLD_PERCENT} %",
            f"write more than {FIRST_TOLD_PERCENT}, or raise monthlyUsd",
        )


@warning
def spot_limit_is_below_on_demand(group: GpuGroupSettings, at: Path, settings: Settings) -> Iterator[Fault]:
    """Spot costs at most the on-demand price (EC2 user guide, Spot pricing): a higher limit limits nothing."""
    limit = group.purchase.max_price_usd_per_hour
    known = [on_demand_price(name, settings.region) for name in group.instance_types]
    prices = [price.high_usd for price in known if price is not None]
    if limit is None or len(prices) < len(known):
        return
    if limit > max(prices):
        yield Fault(
            (*at, "purchase", "maxPriceUsdPerHour"),
            f"{limit:g} USD is above the on-demand price, {max(prices):g} USD (list price): it limits nothing",
            "lower or remove it",
        )


def _addresses(emails: Sequence[str], path: Path) -> Iterator[Fault]:
    for place, address in enumerate(emails):
        if not ADDRESS.fullmatch(address):
            yield Fault(
                (*path, place),
                f"'{address}' is no e-mail address",
                "write one address, such as gpu-oncall@example.com",
            )
    yield from named_twice(emails, path, ())


RULES = (
    budget_is_above_what_stands,
    budget_covers_full_groups,
    budget_addresses_are_addresses,
    run_addresses_are_addresses,
    people_are_told_before_the_stop,
)
GROUP_RULES = (spot_limit_is_below_on_demand,)
