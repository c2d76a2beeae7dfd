"""The S3 layer: conditional writes as outcomes, transfers that prove themselves, errors that name the object."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import EndpointConnectionError, NoCredentialsError
from botocore.response import StreamingBody
from botocore.stub import Stubber
from trainer.errors import StoreError
from trainer.exit_codes import Exit
from trainer.store import IntegrityError, MissingObjectError, Put, Store, make_client, sha256_of

from tests.trainer.kit import REGION, Bench
from trainer import store as store_module


@pytest.fixture
def stubbed() -> Iterator[tuple[Store, Stubber]]:
    """A store whose answers are scripted; nothing goes over a network."""
    client = boto3.client("s3", region_name=REGION, aws_access_key_id="x", aws_secret_access_key="y")
    with Stubber(client) as stubber:
        yield Store(client), stubber
        stubber.assert_no_pending_responses()


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
    assert sum(moved) == source.stat().st_size and len(moved) == 5
    assert not list(target.parent.glob("*.part"))


def test_large_files_go_in_parts(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "MULTIPART_BYTES", 5 << 20)  # S3's smallest part
    source = tmp_path / "source"
    source.write_bytes(b"checkpoint" * 600_000)
    bench.store.upload(bench.bucket, "file", source, sha256_of(source))
    head = bench.store.head(bench.bucket, "file")
    assert head is not None and head.size_bytes == 6_000_000 and head.etag.endswith('-2"')


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
        stubber.add_response("head_object", {"ContentLength": 4, "ETag": '"e"'})
        stubber.add_response("get_object", {"Body": StreamingBody(io.BytesIO(content), len(content))})
    store.download("bucket", "key", target, 4, digest)
    assert target.read_bytes() == b"test"
    for _ in range(2):
        stubber.add_response("head_object", {"ContentLength": 4, "ETag": '"e"'})
        stubber.add_response("get_object", {"Body": StreamingBody(io.BytesIO(b"tes"), 3)})
    with pytest.raises(IntegrityError, match="came with 3 bytes"):
        store.download("bucket", "key", tmp_path / "other", 4, digest)


def test_an_object_that_changes_during_the_download_is_noticed(
    stubbed: tuple[Store, Stubber], tmp_path: Path
) -> None:
    store, stubber = stubbed
    for _ in range(2):
        stubber.add_response("head_object", {"ContentLength": 4, "ETag": '"e"'})
        refuse(stubber, "get_object", "PreconditionFailed", 412)
    with pytest.raises(IntegrityError, match="changed while it was read"):
        store.download("bucket", "key", tmp_path / "target", 4, "0" * 64)


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


def test_a_missing_region_is_told_before_any_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "no-such-profile")
    with pytest.raises(StoreError, match="no-such-profile"):
        make_client()
