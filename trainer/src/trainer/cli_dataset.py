"""``trainer dataset make-sample|publish|sync|verify``: S3 calls with the caller's rights, nothing else."""

from __future__ import annotations

import argparse
import importlib.util
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

from .access import add_bucket_argument, artifacts_bucket, dataset_location, read_cluster
from .contracts.manifests import DatasetFacts, DatasetManifest
from .errors import ConfigurationError, DatasetError


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    dataset = subparsers.add_parser("dataset", help="make, publish, sync and verify datasets")
    commands = dataset.add_subparsers(dest="dataset_command", metavar="COMMAND", required=True)

    make = commands.add_parser("make-sample", help='write the sample dataset "shapes" into a folder')
    make.add_argument("folder", type=Path)
    make.add_argument("--samples", type=int, default=4096, help="training samples (default: 4096)")
    make.add_argument("--test-samples", type=int, default=512, help="held-out samples (default: 512)")
    make.add_argument("--seed", type=int, default=0)
    make.set_defaults(run=_make_sample)

    publish = commands.add_parser("publish", help="upload a folder of shards as a new, immutable version")
    publish.add_argument("folder", type=Path, help="holds train-*.npz and test-*.npz")
    publish.add_argument("dataset", metavar="NAME@VERSION")
    publish.add_argument("--classes", type=int, help="number of classes (default: highest label + 1)")
    add_bucket_argument(publish)
    publish.set_defaults(run=_publish)

    sync = commands.add_parser("sync", help="download a version and verify every shard")
    sync.add_argument("dataset", metavar="NAME@VERSION")
    sync.add_argument("folder", type=Path)
    add_bucket_argument(sync)
    sync.set_defaults(run=_sync)

    verify = commands.add_parser("verify", help="hash a synced version again")
    verify.add_argument("folder", type=Path)
    verify.set_defaults(run=_verify)
    for command in (make, publish, sync, verify):
        command.add_argument("--json", action="store_true", help="print one JSON object instead of text")


@contextmanager
def _bar(title: str, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on a terminal, nothing elsewhere; called with bytes done and bytes in all."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda _done, _total: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(title)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def _report(manifest: DatasetManifest, text: str, as_json: bool, **more: str) -> None:
    samples: dict[str, int] = {"train": 0, "test": 0}
    for shard in manifest.shards:
        samples[shard.split] = samples.get(shard.split, 0) + shard.samples
    size = sum(shard.size_bytes for shard in manifest.shards)
    if as_json:
        summary = {
            "dataset": f"{manifest.name}@{manifest.version}",
            "shards": len(manifest.shards),
            "bytes": size,
            "samples": samples,
            "classes": manifest.classes,
            **more,
        }
        print(json.dumps(summary))
    else:
        counts = ", ".join(f"{count} {split}" for split, count in samples.items())
        print(f"{text}: {len(manifest.shards)} shards, {size / 1e6:.1f} MB, {counts} samples")


def _need_numpy() -> None:
    """Raises ConfigurationError; everything but sync looks into the arrays."""
    if importlib.util.find_spec("numpy") is None:
        raise ConfigurationError("this command needs numpy; install it beside the trainer: pip install numpy")


def _make_sample(arguments: argparse.Namespace) -> int:
    _need_numpy()
    from .data.manifest import DatasetName
    from .data.publish import describe
    from .data.sample import CLASSES, make_sample

    if arguments.samples < 1 or arguments.test_samples < 1:
        raise ConfigurationError("--samples and --test-samples must be at least 1")
    make_sample(arguments.folder, arguments.samples, arguments.test_samples, arguments.seed)
    manifest = describe(arguments.folder, DatasetName("shapes", "v1"), DatasetFacts(classes=len(CLASSES)))
    _report(manifest, f"wrote {arguments.folder}", arguments.json, folder=str(arguments.folder))
    return 0


def _publish(arguments: argparse.Namespace) -> int:
    _need_numpy()
    from .data.manifest import parse_name
    from .data.publish import describe, publish_dataset, read_facts
    from .store import Store

    name = parse_name(arguments.dataset)
    store = Store()
    location = dataset_location(read_cluster(store, artifacts_bucket(arguments)), name.name)
    facts = read_facts(arguments.folder)
    if arguments.classes is not None:
        facts = facts.model_copy(update={"classes": arguments.classes})
    manifest = describe(arguments.folder, name, facts)
    total = sum(shard.size_bytes for shard in manifest.shards)
    with _bar(f"publishing {name}", arguments.json) as show:
        lock, done = Lock(), 0

        def advance(size: int) -> None:
            nonlocal done
            with lock:
                done += size
                show(done, total)

        publish_dataset(store, location, arguments.folder, manifest, advance)
    where = f"s3://{location.bucket}/{location.prefix}{name.version}/"
    _report(manifest, f"published {name} to {where}", arguments.json, uri=where)
    return 0


def _sync(arguments: argparse.Namespace) -> int:
    from .data.manifest import parse_name
    from .data.sync import sync_dataset
    from .store import Store

    name = parse_name(arguments.dataset)
    store = Store()
    location = dataset_location(read_cluster(store, artifacts_bucket(arguments)), name.name)
    with _bar(f"syncing {name}", arguments.json) as show:
        manifest = sync_dataset(store, location, name.name, name.version, arguments.folder, show)
    _report(manifest, f"synced {name}, every shard verified", arguments.json, folder=str(arguments.folder))
    return 0


def _verify(arguments: argparse.Namespace) -> int:
    _need_numpy()
    from .data.verify import local_manifest, verify_dataset

    manifest = local_manifest(arguments.folder)
    faults = verify_dataset(arguments.folder)
    if faults:
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        raise DatasetError(f"{arguments.folder}: {faults[0]}{more}; sync it again")
    _report(manifest, f"{manifest.name}@{manifest.version} is as published", arguments.json)
    return 0
