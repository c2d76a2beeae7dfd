"""``trainer dataset make-sample|import|convert``: folders of shards from nothing, from other files, to other files."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from .contracts.manifests import DatasetManifest
from .errors import ConfigurationError
from .needs import need
from .progress import progress

SOURCES = ("images", "text", "cifar")
FORMS = ("shards", "tar", "hdf5", "tfrecord")


def add_parsers(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    make = commands.add_parser("make-sample", help="write a small dataset that a small model learns")
    make.add_argument("folder", type=Path)
    make.add_argument(
        "--kind",
        choices=("images", "text"),
        default="images",
        help='images: "shapes"; text: "sums", sentences of arithmetic, byte by byte (default: images)',
    )
    make.add_argument("--samples", type=int, default=4096, help="training samples (default: 4096)")
    make.add_argument("--test-samples", type=int, default=512, help="held-out samples (default: 512)")
    make.add_argument("--sequence-length", type=int, default=64, help="text: tokens a sample (default: 64)")
    make.add_argument("--seed", type=int, default=0)
    make.set_defaults(run=_make_sample)

    bring = commands.add_parser("import", help="pack images, text or a CIFAR archive into a folder of shards")
    bring.add_argument("kind", choices=SOURCES)
    bring.add_argument(
        "source", type=Path, help="images: CLASS/FILE or train/CLASS/FILE; text: a file or folder"
    )
    bring.add_argument("folder", type=Path, help="where the shards go; a new one")
    bring.add_argument("--size", type=int, metavar="PIXELS", help="images: cut to a square and scale to this")
    bring.add_argument("--grey", action="store_true", help="images: one channel instead of three")
    bring.add_argument(
        "--sequence-length", type=int, default=256, help="text: tokens a sample (default: 256)"
    )
    bring.add_argument(
        "--test-share", type=float, default=0.1, help="held out where the source has no split (default: 0.1)"
    )
    bring.add_argument(
        "--md5-list", type=Path, metavar="FILE", help="check the files first, as md5sum -c does"
    )
    bring.add_argument("--seed", type=int, default=0, help="of the order in which samples are mixed")
    bring.set_defaults(run=_import)

    turn = commands.add_parser("convert", help="shards to tar (WebDataset), hdf5 or tfrecord files, and back")
    turn.add_argument("source", type=Path)
    turn.add_argument("folder", type=Path, help="a new one")
    turn.add_argument("--to", choices=FORMS, required=True)
    turn.add_argument("--sequence-length", type=int, help="tokens to shards: tokens a sample")
    turn.set_defaults(run=_convert)
    for command in (bring, turn):
        command.add_argument(
            "--shard-mib", type=int, default=32, help="about the size of a shard (default: 32)"
        )
    for command in (make, bring, turn):
        command.add_argument("--json", action="store_true", help="print one JSON object instead of text")


def report(manifest: DatasetManifest, text: str, as_json: bool, **more: str) -> None:
    """One line or one JSON object on standard output."""
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
            "vocabulary": manifest.vocabulary,
            "sequenceLength": manifest.sequence_length,
            **more,
        }
        print(json.dumps(summary))
    else:
        counts = ", ".join(f"{count} {split}" for split, count in samples.items())
        of = (
            f"samples of {manifest.sequence_length} tokens, vocabulary {manifest.vocabulary}"
            if manifest.sequence_length
            else f"samples, {manifest.classes} classes"
        )
        shards = "1 shard" if len(manifest.shards) == 1 else f"{len(manifest.shards)} shards"
        print(f"{text}: {shards}, {size / 1e6:.1f} MB, {counts} {of}")


def _report_folder(arguments: argparse.Namespace, name: str) -> None:
    from .data.manifest import DatasetName
    from .data.publish import describe

    manifest = describe(arguments.folder, DatasetName(name, "v1"))
    report(manifest, f"wrote {arguments.folder}", arguments.json, folder=str(arguments.folder))


def _make_sample(arguments: argparse.Namespace) -> int:
    need("numpy")
    from .data.sample import make_sample, make_text_sample

    _at_least_one(arguments, "samples", "test_samples", "sequence_length")
    sizes = (arguments.folder, arguments.samples, arguments.test_samples, arguments.seed)
    if arguments.kind == "images":
        make_sample(*sizes)
    else:
        make_text_sample(*sizes, sequence_length=arguments.sequence_length)
    _report_folder(arguments, "shapes" if arguments.kind == "images" else "sums")
    return 0


def _import(arguments: argparse.Namespace) -> int:
    need("numpy")
    from .data import importing

    _at_least_one(arguments, "size", "sequence_length", "shard_mib")
    if not 0 <= arguments.test_share < 1:
        raise ConfigurationError("--test-share must be 0 or more and below 1")
    if arguments.md5_list is not None and arguments.kind == "cifar":
        raise ConfigurationError("--md5-list is for images and text; check an archive with md5sum -c")
    options = importing.Options(
        test_share=arguments.test_share,
        size=arguments.size,
        channels=1 if arguments.grey else 3,
        sequence_length=arguments.sequence_length,
        seed=arguments.seed,
        shard_bytes=arguments.shard_mib << 20,
        md5_list=arguments.md5_list,
    )
    work = {
        "images": importing.import_images,
        "text": importing.import_text,
        "cifar": importing.import_cifar,
    }[arguments.kind]
    with progress(f"importing {arguments.source}", "files", arguments.json) as show:
        work(arguments.source, arguments.folder, options, show)
    _report_folder(arguments, "imported")
    return 0


def _convert(arguments: argparse.Namespace) -> int:
    need("numpy")
    from .data.convert import convert

    _at_least_one(arguments, "sequence_length", "shard_mib")
    with progress(f"converting {arguments.source}", "files", arguments.json) as show:
        convert(
            arguments.source,
            arguments.folder,
            arguments.to,
            arguments.sequence_length,
            show,
            arguments.shard_mib << 20,
        )
    if arguments.to == "shards":
        _report_folder(arguments, "converted")
        return 0
    files = sorted(path.name for path in arguments.folder.iterdir() if path.suffix != ".json")
    if arguments.json:
        print(json.dumps({"folder": str(arguments.folder), "files": files}))
    else:
        print(f"wrote {arguments.folder}: {len(files)} {arguments.to} file(s), one a shard")
    return 0


def _at_least_one(arguments: argparse.Namespace, *names: str) -> None:
    for name in names:
        value = getattr(arguments, name)
        if value is not None and value < 1:
            raise ConfigurationError(f"--{name.replace('_', '-')} must be at least 1")
