"""A run's configuration from a file and flags: every fault at once, unknown keys with their nearest match."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from ..contracts.cluster import Cluster
from ..contracts.run import (
    AugmentSettings,
    CheckpointSettings,
    ElasticSettings,
    ParallelSettings,
    RunConfig,
    TrainingConfig,
)
from ..errors import ConfigurationError

SECTIONS: dict[tuple[str, ...], type[BaseModel]] = {
    (): RunConfig,
    ("training",): TrainingConfig,
    ("training", "checkpoint"): CheckpointSettings,
    ("training", "augment"): AugmentSettings,
    ("training", "parallel"): ParallelSettings,
    ("elastic",): ElasticSettings,
}
LONG_AGO = "1970-01-01T00:00:00Z"
NOT_FOR_PEOPLE = {"schemaVersion", "createdAt"}


def read_file(path: Path) -> dict[str, Any]:
    """A YAML or JSON mapping; raises ConfigurationError."""
    import yaml

    try:
        data = yaml.safe_load(path.read_text())
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"{path} is neither YAML nor JSON: {' '.join(str(error).split())}"
        ) from error
    if not isinstance(data, dict):
        raise ConfigurationError(f"{path}: must be a mapping with keys such as groups, nodes, training")
    return data


def merge(data: Mapping[str, Any], path: str, value: Any) -> dict[str, Any]:
    """``data`` with ``value`` at a dotted path; the given mapping is not changed."""
    head, _, rest = path.partition(".")
    inner = data.get(head)
    if rest:
        value = merge(inner if isinstance(inner, dict) else {}, rest, value)
    return {**data, head: value}


def parse_setting(text: str) -> tuple[str, Any]:
    """``training.learningRate=0.1`` as path and value; the value is JSON where it is any, else text."""
    path, separator, value = text.partition("=")
    if not separator or not path:
        raise ConfigurationError(f'--set "{text}": must be KEY=VALUE, for example training.learningRate=0.01')
    try:
        return path, json.loads(value)
    except ValueError:
        return path, value


def build(data: Mapping[str, Any], cluster: Cluster, created_at: str) -> RunConfig:
    """Validate against the models and the stack; raises ConfigurationError that lists every fault with its path."""
    complete = {"groups": list(cluster.groups) if len(cluster.groups) == 1 else [], **data}
    return validate(complete, created_at, _against_stack(complete, cluster))


def validate(complete: Mapping[str, Any], created_at: str = LONG_AGO, more: Sequence[str] = ()) -> RunConfig:
    """Against the models alone; ``more``: faults that were found already. Raises ConfigurationError with all of them.

    A run that lives on one machine only is always of the same ``created_at``: it is part of what a resume compares.
    """
    faults = [f"{key}: is set by the command itself" for key in sorted(NOT_FOR_PEOPLE & complete.keys())]
    complete = {key: value for key, value in complete.items() if key not in NOT_FOR_PEOPLE}
    config = None
    try:
        config = RunConfig.model_validate({**complete, "createdAt": created_at})
    except ValidationError as error:
        faults += [_fault(item) for item in error.errors()]
    faults += more
    faults += _elastic(complete)
    training = complete.get("training")
    if isinstance(training, dict) and (training.get("steps") is None) == (training.get("epochs") is None):
        faults.append("training: give either steps or epochs (--steps N or --epochs N)")
    if faults or config is None:
        count = "1 fault" if len(faults) == 1 else f"{len(faults)} faults"
        raise ConfigurationError(f"the run's configuration has {count}: " + "; ".join(faults))
    return config


def _elastic(data: Mapping[str, Any]) -> list[str]:
    elastic, nodes = data.get("elastic"), data.get("nodes")
    least = elastic.get("minWorldNodes") if isinstance(elastic, dict) else None
    if isinstance(least, int) and isinstance(nodes, int) and least > nodes:
        return [
            f"elastic.minWorldNodes: the smallest world ({least}) is larger than the whole one (nodes: {nodes})"
        ]
    return []


def _fault(item: Any) -> str:
    path = tuple(str(part) for part in item["loc"])
    if item["type"] != "extra_forbidden":
        given = "" if item["type"] == "missing" else f" (given: {item['input']!r})"
        return f"{'.'.join(path)}: {item['msg'][0].lower()}{item['msg'][1:]}{given}"
    model = SECTIONS.get(path[:-1])
    known = [field.alias or name for name, field in model.model_fields.items()] if model else []
    known = [name for name in known if name not in NOT_FOR_PEOPLE]
    near = difflib.get_close_matches(path[-1], known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
    return f"{'.'.join(path)}: unknown key; {hint}"


def _against_stack(data: Mapping[str, Any], cluster: Cluster) -> list[str]:
    """What only the stack knows: its groups, their size, its datasets."""
    faults = []
    groups = data.get("groups")
    names = [name for name in groups if isinstance(name, str)] if isinstance(groups, list) else []
    if isinstance(groups, list) and not groups:
        faults.append(
            f"groups: stack {cluster.stack} has several ({', '.join(sorted(cluster.groups))}); name them"
        )
    for name in names:
        if name not in cluster.groups:
            faults.append(
                f'groups: stack {cluster.stack} has no group "{name}"{_near(name, list(cluster.groups))}'
            )
    most = sum(cluster.groups[name].max_nodes for name in names if name in cluster.groups)
    nodes = data.get("nodes")
    if isinstance(nodes, int) and names and most and nodes > most:
        faults.append(f"nodes: {nodes} are more than the groups' maxNodes allow ({most})")
    training = data.get("training")
    dataset = training.get("dataset") if isinstance(training, dict) else None
    if isinstance(dataset, str) and dataset.partition("@")[0] not in cluster.datasets:
        name = dataset.partition("@")[0]
        near = _near(name, list(cluster.datasets))
        faults.append(f'training.dataset: stack {cluster.stack} has no dataset "{name}"{near}')
    return faults


def _near(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"; did you mean {near[0]}?" if near else f" (it has: {', '.join(sorted(known)) or 'none'})"
