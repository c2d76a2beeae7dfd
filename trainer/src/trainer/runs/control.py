"""What ``trainer run`` does, without any printing: start, stop, resume, fetch."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from ..agent.board import Board, utc_now
from ..agent.cost import all_usage
from ..agent.hours import trained_seconds
from ..contracts import keys
from ..contracts.cluster import Cluster
from ..contracts.cost import RunUsage
from ..contracts.manifests import CheckpointManifest, LatestPointer
from ..contracts.run import RunConfig, RunPointer
from ..errors import CheckpointError, ConfigurationError
from ..models.user_wheel import hashed_name
from ..train.lineage import MANIFEST, fetch_files


@dataclass(frozen=True)
class Fetched:
    """A checkpoint on this machine, every file verified by its SHA-256."""

    which: str  # best or latest
    manifest: CheckpointManifest
    state: Path  # the folder of the state's files
    eval_loss: float | None


def pointed_runs(board: Board, cluster: Cluster) -> dict[str, RunPointer]:
    """The run that each group is pointed to."""
    found = {group: board.pointer(group) for group in sorted(cluster.groups)}
    return {group: pointer for group, pointer in found.items() if pointer is not None}


def active_run(board: Board, cluster: Cluster) -> str:
    """The run that the stack's groups are pointed to, if there is exactly one; raises ConfigurationError."""
    runs = sorted({pointer.run for pointer in pointed_runs(board, cluster).values()})
    if len(runs) != 1:
        told = f"there are several ({', '.join(runs)})" if runs else "no run was started on this stack yet"
        raise ConfigurationError(f"which run? {told}; give --run NAME")
    return runs[0]


def require_config(board: Board, run: str) -> RunConfig:
    config = board.config(run)
    if config is None:
        raise ConfigurationError(f'there is no run "{run}"; `trainer run list` shows those that there are')
    return config


def start(board: Board, cluster: Cluster, config: RunConfig, wheel: Path | None) -> RunConfig:
    """Write the configuration once and point the groups to it. Raises ConfigurationError, StoreError.

    A name that was used is refused, whatever became of that run: its checkpoints are not this run's.
    """
    _require_free(board, config)
    _require_dataset(board, cluster, config)
    if wheel is not None:
        config = _upload_wheel(board, config, wheel)
    body = config.to_json().encode()
    if not board.store.put(board.bucket, keys.run_config(config.name), body, only_if_absent=True).written:
        raise ConfigurationError(
            f'a run named "{config.name}" exists; choose another name, '
            f"or go on with it: trainer run resume --run {config.name}"
        )
    point(board, config, "start")
    return config


def point(board: Board, config: RunConfig, action: str) -> None:
    pointer = RunPointer.model_validate({"run": config.name, "action": action, "updatedAt": utc_now()})
    for group in config.groups:
        board.put_pointer(group, pointer)


def stop(board: Board, run: str) -> RunConfig:
    """Ask for a stop with a save; raises ConfigurationError where the run is over or not the groups' run."""
    config = require_config(board, run)
    if (result := board.result(run)) is not None:
        raise ConfigurationError(f'run "{run}" is over already: {result.status}')
    for group in config.groups:
        pointer = board.pointer(group)
        if pointer is None or pointer.run != run:
            raise ConfigurationError(
                f'group {group} is not at run "{run}" but at {pointer.run if pointer else "none"}'
            )
    point(board, config, "stop")
    return config


def resume(board: Board, run: str) -> RunConfig:
    """Go on with a stopped or failed run from its last complete checkpoint, under its own configuration."""
    config = require_config(board, run)
    result = board.result(run)
    if result is None:
        raise ConfigurationError(f'run "{run}" is not over; there is nothing to resume')
    if result.status == "finished":
        raise ConfigurationError(f'run "{run}" finished at step {result.step}; start a new one for more')
    _require_free(board, config)
    # First what the nodes had cost, then their reports away: done twice, it says the same.
    reports, earlier = board.reports(run), board.usage(run)
    trained = trained_seconds(reports, None, earlier)
    board.put_usage(run, RunUsage(nodes=all_usage(reports, earlier), trained_seconds=trained))
    for listed in board.store.list_objects(board.bucket, keys.members(run)):
        board.store.delete(board.bucket, listed.key)
    board.store.delete(board.bucket, keys.result(run))
    point(board, config, "start")
    return config


