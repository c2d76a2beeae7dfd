"""What the trainer's tests share: a bucket, a numbered dataset, and worlds of real worker processes."""

from __future__ import annotations

import json
import multiprocessing
import os
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from moto.server import ThreadedMotoServer
from trainer.contracts.node_document import DatasetLocation, NodeDocument, Promise, Release, TorchSource
from trainer.contracts.run import Generation, Member, RunConfig, TrainingConfig, Versions
from trainer.contracts.worker import ExitReport, WorkerConfig, exit_file
from trainer.data.manifest import DatasetName
from trainer.data.publish import describe, publish_dataset
from trainer.data.sync import sync_dataset, version_dir
from trainer.store import Store

REGION = "eu-central-1"
RECORD_VARIABLE = "TRAINER_TEST_RECORD"


@contextmanager
def s3_server() -> Iterator[None]:
    """An S3 on loopback that the SDK's own variables point to."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        patch.setenv("AWS_REGION", REGION)
        patch.setenv("AWS_DEFAULT_REGION", REGION)
        patch.setenv("AWS_ACCESS_KEY_ID", "testing")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
        patch.delenv("AWS_PROFILE", raising=False)
        try:
            yield
        finally:
            server.stop()


def new_bucket() -> str:
    """The name of a fresh bucket; tests that share a server do not share it."""
    import boto3

    name = f"test-{uuid4().hex[:12]}"
    boto3.client("s3").create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": REGION})
    return name


def numbered_images(numbers: np.ndarray[Any, Any]) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Images [n, 1, 8, 8] whose first two pixels spell the sample's number and whose rest has a class's tone."""
    rng = np.random.default_rng(1)
    images = (40 * (numbers % 4)[:, None, None, None] + rng.integers(0, 30, (len(numbers), 1, 8, 8))).astype(
        np.uint8
    )
    images[:, 0, 0, 0], images[:, 0, 0, 1] = numbers // 256, numbers % 256
    return images


def write_numbered_dataset(folder: Path, samples: int = 96, test_samples: int = 20) -> None:
    """Three training shards and one of held-out samples; sample i of the split carries the number i."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, count, shards in (("train", samples, 3), ("test", test_samples, 1)):
        for shard, numbers in enumerate(np.array_split(np.arange(count), shards)):
            labels = (numbers % 4).astype(np.int64)
            np.savez(folder / f"{split}-{shard}.npz", images=numbered_images(numbers), labels=labels)


def numbers_of(images: Any) -> list[int]:
    """The inverse, for a float batch in 0..1."""
    pixels = (images[:, 0, 0, :2] * 255).round().long()
    return (pixels[:, 0] * 256 + pixels[:, 1]).tolist()


@dataclass
class Bench:
    """A bucket with a published dataset, synced to a node's folder."""

    root: Path
    bucket: str
    store: Store

    @property
    def location(self) -> DatasetLocation:
        return DatasetLocation(bucket=self.bucket, prefix="datasets/numbers/")

    def publish(self, **sizes: int) -> None:
        source = self.root / "source"
        write_numbered_dataset(source, **sizes)
        publish_dataset(self.store, self.location, source, describe(source, DatasetName("numbers", "v1")))
        sync_dataset(
            self.store, self.location, "numbers", "v1", version_dir(self.root / "data", "numbers", "v1")
        )


def run_config(name: str = "run", nodes: int = 1, **training: Any) -> RunConfig:
    settings: dict[str, Any] = {
        "model": "tests.trainer.recorder:build",
        "dataset": "numbers@v1",
        "steps": 6,
        "global_batch_size": 16,
        "learning_rate": 3e-3,
        "seed": 5,
        "checkpoint": {"every_seconds": 3600, "keep": 2},
    }
    return RunConfig(
        name=name,
        groups=["local"],
        nodes=nodes,
        training=TrainingConfig(**{**settings, **training}),
        created_at="2026-11-30T00:00:00Z",
    )


