"""``trainer dataset ...``: S3 calls with the caller's rights, nothing else."""

from __future__ import annotations

import argparse
from pathlib import Path
from threading import Lock

from .access import add_bucket_argument, artifacts_bucket, dataset_location, read_cluster
from .cli_dataset_make import add_parsers, report
from .errors import ConfigurationError, DatasetError
from .needs import need
from .progress import progress


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    dataset = subparsers.add_parser(
        "dataset", help="make, import, convert, publish, sync and verify datasets"
    )
    commands = dataset.add_subparsers(dest="dataset_command", metavar="COMMAND", required=True)
    add_parsers(commands)

    publish = commands.add_parser("publish", help="upload a folder of shards as a new, immutable version")
    publish.add_argument("folder", type=Path, help="holds train-*.npz and test-*.npz (tokens: .npy)")
    publish.add_argument("dataset", metavar="NAME@VERSION")
    publish.add_argument("--classes", type=int, help="number of classes (default: highest label + 1)")
    publish.add_argument("--vocabulary", type=int, help="tokens: how many there are (default: highest + 1)")
    publish.add_argument("--sequence-length", type=int, help="tokens: how many a sample has")
    add_bucket_argument(publish)
    publish.set_defaults(run=_publish)

    sync = commands.add_parser("sync", help="download a version and verify every shard; goes on where it was")
    sync.add_argument("dataset", metavar="NAME@VERSION")
    sync.add_argument("folder", type=Path)
    add_bucket_argument(sync)
    sync.set_defaults(run=_sync)

    verify = commands.add_parser("verify", help="hash a synced version again")
    verify.add_argument("folder", type=Path)
    verify.add_argument("--md5-list", type=Path, metavar="FILE", help="then write a list for md5sum -c")
    verify.set_defaults(run=_verify)
    for command in (publish, sync, verify):
        command.add_argument("--json", action="store_true", help="print one JSON object instead of text")


def _publish(arguments: argparse.Namespace) -> int:
    need("numpy")
    from .data.manifest import parse_name
    from .data.publish import describe, publish_dataset, read_facts
    from .store import Store

    name = parse_name(arguments.dataset)
    store = Store()
    location = dataset_location(read_cluster(store, artifacts_bucket(arguments)), name.name)
    facts = read_facts(arguments.folder)
    for fact in ("classes", "vocabulary", "sequence_length"):
        if (value := getattr(arguments, fact)) is not None:
            if value < 1:
                raise ConfigurationError(f"--{fact.replace('_', '-')} must be at least 1")
            facts = facts.model_copy(update={fact: value})
    manifest = describe(arguments.folder, name, facts)
    total = sum(shard.size_bytes for shard in manifest.shards)
    with progress(f"publishing {name}", "bytes", arguments.json) as show:
        lock, done = Lock(), 0

        def advance(size: int) -> None:
            nonlocal done
            with lock:
                done += size
                show(done, total)

        publish_dataset(store, location, arguments.folder, manifest, advance)
    where = f"s3://{location.bucket}/{location.prefix}{name.version}/"
    report(manifest, f"published {name} to {where}", arguments.json, uri=where)
    return 0


def _sync(arguments: argparse.Namespace) -> int:
    from .data.manifest import parse_name
    from .data.sync import sync_dataset
    from .store import Store

    name = parse_name(arguments.dataset)
    store = Store()
    location = dataset_location(read_cluster(store, artifacts_bucket(arguments)), name.name)
    with progress(f"syncing {name}", "bytes", arguments.json) as show:
        manifest = sync_dataset(store, location, name.name, name.version, arguments.folder, show)
    report(manifest, f"synced {name}, every shard verified", arguments.json, folder=str(arguments.folder))
    return 0


def _verify(arguments: argparse.Namespace) -> int:
    need("numpy")
    from .data.verify import local_manifest, verify_dataset

    manifest = local_manifest(arguments.folder)
    faults = verify_dataset(arguments.folder)
    if faults:
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        raise DatasetError(f"{arguments.folder}: {faults[0]}{more}; sync it again")
    if arguments.md5_list is not None:
        from .data.md5_list import write_md5_list

        write_md5_list(
            arguments.md5_list, arguments.folder, [arguments.folder / shard.name for shard in manifest.shards]
        )
    report(manifest, f"{manifest.name}@{manifest.version} is as published", arguments.json)
    return 0
