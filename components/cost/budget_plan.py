"""The AWS budget of a stack as plain values. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from components.names import stack_names
from components.settings import Settings

STACK_TAG = "gpu-training:stack"
TOLD_AT_PERCENT = (80, 100)


@dataclass(frozen=True)
class Notification:
    """Who is told when what was billed, or what AWS forecasts for the month, passes a share of the budget."""

    of: str  # ACTUAL or FORECASTED
    percent: int
    stops: bool  # also told to the topic that stops the stack's groups


@dataclass(frozen=True)
class BudgetPlan:
    """A monthly budget over what carries the stack's tag."""

    name: str
    limit_usd: str  # decimal text
    tag_filter: str  # as Budgets spells a tag that a user set: user:<key>$<value>
    notifications: tuple[Notification, ...]
    emails: tuple[str, ...]
    stop_name: str | None  # of the topic and the function that stop the groups; None: nothing is stopped
    groups: dict[str, int]  # Auto Scaling groups that are stopped, with their least sizes


def plan_budget(settings: Settings) -> BudgetPlan | None:
    """None where the stack has no budget."""
    budget, names = settings.budget, stack_names(settings)
    if budget is None:
        return None
    stop = budget.stop_at_percent
    # AWS refuses two notifications of one kind and threshold, hence the set.
    thresholds: set[int] = {*TOLD_AT_PERCENT} if stop is None else {*TOLD_AT_PERCENT, stop}
    return BudgetPlan(
        name=f"{names.base_name}-monthly",
        limit_usd=f"{budget.monthly_usd:.2f}",
        tag_filter=f"user:{STACK_TAG}${names.base_name}",
        notifications=(
            *(Notification("ACTUAL", percent, percent == stop) for percent in sorted(thresholds)),
            Notification("FORECASTED", 100, False),
        ),
        emails=tuple(budget.emails),
        stop_name=f"{names.base_name}-budget-stop" if stop is not None else None,
        groups={names.auto_scaling_group(group.name): group.min_nodes for group in settings.gpu_groups},
    )
