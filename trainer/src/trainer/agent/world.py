"""Which members make the next world: a pure function of their reports, the same on every node that read them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import combinations

from ..contracts.run import MemberReport

EXACT_MEMBERS = 16  # with more members in conflict the search is greedy

Pair = frozenset[str]


def cut_pairs(reports: Mapping[str, MemberReport]) -> set[Pair]:
    """Members that cannot reach each other. One direction is enough: a collective needs both."""
    return {
        frozenset((id_, other))
        for id_, report in reports.items()
        for other in report.unreachable
        if other in reports and other != id_
    }


def version_pairs(reports: Mapping[str, MemberReport]) -> set[Pair]:
    """Members whose software differs: they do not train together."""
    return {
        frozenset((one, other))
        for one, other in combinations(sorted(reports), 2)
        if reports[one].versions != reports[other].versions
    }


def choose(ready: Collection[str], apart: Collection[Pair], most: int) -> tuple[str, ...]:
    """The largest set of ready members of which no two are apart, at most ``most``, in order of their ids.

    Of several such sets the first by ids. With more than 16 members in conflict those with the most conflicts are
    left out one by one, which may miss the largest set but is as good as the same for everybody.
    """
    among = [pair for pair in apart if pair <= set(ready)]
    tangled = sorted({id_ for pair in among for id_ in pair})
    kept = _exact(tangled, among) if len(tangled) <= EXACT_MEMBERS else _greedy(tangled, among)
    return tuple(sorted({*ready} - {*tangled} | {*kept})[:most])


def _exact(tangled: Sequence[str], among: Sequence[Pair]) -> tuple[str, ...]:
    for size in range(len(tangled), 0, -1):
        for some in combinations(tangled, size):
            if not any(pair <= set(some) for pair in among):
                return some
    return ()


def _greedy(tangled: Sequence[str], among: Sequence[Pair]) -> tuple[str, ...]:
    left, pairs = set(tangled), list(among)
    while pairs:
        conflicts = {id_: sum(id_ in pair for pair in pairs) for id_ in left}
        out = max(left, key=lambda id_: (conflicts[id_], id_))
        left.remove(out)
        pairs = [pair for pair in pairs if out not in pair]
    return tuple(sorted(left))
