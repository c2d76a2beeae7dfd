"""Evidence is read from the nodes' folders and the bucket as they are, torn last lines and foreign lines among them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from trainer.contracts import keys
from trainer.contracts.manifests import CheckpointFile, DatasetManifest, LatestPointer, Shard
from trainer.contracts.node_document import NodeDocument, Promise, Release, TorchSource
from trainer.contracts.run import Generation, Member, Versions
from trainer.contracts.worker import WorkerConfig, WorkerEvent

from localcloud.facts import Facts
from localcloud.faults.evidence import NodeLife, NodeStop, collect
from tests.unit.faults_story import config, manifest, result

STATE = "state.pt"


class Bucket:
    """As much of an S3 client as `Facts` uses to read."""

    def __init__(self, objects: dict[str, bytes]):
        self.objects = objects

    def get_object(self, Bucket: str, Key: str) -> dict[str, Any]:
        from io import BytesIO

        from botocore.exceptions import ClientError

        if Key not in self.objects:
            raise ClientError({"Error": {"Code": "NoSuchKey"}}, "GetObject")
        return {"Body": BytesIO(self.objects[Key])}

    def get_paginator(self, _name: str) -> Bucket:
        return self

    def paginate(self, Bucket: str, Prefix: str) -> Iterator[dict[str, Any]]:
        for key in sorted(self.objects):  # a page each
            if key.startswith(Prefix):
                yield {"Contents": [{"Key": key}]}


def facts_of(objects: dict[str, bytes]) -> Facts:
    facts = Facts("http://127.0.0.1:1", "us-east-1", "artifacts")
    facts.s3 = Bucket(objects)
    return facts


def bucket_of_a_run(state: bytes = b"weights") -> dict[str, bytes]:
    named = hashlib.sha256(b"weights").hexdigest()
    newest = manifest(12, 2).model_copy(
        update={"files": [CheckpointFile(name=STATE, size_bytes=7, sha256=named)]}
    )
    text = newest.to_json().encode()
    pointer = LatestPointer(step=12, generation=2, manifest_sha256=hashlib.sha256(text).hexdigest())
    return {
        keys.run_config("r"): config().to_json().encode(),
        keys.result("r"): result().to_json().encode(),
        keys.checkpoint("r", 12, "manifest.json"): text,
        keys.checkpoint("r", 12, STATE): state,
        keys.checkpoint("r", 7, "manifest.json"): manifest(7, 1).to_json().encode(),
        keys.checkpoint("r", 4, "manifest.json"): b"<Error/>",
        keys.latest("r"): pointer.to_json().encode(),
    }


def put_node(nodes: Path, instance_id: str, state: str, console: str = "") -> Path:
    """Its state folder."""
    folder = nodes / instance_id
    folder.mkdir(parents=True)
    record = {"state": state, "bootedAt": 50.0, "updatedAt": "1970-01-01T00:01:50.000+00:00"}
    (folder / "node.json").write_text(json.dumps(record))
    (folder / "console.log").write_text(console)
    return folder / "root" / "var" / "lib" / "trainer"


def put_generation(state: Path, n: int, rank: int, text: str) -> Path:
    folder = state / "runs" / "r" / f"gen-{n:04d}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"events-rank{rank}.jsonl").write_text(text)
    return folder


def worker_config(*ids: str) -> WorkerConfig:
    members = [Member(instance_id=id_, group="g", address="10.0.0.1", local_world_size=1) for id_ in ids]
    versions = Versions(trainer="1", torch="2")
    return WorkerConfig(
        run=config(),
        generation=Generation(
            n=1,
            members=members,
            master_address="10.0.0.1",
            master_port=1,
            versions=versions,
            published_at="",
        ),
        node_rank=0,
        document=NodeDocument(
            stack="local",
            group="g",
            auto_scaling_group="g",
            region="us-east-1",
            artifacts_bucket="artifacts",
            release=Release(uri="s3://a/b", sha256="0" * 64, version="1"),
            interpreter="/usr/bin/python3",
            torch=TorchSource(site_packages="/x"),
            promise=Promise(instance_type="t", accelerator="none", gpu_count=0),
            launching_hook="l",
            terminating_hook="t",
            log_group="g",
        ),
        state_dir="/s",
        data_dir="/d",
        device="cpu",
    )


def event(time: float, step: int) -> str:
    return WorkerEvent(kind="step", time=time, step=step, loss=0.5).to_line()


def test_generations_come_from_all_nodes_and_a_torn_last_line_is_skipped(tmp_path: Path):
    first = put_node(tmp_path / "nodes", "i-1", "running")
    second = put_node(tmp_path / "nodes", "i-2", "gone")
    torn = event(101.0, 1) + event(102.0, 2)[:20]
    folder = put_generation(first, 1, 0, torn)
    put_generation(second, 1, 1, event(101.1, 1))
    put_generation(first, 2, 0, event(140.0, 2))
    (folder / "worker.json").write_text(worker_config("i-1", "i-2").to_json())
    evidence = collect(tmp_path, "r", facts_of(bucket_of_a_run()))
    one, two = evidence.generations
    assert (one.n, two.n) == (1, 2)
    assert {key: [e.step for e in events] for key, events in one.by_rank.items()} == {
        ("i-1", 0): [1],
        ("i-2", 1): [1],
    }
    assert [e.time for e in one.rank0] == [101.0]
    assert one.members == ("i-1", "i-2")
    assert two.members is None
    assert evidence.lives == (NodeLife("i-1", 50.0, None), NodeLife("i-2", 50.0, 110.0))


def test_the_agents_lines_are_told_from_all_others_of_a_console(tmp_path: Path):
    json_line = json.dumps(
        {"event": "stopping workers", "level": "warning", "why": "x", "time": "1970-01-01T00:01:49.500000Z"}
    )
    ended = json.dumps(
        {
            "event": "agent ended",
            "level": "error",
            "code": 10,
            "reason": "no device",
            "time": "1970-01-01T00:01:52Z",
        }
    )
    console = "\n".join(
        [
            "1970-01-01T00:01:40.000Z bootstrap: agent started",
            "1970-01-01T00:01:40.100Z Started {not json} trainer.service",
            '1970-01-01T00:01:40.200Z {"a": "program\'s own", "time": 3}',
            f"1970-01-01T00:01:49.600Z {json_line}",
            "1970-01-01T00:01:51.000Z bootstrap: FAILED 55 BOOT_RELEASE_HASH: another; publish it again",
            f"1970-01-01T00:01:52.000Z {ended}",
            f"1970-01-01T00:01:53.000Z {json_line[:40]}",
        ]
    )
    put_node(tmp_path / "nodes", "i-1", "running", console)
    evidence = collect(tmp_path, "r", facts_of(bucket_of_a_run()))
    assert [(e.time, e.instance_id, e.level, e.event) for e in evidence.agent_lines] == [
        (109.5, "i-1", "warning", "stopping workers"),
        (112.0, "i-1", "error", "agent ended"),
    ]
    assert evidence.agent_lines[0].fields["why"] == "x"
    assert evidence.node_stops == (
        NodeStop(111.0, "i-1", 55, "55 BOOT_RELEASE_HASH: another; publish it again"),
        NodeStop(112.0, "i-1", 10, "no device"),
    )


def test_the_bucket_tells_configuration_result_and_checkpoints(tmp_path: Path):
    evidence = collect(tmp_path, "r", facts_of(bucket_of_a_run()))
    assert evidence.config == config()
    assert evidence.result == result()
    assert [(m.step, m.generation) for m in evidence.manifests] == [(7, 1), (12, 2)]
    assert evidence.broken_manifests == (keys.checkpoint("r", 4, "manifest.json"),)
    assert cast(LatestPointer, evidence.latest).step == 12
    assert evidence.checkpoint_verified


def test_a_checkpoint_with_other_bytes_is_not_verified(tmp_path: Path):
    assert not collect(tmp_path, "r", facts_of(bucket_of_a_run(b"others"))).checkpoint_verified


def test_a_run_that_has_nothing_yet_is_no_fault_of_the_reader(tmp_path: Path):
    evidence = collect(tmp_path, "r", facts_of({}))
    assert (evidence.config, evidence.result, evidence.latest) == (None, None, None)
    assert (evidence.generations, evidence.manifests) == ((), ())


@pytest.mark.parametrize("synced", [True, False])
def test_the_training_samples_are_those_of_the_synced_dataset(tmp_path: Path, synced: bool):
    state = put_node(tmp_path / "nodes", "i-1", "running")
    shards = [
        Shard(name=f"{split}-{place}", size_bytes=1, sha256="0" * 64, samples=samples, split=split)
        for place, (split, samples) in enumerate([("train", 30), ("train", 10), ("test", 5)])
    ]
    if synced:
        folder = state / "data" / "d" / "v1"
        folder.mkdir(parents=True)
        text = DatasetManifest(name="d", version="v1", format="f", shards=shards).to_json()
        (folder / "manifest.json").write_text(text)
    evidence = collect(tmp_path, "r", facts_of(bucket_of_a_run()))
    assert evidence.train_samples == (40 if synced else None)