def fetch(board: Board, run: str, which: str, folder: Path) -> Fetched:
    """Download a checkpoint's files and the documents that explain them. Raises CheckpointError, StoreError.

    ``which``: ``best`` (of the held-out evaluations; the latest where there was none yet) or ``latest``. The pointer
    names the manifest by its SHA-256, the manifest each file by its own.
    """
    config = require_config(board, run)
    pointer = _pointer(board, keys.best(run)) if which == "best" else None
    if pointer is None:
        which, pointer = "latest", _pointer(board, keys.latest(run))
    if pointer is None:
        raise CheckpointError(f'run "{run}" has no complete checkpoint yet')
    key = keys.checkpoint(run, pointer.step, MANIFEST)
    body = board.store.get(board.bucket, key)
    if body is None or hashlib.sha256(body.body).hexdigest() != pointer.manifest_sha256:
        raise CheckpointError(
            f"s3://{board.bucket}/{key} is not the manifest that the pointer `{which}` names"
        )
    try:
        manifest = CheckpointManifest.from_json(body.body)
    except ValidationError as error:
        what = error.errors()[0]
        raise CheckpointError(
            f"s3://{board.bucket}/{key}: {'.'.join(map(str, what['loc']))}: {what['msg']}; another release wrote it"
        ) from error
    folder.mkdir(parents=True, exist_ok=True)
    state = fetch_files(board.store, board.bucket, manifest, folder)
    (folder / MANIFEST).write_bytes(body.body)
    (folder / "config.json").write_text(config.to_json())
    return Fetched(which, manifest, state, pointer.eval_loss)


def list_runs(board: Board) -> list[str]:
    listed = board.store.list_objects(board.bucket, "runs/")
    return sorted(entry.key.split("/")[1] for entry in listed if entry.key.endswith("/config.json"))


def scale(cluster: Cluster, config: RunConfig) -> None:
    """Raise the desired capacity of the run's one group to its nodes; the caller needs autoscaling rights for it."""
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError

    if len(config.groups) != 1:
        raise ConfigurationError(
            "--scale: a run over several groups is scaled group by group, not by this command"
        )
    group = cluster.groups[config.groups[0]].auto_scaling_group
    try:
        client = boto3.client("autoscaling", region_name=cluster.region)
        found = client.describe_auto_scaling_groups(AutoScalingGroupNames=[group])["AutoScalingGroups"]
        if found and found[0]["DesiredCapacity"] < config.nodes:
            client.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=config.nodes)
    except (ClientError, BotoCoreError) as error:
        raise ConfigurationError(f"--scale: {' '.join(str(error).split())}") from error


def _require_free(board: Board, config: RunConfig) -> None:
    for group in config.groups:
        pointer = board.pointer(group)
        if pointer and pointer.run != config.name and board.result(pointer.run) is None:
            raise ConfigurationError(
                f'group {group} is busy with run "{pointer.run}"; wait for it, or: trainer run stop --run {pointer.run}'
            )


def _require_dataset(board: Board, cluster: Cluster, config: RunConfig) -> None:
    name, _, version = config.training.dataset.partition("@")
    location = cluster.datasets[name]
    if board.store.head(location.bucket, f"{location.prefix}{version}/manifest.json") is None:
        raise ConfigurationError(
            f"dataset {config.training.dataset} is not published; see: trainer dataset publish --help"
        )


def _upload_wheel(board: Board, config: RunConfig, wheel: Path) -> RunConfig:
    if wheel.suffix != ".whl" or not wheel.is_file():
        raise ConfigurationError(f"--wheel {wheel}: is no wheel; build one with: pip wheel --no-deps .")
    name = hashed_name(wheel)
    board.store.upload(board.bucket, keys.user_wheel(name), wheel, name.partition("/")[0])
    training = config.training.model_copy(update={"user_wheel": name})
    return config.model_copy(update={"training": training})


def _pointer(board: Board, key: str) -> LatestPointer | None:
    fetched = board.store.get(board.bucket, key)
    try:
        return LatestPointer.from_json(fetched.body) if fetched else None
    except ValidationError as error:
        raise CheckpointError(f"s3://{board.bucket}/{key} is no checkpoint pointer") from error