def worker_config(
    bench: Bench, run: RunConfig, generation: int, world: int, node: str = "node"
) -> WorkerConfig:
    member = Member(instance_id="i-0", group="local", address="127.0.0.1", local_world_size=world)
    digest = "0" * 64
    return WorkerConfig(
        run=run,
        generation=Generation(
            n=generation,
            members=[member],
            master_address="127.0.0.1",
            master_port=29500,
            versions=Versions(trainer="0", torch="0"),
            published_at="2026-11-30T00:00:00Z",
        ),
        node_rank=0,
        document=NodeDocument(
            stack="test",
            group="local",
            auto_scaling_group="test-local",
            region=REGION,
            artifacts_bucket=bench.bucket,
            release=Release(uri="s3://bucket/release.tar", sha256=digest, version="0"),
            interpreter=sys.executable,
            torch=TorchSource(site_packages="/opt/pytorch"),
            promise=Promise(instance_type="local", accelerator="none", gpu_count=0),
            launching_hook="launching",
            terminating_hook="terminating",
            log_group="/test/nodes",
            datasets={"numbers": bench.location},
        ),
        state_dir=str(bench.root / node),
        data_dir=str(bench.root / "data"),
        device="cpu",
    )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def rank_environment(rank: int, world: int, port: int, record: Path | None) -> dict[str, str]:
    variables = {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(world),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
        RECORD_VARIABLE: str(record / f"rank{rank}") if record else "",
    }
    return {**variables, **{name: value for name, value in os.environ.items() if name.startswith("AWS_")}}


def _rank_main(worker_file: str, environment: dict[str, str], log: str) -> None:
    """One rank, in a process that has torch loaded already; as ``python -m trainer.worker`` would do it."""
    os.environ.update(environment)
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    import torch

    from trainer import worker

    torch.set_num_threads(1)
    code = worker.main([worker_file])
    sys.stderr.flush()
    os._exit(code)


def fork_context() -> ForkServerContext:
    """Ranks are forked from a clean process that has imported once what every rank would (10 s of it)."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch._dynamo", "trainer.worker", "tests.trainer.recorder"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(entry for entry in sys.path if entry))
        forkserver.ensure_running()
    return context


class Ranks:
    """All ranks of one generation, running."""

    def __init__(self, bench: Bench, run: RunConfig, generation: int, world: int, node: str = "node") -> None:
        self.gen_dir = bench.root / node / "runs" / run.name / f"gen-{generation:04d}"
        self.gen_dir.mkdir(parents=True)
        self.record = self.gen_dir / "record"
        self.record.mkdir()
        self.log = self.gen_dir / "worker.log"
        worker_file = self.gen_dir / "worker.json"
        worker_file.write_text(worker_config(bench, run, generation, world, node).to_json())
        context = fork_context()
        port = free_port()
        self.processes = []
        for rank in range(world):
            environment = rank_environment(rank, world, port, self.record)
            process = context.Process(target=_rank_main, args=(str(worker_file), environment, str(self.log)))
            process.start()
            self.processes.append(process)

    def wait(self, seconds: float = 120) -> list[int | None]:
        """The exit codes by rank; whoever is still there after the limit is killed and the test fails."""
        try:
            for process in self.processes:
                process.join(seconds)
                assert process.exitcode is not None, (
                    f"rank still runs after {seconds} s: {self.log.read_text()}"
                )
            return [process.exitcode for process in self.processes]
        finally:
            for process in self.processes:
                if process.exitcode is None:
                    process.kill()
                    process.join()

    def events(self, rank: int = 0, kind: str | None = None) -> list[dict[str, Any]]:
        path = self.gen_dir / f"events-rank{rank}.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [event for event in lines if kind in (None, event["kind"])]

    def losses(self) -> list[float]:
        return [event["loss"] for event in self.events(0, "step")]

    def report(self, rank: int) -> ExitReport:
        return ExitReport.from_json(exit_file(self.gen_dir, rank).read_text())

    def samples(self) -> list[int]:
        """Training samples of all ranks in the run's global order, as the model saw them."""
        by_rank: list[list[list[int]]] = []
        for rank in range(len(self.processes)):
            lines = (self.record / f"rank{rank}").read_text().splitlines()
            by_rank.append([json.loads(line) for line in lines])
        return merged(by_rank)


def merged(by_rank: Sequence[Sequence[Sequence[int]]]) -> list[int]:
    """Sample i of a step is sample i // world of rank i mod world; the first ranks may have one more."""
    steps = zip(*by_rank, strict=True)
    return [number for step in steps for row in zip_longest(*step) for number in row if number is not None]
