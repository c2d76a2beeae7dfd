"""The S3 layer: conditional writes as outcomes, transfers that prove themselves, errors that name the object."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.awsrequest import AWSResponse
from botocore.exceptions import EndpointConnectionError, NoCredentialsError
from botocore.response import StreamingBody
from botocore.stub import Stubber
from trainer.errors import StoreError
from trainer.exit_codes import Exit
from trainer.part_file import PartFile
from trainer.store import IntegrityError, MissingObjectError, NoSpaceError, Put, Store, make_client, sha256_of

from tests.trainer.kit import REGION, Bench
from trainer import store as store_module


@pytest.fixture
def stubbed() -> Iterator[tuple[Store, Stubber]]:
    """A store whose answers are scripted; nothing goes over a network."""
    client = boto3.client("s3", region_name=REGION, aws_access_key_id="x", aws_secret_access_key="y")
    with Stubber(client) as stubber:
        yield Store(client), stubber
        stubber.assert_no_pending_responses()


@dataclass
class Answer:
    """What the scripted S3 says to one request; ``cut``: bytes of the body that are sent before it hangs up."""

    status: int = 200
    body: bytes = b""
    code: str = ""  # of an error document
    cut: int | None = None
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class ScriptedS3:
    """Answers request after request as told, and keeps what it was asked; the SDK in front of it is the real one."""

    answers: list[Answer] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def answer(self) -> Answer:
        given = self.answers.pop(0)
        if given.code:
            given.body = f"<Error><Code>{given.code}</Code><Message>because</Message></Error>".encode()
        return given


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Store, ScriptedS3]]:
    s3 = ScriptedS3()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # else the SDK waits in vain for "100 Continue"

        def reply(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            s3.asked.append(f"{self.command} {self.path}")
            answer = s3.answer()
            self.send_response(answer.status)
            self.send_header("Content-Length", str(len(answer.body)))
            for name, value in {"ETag": '"e"', **answer.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer.body[: answer.cut])
            self.close_connection = answer.cut is not None

        do_GET = do_HEAD = do_PUT = reply

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}",
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "y",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("time.sleep", lambda _: None)  # of the retries, the SDK's and the store's
    yield Store(region=REGION), s3
    server.shutdown()
    server.server_close()


def ranged(body: bytes, total: int = 4) -> dict[str, Any]:
    """What S3 answers to a range that begins at the first byte."""
    return {
        "Body": StreamingBody(io.BytesIO(body), len(body)),
        "ContentRange": f"bytes 0-3/{total}",
        "ETag": '"e"',
    }


def refuse(stubber: Stubber, operation: str, code: str, status: int, attempts: int = 0) -> None:
    stubber.add_client_error(
        operation, code, "because", status, response_meta={"RetryAttempts": attempts} if attempts else None
    )


def test_a_write_if_absent_happens_once(bench: Bench) -> None:
    first = bench.store.put(bench.bucket, "key", b"one", only_if_absent=True)
    second = bench.store.put(bench.bucket, "key", b"two", only_if_absent=True)
    assert first.written and not second.written
    fetched = bench.store.get(bench.bucket, "key")
    assert fetched is not None and (fetched.body, fetched.etag) == (b"one", first.etag)


def test_a_write_if_match_needs_the_value_that_was_read(bench: Bench) -> None:
    first = bench.store.put(bench.bucket, "key", b"one")
    second = bench.store.put(bench.bucket, "key", b"two", only_if_etag=first.etag)
    assert second.written
    assert bench.store.put(bench.bucket, "key", b"three", only_if_etag=first.etag) == Put(False)
    assert bench.store.put(bench.bucket, "gone", b"three", only_if_etag=first.etag) == Put(False)


def test_a_conflict_409_is_retried(stubbed: tuple[Store, Stubber]) -> None:
    store, stubber = stubbed
    refuse(stubber, "put_object", "ConditionalRequestConflict", 409)
    stubber.add_response("put_object", {"ETag": '"new"'})
    assert store.put("bucket", "key", b"x", only_if_absent=True) == Put(True, '"new"')


def test_a_write_whose_answer_was_lost_is_not_taken_for_a_rival(stubbed: tuple[Store, Stubber]) -> None:
    store, stubber = stubbed
    refuse(stubber, "put_object", "PreconditionFailed", 412, attempts=1)
    body = StreamingBody(io.BytesIO(b"mine"), 4)
    stubber.add_response("get_object", {"Body": body, "ContentLength": 4, "ETag": '"there"'})
    assert store.put("bucket", "key", b"mine", only_if_absent=True) == Put(True, '"there"')


def test_files_come_back_as_they_went(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "RANGE_BYTES", 1000)
    source, target = tmp_path / "source", tmp_path / "below" / "target"
    source.write_bytes(bytes(range(256)) * 17)
    digest, moved = sha256_of(source), []
    bench.store.upload(bench.bucket, "file", source, digest)
    bench.store.download(bench.bucket, "file", target, source.stat().st_size, digest, moved.append)
    assert target.read_bytes() == source.read_bytes()
    assert sum(moved) == source.stat().st_size and len(moved) == 4, (
        "a short rest is fetched with the range before it"
    )
    assert not list(target.parent.glob("*.part"))


def test_large_files_go_in_parts(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "MULTIPART_BYTES", 5 << 20)  # S3's smallest part
    source = tmp_path / "source"
    source.write_bytes(b"checkpoint" * 600_000)
    bench.store.upload(bench.bucket, "file", source, sha256_of(source))
    head = bench.store.head(bench.bucket, "file")
    assert head is not None and head.size_bytes == 6_000_000 and head.etag.endswith('-2"')


def test_a_part_that_arrives_altered_is_sent_again(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "MULTIPART_BYTES", 5 << 20)
    source, refusals, client = tmp_path / "source", [2, 1], make_client(REGION)
    source.write_bytes(b"checkpoint" * 600_000)

    class Told:
        def stream(self) -> Iterator[bytes]:
            yield b"<Error><Code>BadDigest</Code></Error>"

    def refuse(request: Any, **_: Any) -> AWSResponse | None:
        return AWSResponse(request.url, 400, {}, Told()) if refusals and refusals.pop() else None

    client.meta.events.register("before-send.s3.UploadPart", refuse)
    Store(client).upload(bench.bucket, "file", source, sha256_of(source))
    head = bench.store.head(bench.bucket, "file")
    assert not refusals and head is not None and head.size_bytes == 6_000_000


def test_a_download_that_is_not_the_expected_bytes_never_gets_the_name(bench: Bench, tmp_path: Path) -> None:
    bench.store.put(bench.bucket, "file", b"rotten")
    target = tmp_path / "target"
    with pytest.raises(IntegrityError, match=r"s3://.*/file has SHA-256"):
        bench.store.download(bench.bucket, "file", target, 6, "0" * 64)
    with pytest.raises(IntegrityError, match="has 6 bytes, its manifest says 7"):
        bench.store.download(bench.bucket, "file", target, 7, "0" * 64)
    with pytest.raises(MissingObjectError, match="there is no such object"):
        bench.store.download(bench.bucket, "absent", target, 7, "0" * 64)
    assert list(tmp_path.iterdir()) == []


def test_a_short_answer_is_noticed_and_asked_for_again(
    stubbed: tuple[Store, Stubber], tmp_path: Path
) -> None:
    store, stubber = stubbed
    target = tmp_path / "target"
    digest = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"  # of b"test"
    for content in (b"tes", b"test"):
        stubber.add_response("get_object", ranged(content))
    store.download("bucket", "key", target, 4, digest)
    assert target.read_bytes() == b"test"
    for _ in range(2):
        stubber.add_response("get_object", ranged(b"tes"))
    with pytest.raises(IntegrityError, match="came with 3 bytes"):
        store.download("bucket", "key", tmp_path / "other", 4, digest)


def test_an_object_that_changes_during_the_download_is_noticed(
    stubbed: tuple[Store, Stubber], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, stubber = stubbed
    monkeypatch.setattr(store_module, "RANGE_BYTES", 4)
    for _ in range(2):
        stubber.add_response("get_object", ranged(b"test", total=8))
        refuse(stubber, "get_object", "PreconditionFailed", 412)
    with pytest.raises(IntegrityError, match="changed while it was read"):
        store.download("bucket", "key", tmp_path / "target", 8, "0" * 64)


class TestAnInterruptedDownload:
    """What came before a crash is kept, as long as it is of the same object."""

    BODY = bytes(range(256)) * 8

    @pytest.fixture(autouse=True)
    def small_ranges(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(store_module, "RANGE_BYTES", 256)

    def fetch(self, bench: Bench, target: Path, fail_after: int | None = None) -> list[str]:
        """The ranges that were asked for; ``fail_after`` so many answers the network is gone."""
        asked: list[str] = []
        real = bench.store._s3.get_object

        def get(**request: str) -> Any:
            if fail_after is not None and len(asked) >= fail_after:
                raise EndpointConnectionError(endpoint_url="http://gone")
            asked.append(request["Range"])
            self.pinned.append(request.get("IfMatch"))
            return real(**request)

        size, digest = len(self.BODY), hashlib.sha256(self.BODY).hexdigest()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(bench.store._s3, "get_object", get)
            bench.store.download(bench.bucket, "key", target, size, digest, self.moved.append)
        return asked

    @pytest.fixture(autouse=True)
    def count(self) -> None:
        self.moved: list[int] = []
        self.pinned: list[str | None] = []

    def test_goes_on_with_the_ranges_that_are_missing(self, bench: Bench, tmp_path: Path) -> None:
        bench.store.put(bench.bucket, "key", self.BODY)
        with pytest.raises(StoreError, match="http://gone"):
            self.fetch(bench, tmp_path / "target", fail_after=5)
        assert not (tmp_path / "target").exists() and sum(self.moved) == 5 * 256
        self.moved.clear()
        etag = bench.store.head(bench.bucket, "key")
        assert etag is not None and self.pinned == [None] + [etag.etag] * 4
        assert len(self.fetch(bench, tmp_path / "target")) == 3 and self.pinned[5:] == [etag.etag] * 3
        assert sum(self.moved) == len(self.BODY)
        assert (tmp_path / "target").read_bytes() == self.BODY
        assert [path.name for path in tmp_path.iterdir()] == ["target"]

    def test_begins_anew_when_the_object_is_another_one(self, bench: Bench, tmp_path: Path) -> None:
        bench.store.put(bench.bucket, "key", b"x" * len(self.BODY))
        with pytest.raises(StoreError, match="http://gone"):
            self.fetch(bench, tmp_path / "target", fail_after=5)
        bench.store.put(bench.bucket, "key", self.BODY)
        self.fetch(bench, tmp_path / "target")
        assert (tmp_path / "target").read_bytes() == self.BODY

    @pytest.mark.parametrize("harm", ["bytes", "journal", "size"])
    def test_survives_a_part_that_a_power_cut_spoilt(self, bench: Bench, tmp_path: Path, harm: str) -> None:
        bench.store.put(bench.bucket, "key", self.BODY)
        with pytest.raises(StoreError, match="http://gone"):
            self.fetch(bench, tmp_path / "target", fail_after=5)
        part, journal = tmp_path / "target.part", tmp_path / "target.part.ranges"
        if harm == "bytes":
            part.write_bytes(bytes(len(self.BODY)))
        elif harm == "journal":
            journal.write_bytes(journal.read_bytes()[:7])
        else:
            part.write_bytes(part.read_bytes()[:100])
        self.fetch(bench, tmp_path / "target")
        assert (tmp_path / "target").read_bytes() == self.BODY

    def test_writes_nothing_more_once_it_has_failed(self, bench: Bench, tmp_path: Path) -> None:
        """All ranges under way are waited for before the file is closed: its handle's number is soon another file's."""
        bench.store.put(bench.bucket, "key", self.BODY)
        with pytest.raises(StoreError):
            self.fetch(bench, tmp_path / "target", fail_after=2)
        before = (tmp_path / "target.part").read_bytes(), (tmp_path / "target.part.ranges").read_text()
        assert bench.store._pool._work_queue.qsize() == 0
        assert before[1].count("\n") == 3  # its header and two ranges


def test_a_range_that_comes_twice_is_hashed_as_it_lies_in_the_file(
    scripted: tuple[Store, ScriptedS3], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first try brings wrong bytes before it is cut off; they must not stay in the running hash."""
    monkeypatch.setattr(store_module, "CHUNK_BYTES", 2)
    store, s3 = scripted
    whole = {"Content-Range": "bytes 0-3/4"}
    s3.answers = [Answer(206, body=b"beef", cut=3, headers=whole), Answer(206, body=b"test", headers=whole)]
    digest = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
    store.download("bucket", "key", tmp_path / "target", 4, digest)
    assert (tmp_path / "target").read_bytes() == b"test" and s3.answers == []


