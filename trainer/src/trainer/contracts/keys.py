"""Object names in the artifacts bucket; the one place that spells them. Datasets lie below their location's prefix."""

from __future__ import annotations

import re


def node_document(group: str, sha256: str) -> str:
    return f"groups/{group}/node-{sha256}.json"


def run_pointer(group: str) -> str:
    return f"groups/{group}/run.json"


def boot_selfcheck(group: str, instance_id: str) -> str:
    return f"groups/{group}/selfcheck/{instance_id}.json"


def trainer_release(sha256: str) -> str:
    return f"releases/trainer/{sha256}.tar"


def user_wheel(file_name: str) -> str:
    return f"releases/user/{file_name}"


def cluster() -> str:
    """What a researcher's machine needs to know: groups, dataset buckets, region."""
    return "cluster.json"


def run_config(run: str) -> str:
    return f"runs/{run}/config.json"


def generation(run: str) -> str:
    return f"runs/{run}/generation.json"


def member(run: str, instance_id: str) -> str:
    return f"runs/{run}/members/{instance_id}.json"


def members(run: str) -> str:
    return f"runs/{run}/members/"


def result(run: str) -> str:
    return f"runs/{run}/result.json"


def usage(run: str) -> str:
    """What the run had of its nodes before it was resumed."""
    return f"runs/{run}/usage.json"


def run_selfcheck(run: str, instance_id: str) -> str:
    return f"runs/{run}/selfcheck/{instance_id}.json"


def run_selfchecks(run: str) -> str:
    return f"runs/{run}/selfcheck/"


def report(run: str) -> str:
    return f"runs/{run}/report.html"


def run_logs(run: str) -> str:
    return f"runs/{run}/logs/"


def run_log(run: str, generation: int, instance_id: str, name: str) -> str:
    """``name`` is an `events_segment` (one line a step, rank 0 only) or worker.log."""
    return f"runs/{run}/logs/gen-{generation:04d}/{instance_id}/{name}"


def events_segment(number: int) -> str:
    """Counted from 1; in the order of their names they are one file."""
    return f"events-{number:06d}.jsonl"


def is_events_segment(key: str) -> bool:
    return re.fullmatch(r"events-\d{6}\.jsonl", key.rpartition("/")[2]) is not None


def checkpoints(run: str) -> str:
    return f"runs/{run}/checkpoints/"


def checkpoint(run: str, step: int, file_name: str) -> str:
    return f"runs/{run}/checkpoints/step-{step:08d}/{file_name}"


def checkpoint_probe(run: str, generation: int) -> str:
    """Written, read and deleted before the first step; below checkpoints, where nodes may delete."""
    return f"runs/{run}/checkpoints/probe-g{generation:04d}"


def latest(run: str) -> str:
    return f"runs/{run}/latest"


def best(run: str) -> str:
    return f"runs/{run}/best"
