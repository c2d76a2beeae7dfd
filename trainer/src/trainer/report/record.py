"""All that a run left behind, read from its documents in S3 or from a folder on this machine."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from ..agent.board import Board
from ..agent.cost import all_usage, run_cost
from ..contracts import keys
from ..contracts.base import Document
from ..contracts.cost import RunCost
from ..contracts.manifests import CheckpointManifest, LatestPointer
from ..contracts.run import Generation, MemberReport, RunConfig, RunResult
from ..contracts.worker import WorkerConfig
from ..errors import ConfigurationError
from ..selfcheck.report import SelfCheckReport
from .reader import EventReader
from .steps import Part, ordered

D = TypeVar("D", bound=Document)
# Of a node or a local run, and as a copy of the bucket has it
LOG = re.compile(r"gen-(\d+)/(?:events-rank0|([^/]+)/events-\d{6})\.jsonl$")


@dataclass(frozen=True)
class Record:
    """Absent documents are None or missing: a run that is under way has no result, a local one no members."""

    name: str
    config: RunConfig | None
    parts: list[Part]  # in order of the generations
    result: RunResult | None = None
    generation: Generation | None = None  # the last one
    members: dict[str, MemberReport] = field(default_factory=dict)  # by instance id
    selfchecks: dict[str, SelfCheckReport] = field(default_factory=dict)
    checkpoints: list[CheckpointManifest] = field(default_factory=list)  # those that are there now, by step
    latest: LatestPointer | None = None
    best: LatestPointer | None = None
    cost: RunCost | None = None


def from_bucket(board: Board, run: str, events: EventReader | None = None) -> Record:
    """Reads below ``runs/<run>/`` only; ``events``: a reader that knows some already.

    Raises ConfigurationError where there is no such run, StoreError.
    """
    config = board.config(run)
    if config is None:
        raise ConfigurationError(
            f"there is no run {run} in s3://{board.bucket}; `trainer run list` shows all"
        )
    store, bucket = board.store, board.bucket

    def read(model: type[D], key: str) -> D | None:
        fetched = store.get(bucket, key)
        return parse(model, fetched.body) if fetched else None

    def below(prefix: str, ending: str) -> Iterator[str]:
        return (entry.key for entry in store.list_objects(bucket, prefix) if entry.key.endswith(ending))

    events = events or EventReader(store, bucket, run)
    members, result = board.reports(run), board.result(run)
    checks = {
        key.rpartition("/")[2][:-5]: read(SelfCheckReport, key)
        for key in below(keys.run_selfchecks(run), ".json")
    }
    saved = [read(CheckpointManifest, key) for key in below(keys.checkpoints(run), "/manifest.json")]
    return Record(
        name=run,
        config=config,
        parts=events.look(),
        result=result,
        generation=board.generation(run)[0],
        members=members,
        selfchecks={id_: check for id_, check in checks.items() if check},
        checkpoints=sorted((m for m in saved if m), key=lambda manifest: manifest.step),
        latest=read(LatestPointer, keys.latest(run)),
        best=read(LatestPointer, keys.best(run)),
        cost=result.cost if result else run_cost(all_usage(members, board.usage(run))),
    )


def from_folder(folder: Path) -> Record:
    """A run's folder: of `trainer train`, of a node, or a copy of ``runs/<run>/``. Raises ConfigurationError."""
    logs: dict[tuple[int, str], Part] = {}
    roots: set[str] = set()  # of runs
    for path in sorted(folder.rglob("*.jsonl")):
        if found := LOG.search(path.as_posix()):
            whose = int(found[1]), found[2] or ""
            with open(path, "rb") as lines:
                logs.setdefault(whose, Part(*whose)).take(lines)
            roots.add(path.as_posix()[: found.start()].removesuffix("logs/"))
    if len(roots) > 1:
        names = ", ".join(sorted(root.rstrip("/").rpartition("/")[2] for root in roots)[:9])
        raise ConfigurationError(f"{folder} holds several runs ({names}): give the folder of one of them")
    if not logs:
        raise ConfigurationError(
            f"{folder} holds no run: neither gen-0001/events-rank0.jsonl, which `trainer train` leaves, "
            "nor logs/gen-0001/<instance>/events-000001.jsonl, as a copy of runs/<run>/ in a bucket has it"
        )

    def read(model: type[D], pattern: str) -> dict[Path, D]:
        paths = sorted(path for path in folder.rglob(pattern) if path.is_file())
        documents = {path: parse(model, path.read_bytes()) for path in paths}
        return {path: document for path, document in documents.items() if document}

    configs = [*read(RunConfig, "config.json").values(), *read(RunConfig, "run.json").values()]
    configs += [worker.run for worker in read(WorkerConfig, "worker.json").values()]
    results = list(read(RunResult, "result.json").values())
    members = {m.member.instance_id: m for m in read(MemberReport, "members/*.json").values()}
    result = results[-1] if results else None
    return Record(
        name=configs[-1].name if configs else folder.resolve().name,
        config=configs[-1] if configs else None,
        parts=ordered(logs.values()),
        result=result,
        generation=next(iter(read(Generation, "generation.json").values()), None),
        members=members,
        selfchecks={
            check.instance_id or path.stem: check
            for path, check in read(SelfCheckReport, "selfcheck/*.json").items()
        },
        checkpoints=sorted(
            read(CheckpointManifest, "step-*/manifest.json").values(), key=lambda manifest: manifest.step
        ),
        latest=next(iter(read(LatestPointer, "latest").values()), None),
        best=next(iter(read(LatestPointer, "best").values()), None),
        cost=result.cost if result else run_cost(all_usage(members, None)),
    )


def parse(model: type[D], text: bytes) -> D | None:
    """None for what another release wrote: a report shows what it can."""
    try:
        return model.from_json(text)
    except ValidationError:
        return None
