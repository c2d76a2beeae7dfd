"""Events of a long run reach the bucket in segments, each byte about once, and are read as one file."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from trainer.agent import uploads
from trainer.agent.board import Board
from trainer.agent.secret_values import Secrets
from trainer.agent.uploads import Logs
from trainer.contracts.worker import events_file
from trainer.errors import StoreError
from trainer.file_store import FileStore
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

    board = Board(bucket, "b")
    before = bucket.given
    (events,) = board.events("r")
    assert [event.step for event in events] == list(range(1, 401))
    assert bucket.given - before == written
    assert board.events("r") and bucket.given - before == written  # what is known is not fetched again
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
    assert [event.step for event in Board(bucket, "b").events("r")[0]] == list(range(1, 101))
