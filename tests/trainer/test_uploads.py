"""Events of a long run reach the bucket in segments, each byte about once, and are read as one file."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from trainer.agent import uploads
from trainer.agent.board import WORKER_LOG, Board
from trainer.agent.secret_values import Secrets
from trainer.agent.uploads import Logs
from trainer.contracts.worker import events_file
from trainer.errors import StoreError
from trainer.file_store import FileStore
from trainer.report.progress import progress_of
from trainer.report.reader import EventReader
from trainer.report.record import from_folder


class Bucket(FileStore):
    """Counts the bytes that it takes and gives, and can be out of reach."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.taken, self.given, self.out = 0, 0, False

    def put(self, bucket: str, key: str, body: bytes, **more: Any) -> Any:
        if self.out:
            raise StoreError("out of reach")
        self.taken += len(body)
        return super().put(bucket, key, body, **more)

    def get(self, bucket: str, key: str) -> Any:
        fetched = super().get(bucket, key)
        self.given += len(fetched.body) if fetched else 0
        return fetched


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    monkeypatch.setattr(uploads, "SEGMENT_BYTES", 1000)
    (tmp_path / "gen").mkdir()
    return Bucket(tmp_path / "bucket")


def logs(bucket: Bucket, folder: Path) -> Logs:
    config = SimpleNamespace(node_rank=0, run=SimpleNamespace(name="r"), generation=SimpleNamespace(n=3))
    workers = SimpleNamespace(folder=folder, config=config, secrets=Secrets())
    node = SimpleNamespace(board=Board(bucket, "b"), instance_id="i-1")
    return Logs(cast(Any, node), cast(Any, workers))


def line(step: int) -> str:
    return f'{{"kind":"step","time":{step}.0,"step":{step},"loss":0.5}}\n'


def test_every_upload_sends_the_last_segment_and_readers_see_one_file(bucket: Bucket, tmp_path: Path) -> None:
    log = logs(bucket, tmp_path / "gen")
    assert log.events()  # nothing there yet
    written = 0
    with open(events_file(tmp_path / "gen", 0), "w") as file:
        for step in range(1, 401):
            written += file.write(line(step))
            file.write(line(step + 1)[:9] if step % 10 == 0 else "")  # the worker is in the middle of a line
            file.flush()
            if step % 10 == 0:
                assert log.events()
                file.seek(file.tell() - 9)
                file.truncate()
    assert bucket.taken < 3 * written  # the whole file each time would be twenty times as much
    before = bucket.taken
    assert log.events() and bucket.taken == before  # nothing new, nothing sent

    reader, before = EventReader(bucket, "b", "r"), bucket.given
    (events,) = reader.look()
    assert list(events.steps.numbers) == list(range(1, 401))
    assert bucket.given - before == written
    assert (
        reader.look() == [events] and bucket.given - before == written
    )  # what is known is not fetched again
    (part,) = from_folder(tmp_path / "bucket").parts
    assert (part.generation, part.instance_id, len(part.steps)) == (3, "i-1", 400)


def test_what_the_bucket_did_not_take_comes_with_the_next_upload(bucket: Bucket, tmp_path: Path) -> None:
    log = logs(bucket, tmp_path / "gen")
    path = events_file(tmp_path / "gen", 0)
    path.write_text("".join(map(line, range(1, 11))))
    assert log.events()
    bucket.out = True
    path.write_text("".join(map(line, range(1, 101))))
    assert not log.events()
    bucket.out = False
    assert log.events()
    (part,) = EventReader(bucket, "b", "r").look()
    assert list(part.steps.numbers) == list(range(1, 101))


def test_whoever_watches_a_run_reads_on_from_where_it_was(bucket: Bucket, tmp_path: Path) -> None:
    log, reader = logs(bucket, tmp_path / "gen"), EventReader(bucket, "b", "r")
    assert reader.look() == []
    path = events_file(tmp_path / "gen", 0)
    for step in range(1, 61):
        with open(path, "a") as file:
            file.write(line(step))
        assert log.events()
        (part,) = reader.look()
        assert list(part.steps.numbers) == list(range(1, step + 1))
        assert progress_of([part]).step == step


def test_of_a_long_worker_log_only_the_end_is_read(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "LOG_BYTES", 1000)
    log, path = logs(bucket, tmp_path / "gen"), tmp_path / "gen" / WORKER_LOG
    lines = [f"line {number}\n" for number in range(1000)]
    path.write_text("".join(lines))
    os.truncate(
        path, path.stat().st_size + (1 << 40)
    )  # more than a machine's memory, without room on the disk
    with open(path, "ab") as file:
        file.write(b"\n" + "".join(lines).encode())
    assert log.worker_log()
    sent = bucket.get("b", f"runs/r/logs/gen-0003/i-1/{WORKER_LOG}").body.decode()
    assert len(sent) <= 1000 and sent == "".join(lines)[-len(sent) :] and sent.startswith("line ")
