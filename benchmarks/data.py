"""Datasets against the tools that others use: sync, many small files, sample rate.

    python -m localcloud.toolchain exec workbench -m benchmarks.data [--quick] [--rounds 5] [--json]

Contestants take turns, so that all meet the same machine, and are given as ratios of one round to the same round of
ours: above 1 we are faster. Every sync is a process of its own, started cold, into an empty folder.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import numpy as np
from trainer.contracts import keys
from trainer.contracts.cluster import Cluster, GroupInfo
from trainer.contracts.node_document import DatasetLocation
from trainer.data.convert import convert
from trainer.data.manifest import DatasetName
from trainer.data.publish import describe

from localcloud.toolchain import ROOT, Failed
from localcloud.toolchain import paths as tools

from . import sample_rates
from .races import Race, say, turn
from .s3_server import s3_server

BUCKET = "bench"
LIMIT_SECONDS = 300  # of one command


@dataclass(frozen=True)
class Sizes:
    shards: int = 64
    shard_mib: int = 16
    files: int = 20_000
    samples: int = 20_000


QUICK = Sizes(shards=16, shard_mib=4, files=1_000, samples=5_000)


@dataclass(frozen=True)
class Figures:
    server: str
    races: list[Race]
    notes: list[str]


def measure(sizes: Sizes = Sizes(), rounds: int = 5) -> Figures:
    """Raises Failed where a command fails or is stuck."""
    with tempfile.TemporaryDirectory(prefix="gpu-training-bench-") as folder:
        work = Path(folder)
        try:
            with s3_server(work / "s3") as (server, environment):
                bench = Bench(work, environment, rounds)
                races = [*bench.sync(sizes), *bench.small_files(sizes)]
        except subprocess.SubprocessError as fault:
            raise Failed(str(fault)) from fault
        notes = [f"S3 is {server} on this machine.", *bench.notes]
        say(" ".join(notes))
        return Figures(server, [*races, *rates(work, sizes, rounds)], notes)


def rows(figures: Figures) -> list[tuple[str, str, str, str]]:
    """For the table of `make bench`: what, median, lowest to highest, held to."""
    return [race.row() for race in figures.races]


def to_json(figures: Figures) -> dict[str, Any]:
    return {
        "server": figures.server,
        "races": [race.to_json() for race in figures.races],
        "notes": figures.notes,
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.data", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes: do the parts work?")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    try:
        figures = measure(QUICK if asked.quick else Sizes(), asked.rounds)
    except Failed as fault:
        print(f"bench: {fault}", file=sys.stderr)
        return 1
    print(json.dumps(to_json(figures)) if asked.json else "\n".join(" | ".join(row) for row in rows(figures)))
    return 0


class Bench:
    """A stack's bucket on a server, and commands that are timed against each other."""

    def __init__(self, work: Path, environment: dict[str, str], rounds: int) -> None:
        self.work, self.rounds = work, rounds
        paths = [str(ROOT / "trainer" / "src"), os.environ.get("PYTHONPATH", "")]
        self.environment = {**environment, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        self.notes: list[str] = []
        s3: Any = boto3.client(
            "s3",
            endpoint_url=environment["AWS_ENDPOINT_URL"],
            region_name=environment["AWS_REGION"],
            aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
        )
        s3.create_bucket(Bucket=BUCKET)
        cluster = Cluster(
            stack="bench",
            region="us-east-1",
            artifacts_bucket=BUCKET,
            groups={"g": GroupInfo(auto_scaling_group="g", max_nodes=1)},
            datasets={
                name: DatasetLocation(bucket=BUCKET, prefix=f"datasets/{name}/")
                for name in ("large", "small")
            },
        )
        s3.put_object(Bucket=BUCKET, Key=keys.cluster(), Body=cluster.to_json().encode())
        self.s5cmd, self.aws = _tool("s5cmd", Path(sys.executable)), _tool("aws", tools().python_image)

    def trainer(self, *words: object) -> list[str]:
        return [sys.executable, "-m", "trainer", "dataset", *map(str, words)]

    def seconds(self, command: list[str]) -> float:
        before = time.perf_counter()
        answer = subprocess.run(
            command,
            env=self.environment,
            cwd=self.work,
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
        )
        taken = time.perf_counter() - before
        if answer.returncode:
            raise Failed(f"{' '.join(command[:4])} ... failed: {answer.stderr.strip()[-500:]}")
        return taken

    def into_empty(self, command: Callable[[Path], list[str]]) -> float:
        target = self.work / "target"
        shutil.rmtree(target, ignore_errors=True)
        return self.seconds(command(target))

    def sync(self, sizes: Sizes) -> list[Race]:
        source = self.work / "large"
        source.mkdir()
        rng = np.random.default_rng(0)
        samples = (sizes.shard_mib << 20) // (3 * 64 * 64)
        for number in range(sizes.shards):
            images = rng.integers(0, 256, (samples, 3, 64, 64), np.uint8)
            np.savez(source / f"train-{number:05d}.npz", images=images, labels=rng.integers(0, 10, samples))
        publishing = ("publish", source, "large@v1", "--artifacts-bucket", BUCKET)
        gib = sizes.shards * sizes.shard_mib / 1024
        self.notes.append(f"Publishing {gib:.2f} GiB took {self.seconds(self.trainer(*publishing)):.1f} s.")
        shutil.rmtree(source)
        raw = f"s3://{BUCKET}/datasets/large/v1/"
        taken = self.take_turns(
            {
                "ours": lambda to: self.trainer("sync", "large@v1", to, "--artifacts-bucket", BUCKET),
                "aws s3 sync": lambda to: [str(self.aws), "s3", "sync", "--only-show-errors", raw, str(to)],
                "s5cmd cp": lambda to: [str(self.s5cmd), "cp", f"{raw}*", f"{to}/"],
            }
        )
        what = f"sync and verify {gib:.2f} GiB in {sizes.shards} shards"
        targets = {"aws s3 sync": 1.0, "s5cmd cp": 0.8}
        return [Race(what, peer, target, taken["ours"], taken[peer], "s") for peer, target in targets.items()]

    def small_files(self, sizes: Sizes) -> list[Race]:
        source = self.work / "pictures"
        _write_pictures(source, sizes.files)
        importing = self.seconds(self.trainer("import", "images", source, "packed"))
        publishing = self.seconds(self.trainer("publish", "packed", "small@v1", "--artifacts-bucket", BUCKET))
        self.notes.append(
            f"Importing {sizes.files} files took {importing:.1f} s and publishing them {publishing:.1f} s, once."
        )
        raw = f"s3://{BUCKET}/raw/"
        if self.s5cmd is not None:
            uploading = self.seconds([self.s5cmd, "cp", f"{source}/", raw])
            self.notes.append(f"s5cmd uploaded the raw files in {uploading:.1f} s.")
        taken = self.take_turns(
            {
                "ours": lambda to: self.trainer("sync", "small@v1", to, "--artifacts-bucket", BUCKET),
                "s5cmd cp": lambda to: [str(self.s5cmd), "cp", f"{raw}*", f"{to}/"],
            }
        )
        what = f"{sizes.files} small files on the node"
        return [Race(what, "s5cmd cp of the raw files", 1.0, taken["ours"], taken["s5cmd cp"], "s")]

    def take_turns(self, contestants: dict[str, Callable[[Path], list[str]]]) -> dict[str, list[float]]:
        """Seconds, round by round; none of a contestant that is not installed."""
        absent = {"aws s3 sync": self.aws is None, "s5cmd cp": self.s5cmd is None}
        taken: dict[str, list[float]] = {name: [] for name in contestants}
        for number in range(self.rounds):
            say(f"data, round {number + 1} of {self.rounds}: {', '.join(contestants)}")
            for name in turn(contestants, number):
                if not absent.get(name):
                    taken[name].append(self.into_empty(contestants[name]))
        return taken


def rates(work: Path, sizes: Sizes, rounds: int) -> list[Race]:
    """Reading in this process, and by two loaders."""
    shards, tars = work / "samples", work / "tars"
    shards.mkdir()
    rng = np.random.default_rng(0)
    for number in range(8):
        images = rng.integers(0, 256, (sizes.samples // 8, 3, 32, 32), np.uint8)
        np.savez(shards / f"train-{number}.npz", images=images, labels=rng.integers(0, 10, len(images)))
    convert(shards, tars, "tar", None, lambda _done, _total: None)
    manifest = describe(shards, DatasetName("samples", "v1"))
    races: list[Race] = []
    for workers in (0, 2):
        passes: dict[str, sample_rates.Pass | None] = {
            "ours": sample_rates.ours(shards, manifest, workers, None),
            "streamed": sample_rates.ours(shards, manifest, workers, 2),
            "plain DataLoader, in memory": sample_rates.plain(shards, workers),
            "WebDataset": sample_rates.web(tars, workers),
        }
        rate: dict[str, list[float]] = {name: [] for name in passes}
        where = "in the process" if workers == 0 else f"{workers} loaders"
        for number in range(rounds + 1):
            say(f"sample rates {where}, round {number} of {rounds}")
            for name in turn(passes, number):
                if (epoch := passes[name]) is None:
                    continue
                count, seconds = epoch()
                if number:  # the first one fills the page cache
                    rate[name].append(count / seconds)
        races += [
            Race(f"{what} {where}", peer, 1.0, rate[mine], rate[peer], "samples/s")
            for mine, what, peer in (
                ("ours", "samples", "plain DataLoader, in memory"),
                ("ours", "samples", "WebDataset"),
                ("streamed", "samples in a streamed run's order", "WebDataset"),
            )
        ]
    return races


def _write_pictures(folder: Path, count: int) -> None:
    from PIL import Image

    rng = np.random.default_rng(0)
    for label in range(10):
        (folder / f"class-{label}").mkdir(parents=True)
    for number in range(count):
        pixels = rng.integers(0, 256, (24, 24, 3), np.uint8)
        Image.fromarray(pixels).save(folder / f"class-{number % 10}" / f"{number:06d}.png")


def _tool(name: str, python: Path) -> str | None:
    """Of that Python's environment, whose version is locked; else from PATH."""
    beside = python.with_name(name)
    return str(beside) if beside.exists() else shutil.which(name)


if __name__ == "__main__":
    sys.exit(main())