def test_ranges_that_come_before_their_turn_are_hashed_while_others_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of a download is no second reading of the file."""
    body = bytes(range(256)) * 4
    part = PartFile(tmp_path / "target", len(body), 256)
    part.pin('"e"')
    for start in (512, 256, 0, 768):
        for place in (start, start + 128):
            part.write(place, body[place : place + 128])
        part.keep(start)
    monkeypatch.setattr(os, "preadv", lambda *_: pytest.fail("read again"))
    assert part.finish(hashlib.sha256(body).hexdigest()) == hashlib.sha256(body).hexdigest()
    part.close()
    assert (tmp_path / "target").read_bytes() == body


def test_a_full_disk_is_told_and_not_tried_again(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.store.put(bench.bucket, "key", b"test")
    tries: list[int] = []

    def full(_file: int, _chunk: bytes, place: int) -> int:
        tries.append(place)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(NoSpaceError, match=r"s3://.*/key: the disk is full; make room"):
        bench.store.download(bench.bucket, "key", tmp_path / "target", 4, hashlib.sha256(b"test").hexdigest())
    assert tries == [0]


def test_an_object_that_is_too_short_is_an_integrity_fault(bench: Bench, tmp_path: Path) -> None:
    bench.store.put(bench.bucket, "empty", b"")
    with pytest.raises(IntegrityError):
        bench.store.download(bench.bucket, "empty", tmp_path / "target", 7, "0" * 64)


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        ("RequestTimeTooSkewed", "clock is more than 15 minutes off"),
        ("AccessDenied", "check the role's policy"),
        ("ExpiredToken", "renew them"),
        ("NoSuchBucket", "there is no such bucket"),
    ],
)
def test_refusals_name_the_object_and_the_way_out(
    stubbed: tuple[Store, Stubber], code: str, advice: str
) -> None:
    store, stubber = stubbed
    refuse(stubber, "get_object", code, 403)
    with pytest.raises(StoreError, match=advice) as raised:
        store.get("bucket", "some/key")
    assert "s3://bucket/some/key" in str(raised.value)
    assert raised.value.exit_code is Exit.S3


@pytest.mark.parametrize(
    "cause", [NoCredentialsError(), EndpointConnectionError(endpoint_url="http://127.0.0.1:9")]
)
def test_no_credentials_and_no_network_are_storage_faults(cause: Exception) -> None:
    class Broken:
        def put_object(self, **_arguments: Any) -> None:
            raise cause

        head_object = get_object = put_object

    store: Any = Store(Broken())  # type: ignore[arg-type]
    for call in (lambda: store.get("bucket", "key"), lambda: store.put("bucket", "key", b"")):
        with pytest.raises(StoreError, match="s3://bucket/key"):
            call()


@pytest.mark.parametrize(("status", "code"), [(503, "SlowDown"), (500, "InternalError")])
def test_a_bucket_that_wants_less_haste_or_fails_inside_is_asked_again(
    scripted: tuple[Store, ScriptedS3], status: int, code: str
) -> None:
    store, s3 = scripted
    s3.answers = [Answer(status, code=code), Answer(body=b"here")]
    fetched = store.get("bucket", "key")
    assert fetched is not None and fetched.body == b"here"


def test_a_bucket_that_never_answers_is_a_storage_fault_after_eight_tries(
    scripted: tuple[Store, ScriptedS3],
) -> None:
    store, s3 = scripted
    s3.answers = [Answer(500, code="InternalError") for _ in range(9)]
    with pytest.raises(StoreError, match="InternalError"):
        store.get("bucket", "key")
    assert len(s3.answers) == 1


@pytest.mark.parametrize("code", ["RequestTimeTooSkewed", "ExpiredToken"])
def test_what_a_repetition_would_not_mend_is_told_at_once(
    scripted: tuple[Store, ScriptedS3], code: str
) -> None:
    store, s3 = scripted
    s3.answers = [Answer(403, code=code)]
    with pytest.raises(StoreError, match=code):
        store.get("bucket", "key")
    assert s3.asked == ["GET /bucket/key"]


def test_conflicts_without_end_are_a_storage_fault_after_eight_tries(
    stubbed: tuple[Store, Stubber], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, stubber = stubbed
    monkeypatch.setattr("time.sleep", lambda _: None)
    for _ in range(8):
        refuse(stubber, "put_object", "ConditionalRequestConflict", 409)
    with pytest.raises(StoreError, match="ConditionalRequestConflict"):
        store.put("bucket", "key", b"x", only_if_absent=True)


def test_an_answer_that_is_cut_off_is_asked_for_again_three_times_in_all(
    scripted: tuple[Store, ScriptedS3],
) -> None:
    store, s3 = scripted
    s3.answers = [Answer(body=b"test", cut=2), Answer(body=b"test", cut=0), Answer(body=b"test")]
    fetched = store.get("bucket", "key")
    assert fetched is not None and fetched.body == b"test"
    s3.answers = [Answer(body=b"test", cut=2) for _ in range(4)]
    with pytest.raises(StoreError, match="s3://bucket/key"):
        store.get("bucket", "key")
    assert len(s3.answers) == 1


def test_an_answer_that_is_not_what_its_checksum_says_is_asked_for_again(
    scripted: tuple[Store, ScriptedS3],
) -> None:
    store, s3 = scripted
    digest = {"x-amz-checksum-sha256": "n4bQgYhMfWWaL+qgxVrQFaO/TxsrC4Is0V1sFbDwCgg="}  # of b"test"
    s3.answers = [Answer(body=b"rest", headers=digest), Answer(body=b"test", headers=digest)]
    fetched = store.get("bucket", "key")
    assert fetched is not None and fetched.body == b"test"
    s3.answers = [Answer(body=b"rest", headers=digest) for _ in range(3)]
    with pytest.raises(IntegrityError, match="s3://bucket/key"):
        store.get("bucket", "key")


def test_a_range_that_is_cut_off_is_asked_for_again_alone(
    scripted: tuple[Store, ScriptedS3], tmp_path: Path
) -> None:
    store, s3 = scripted
    whole = {"Content-Range": "bytes 0-3/4"}
    s3.answers = [Answer(206, body=b"test", cut=1, headers=whole), Answer(206, body=b"test", headers=whole)]
    digest = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
    store.download("bucket", "key", tmp_path / "target", 4, digest)
    assert (tmp_path / "target").read_bytes() == b"test"
    assert s3.asked == ["GET /bucket/key", "GET /bucket/key"]


def test_bytes_that_arrive_altered_are_sent_again_three_times_in_all(
    scripted: tuple[Store, ScriptedS3], tmp_path: Path
) -> None:
    store, s3 = scripted
    s3.answers = [Answer(400, code="BadDigest"), Answer()]
    assert store.put("bucket", "key", b"test").written
    s3.answers = [Answer(400, code="BadDigest") for _ in range(4)]
    with pytest.raises(IntegrityError, match="other bytes than were sent"):
        store.put("bucket", "key", b"test")
    assert len(s3.answers) == 1
    source, moved = tmp_path / "source", []
    source.write_bytes(b"test")
    found = {"x-amz-checksum-sha256": "n4bQgYhMfWWaL+qgxVrQFaO/TxsrC4Is0V1sFbDwCgg="}
    s3.answers = [Answer(400, code="BadDigest"), Answer(), Answer(body=b"test", headers=found)]
    store.upload("bucket", "key", source, sha256_of(source), moved.append)
    assert moved == [4], "counted once"
    s3.answers = [Answer(400, code="BadDigest") for _ in range(4)]
    with pytest.raises(IntegrityError, match="other bytes than were sent"):
        store.upload("bucket", "key", source, sha256_of(source))
    assert len(s3.answers) == 1


def test_every_call_has_time_limits_and_adaptive_retries() -> None:
    config = make_client(REGION).meta.config
    assert (config.connect_timeout, config.read_timeout) == (5, 60)
    assert config.retries == {"mode": "adaptive", "total_max_attempts": 8}


def test_a_missing_region_is_told_before_any_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "no-such-profile")
    with pytest.raises(StoreError, match="no-such-profile"):
        make_client()
