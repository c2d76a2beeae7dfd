"""Joining resources of a stack: who names whom.

At preview an id is not known yet, but the engine already knows which resource it will come from. So a link
is looked up in the dependencies of the one property first, and by equal plain names where a program has them.
"""

from __future__ import annotations

from collections.abc import Iterable

from pulumi_policy import PolicyResource

from ._judge import UNKNOWN, leaves, read


def of_type(resources: Iterable[PolicyResource], *types: str) -> list[PolicyResource]:
    return [resource for resource in resources if resource.resource_type in types]


def names(target: PolicyResource, *keys: str) -> set[str]:
    """The known plain values of `keys` by which others may name `target`."""
    values = (read(target.props, key) for key in keys)
    return {value for value in values if isinstance(value, str)}


def points_to(
    source: PolicyResource, path: str, target: PolicyResource, keys: tuple[str, ...]
) -> bool | None:
    """Whether `source`'s property at `path` names `target`; None where nobody can know before the update.

    `keys` are the properties of `target` by which it may be named, such as its id.
    """
    top_level = path.split(".")[0].split("[")[0]
    linked = source.property_dependencies.get(top_level, [])
    if any(dependency.urn == target.urn for dependency in linked):
        return True
    values = [value for _, value in leaves(source.props, path)]
    if any(value in names(target, *keys) for value in values if value is not UNKNOWN):
        return True
    return None if any(value is UNKNOWN for value in values) and not linked else False
