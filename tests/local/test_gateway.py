"""Nodes reach the AWS emulation through the gateway: all passes, and a client sees faults as S3 shows them."""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import os
import socket
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    FlexibleChecksumError,
    ResponseStreamingError,
)

from localcloud.aws.server import AwsServer
from localcloud.gateway.control import Rule, clear, injected, set_rules
from localcloud.gateway.server import Gateway
from tests.local.cloud_kit import REGION, client

ROOT = Path(__file__).parents[2]
BODY = bytes(range(256)) * 40
SIGNED = (
    "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"
)


@pytest.fixture(scope="module")
def aws() -> Iterator[AwsServer]:
    with AwsServer() as server:
        client("s3", server.endpoint).create_bucket(Bucket="bucket")
        yield server


@pytest.fixture(scope="module")
def running(aws: AwsServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Gateway, Path]]:
    state = tmp_path_factory.mktemp("gateway")
    with Gateway(aws.endpoint, state) as gateway:
        yield gateway, state


@pytest.fixture
def gateway(running: tuple[Gateway, Path]) -> Gateway:
    return running[0]


@pytest.fixture
def state(running: tuple[Gateway, Path]) -> Iterator[Path]:
    yield running[1]
    clear(running[1])


def one_try(endpoint: str) -> Any:
    """A client that tries once, so that a test sees what the first answer was."""
    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name=REGION,
        aws_access_key_id="test",
        aws_secret_access_key="test",
        config=Config(retries={"total_max_attempts": 1}, connect_timeout=5, read_timeout=10),
    )


@pytest.fixture
def s3(gateway: Gateway) -> Any:
    found = one_try(gateway.endpoint)
    found.put_object(Bucket="bucket", Key="there", Body=BODY)
    return found


@pytest.fixture
def direct(aws: AwsServer) -> Any:
    return one_try(aws.endpoint)


def read(s3: Any, key: str = "there") -> bytes:
    return s3.get_object(Bucket="bucket", Key=key)["Body"].read()


def absent(s3: Any, key: str) -> bool:
    return not [
        item for item in s3.list_objects_v2(Bucket="bucket").get("Contents", []) if item["Key"] == key
    ]


# --- all passes


def test_objects_in_one_piece_in_parts_and_in_ranges_pass_both_ways(
    s3: Any, direct: Any, tmp_path: Path
) -> None:
    big = os.urandom(12 << 20)
    (tmp_path / "big").write_bytes(big)
    s3.upload_file(str(tmp_path / "big"), "bucket", "parts", ExtraArgs={"ChecksumAlgorithm": "SHA256"})
    assert read(direct, "parts") == big
    s3.download_file("bucket", "parts", str(tmp_path / "back"))
    assert (tmp_path / "back").read_bytes() == big
    assert s3.get_object(Bucket="bucket", Key="there", Range="bytes=3-6")["Body"].read() == BODY[3:7]
    assert s3.head_object(Bucket="bucket", Key="there")["ContentLength"] == len(BODY)
    s3.delete_object(Bucket="bucket", Key="parts")
    assert absent(s3, "parts")


def test_conditions_and_other_services_pass(gateway: Gateway, s3: Any) -> None:
    with pytest.raises(ClientError, match="PreconditionFailed"):
        s3.put_object(Bucket="bucket", Key="there", Body=b"x", IfNoneMatch="*")
    assert client("ec2", gateway.endpoint).describe_vpcs()["Vpcs"]
    assert client("sts", gateway.endpoint).get_caller_identity()["Account"] == "123456789012"


class Echo(BaseHTTPRequestHandler):
    """An upstream that keeps connections and tells what it was asked."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        told = {
            "line": self.requestline,
            "headers": self.headers.items(),
            "body": body.decode(),
            "peer": self.client_address[1],
        }
        out = json.dumps(told).encode()
        self.send_response_only(299, "Odd")
        self.send_header("X-Twice", "one")
        self.send_header("X-Twice", "two")
        if self.path.endswith("broken"):
            self.send_header("Content-Length", str(len(out) + 1))
            self.close_connection = True
        elif self.path.endswith("chunked"):
            self.send_header("Transfer-Encoding", "chunked")
            out = b"%x\r\n%b\r\n0\r\n\r\n" % (len(out), out)
        else:
            self.send_header("Content-Length", str(len(out)))
        self.end_headers()
        self.wfile.write(out)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def test_requests_and_answers_pass_unchanged_on_kept_connections(tmp_path: Path) -> None:
    upstream = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    threading.Thread(target=upstream.serve_forever, daemon=True).start()
    peers = set()
    try:
        with Gateway(f"http://127.0.0.1:{upstream.server_port}", tmp_path) as gateway:
            connection = http.client.HTTPConnection(gateway.endpoint.removeprefix("http://"), timeout=10)
            for target in ("//a%2Fb/c?d=%20e&f", "/chunked"):
                headers = {"Host": "s3.example", "X-Amz-Date": "x", "Expect": "100-continue"}
                connection.request("POST", target, b"body", headers)
                found = connection.getresponse()
                told = json.loads(found.read())
                assert (found.status, found.reason, found.getheader("X-Twice")) == (299, "Odd", "one, two")
                assert told["line"] == f"POST {target} HTTP/1.1"
                assert told["body"] == "body"
                sent = {name.lower(): value for name, value in told["headers"]}
                assert {name: sent.get(name.lower()) for name in headers} == headers
                assert set(sent) == {"host", "x-amz-date", "expect", "content-length", "accept-encoding"}
                peers.add(told["peer"])
            connection.request("POST", "/broken", b"body")
            with pytest.raises(http.client.IncompleteRead):
                connection.getresponse().read()
            connection.close()
    finally:
        upstream.shutdown()
        upstream.server_close()
    assert len(peers) == 1


# --- faults as errors


@pytest.mark.parametrize(
    ("kind", "status", "code"),
    [
        ("internal-error", 500, "InternalError"),
        ("slow-down", 503, "SlowDown"),
        ("conflict", 409, "ConditionalRequestConflict"),
        ("precondition-failed", 412, "PreconditionFailed"),
        ("expired-token", 400, "ExpiredToken"),
        ("time-skewed", 403, "RequestTimeTooSkewed"),
    ],
)
def test_errors_are_s3s_and_leave_nothing_and_end_after_their_times(
    s3: Any, direct: Any, state: Path, kind: Any, status: int, code: str
) -> None:
    key = f"refused-{kind}"
    set_rules(state, [Rule(kind=kind, methods=("PUT",), key=key, times=2)])
    for _ in range(2):
        with pytest.raises(ClientError) as fault:
            s3.put_object(Bucket="bucket", Key=key, Body=BODY)
        assert fault.value.response["Error"]["Code"] == code
        about = fault.value.response["ResponseMetadata"]
        assert about["HTTPStatusCode"] == status
        assert len(about["RequestId"]) == 16 and about["HostId"]
        assert absent(direct, key)
    s3.put_object(Bucket="bucket", Key=key, Body=BODY)
    assert read(direct, key) == BODY


def test_an_error_of_a_look_up_has_a_status_only(s3: Any, state: Path) -> None:
    set_rules(state, [Rule(kind="slow-down", methods=("HEAD",))])
    with pytest.raises(ClientError, match="503"):
        s3.head_object(Bucket="bucket", Key="there")
    assert s3.head_object(Bucket="bucket", Key="there")["ContentLength"] == len(BODY)


def test_sdks_get_over_what_is_temporary(gateway: Gateway, s3: Any, state: Path) -> None:
    patient = client("s3", gateway.endpoint)
    for kind in ("internal-error", "slow-down", "reset"):
        set_rules(state, [Rule(kind=kind)])
        assert read(patient) == BODY
        assert injected(state)[-1]["kind"] == kind


def test_other_services_meet_no_fault_but_an_outage(gateway: Gateway, state: Path) -> None:
    ec2 = client("ec2", gateway.endpoint)
    set_rules(state, [Rule(kind="internal-error", times=None)])
    assert ec2.describe_vpcs()["Vpcs"]
    before = len(injected(state))
    set_rules(state, [Rule(kind="outage", times=1)])
    assert ec2.describe_vpcs()["Vpcs"]  # by its second try
    assert len(injected(state)) == before + 1


# --- faults of connections and bodies


def test_a_reset_is_no_answer(s3: Any, direct: Any, state: Path) -> None:
    set_rules(state, [Rule(kind="reset")])
    with pytest.raises(BotoCoreError):
        s3.put_object(Bucket="bucket", Key="reset", Body=BODY)
    assert absent(direct, "reset")
    assert read(s3) == BODY


def test_an_error_takes_the_body_off_the_line_so_that_the_next_request_is_understood(
    gateway: Gateway, s3: Any, state: Path
) -> None:
    set_rules(state, [Rule(kind="precondition-failed")])
    connection = http.client.HTTPConnection(gateway.endpoint.removeprefix("http://"), timeout=10)
    connection.request("PUT", "/bucket/there", BODY, {"Authorization": SIGNED})
    refused = connection.getresponse()
    assert (refused.status, b"<Code>PreconditionFailed</Code>" in refused.read()) == (412, True)
    connection.request("GET", "/bucket/there", headers={"Authorization": SIGNED})
    assert connection.getresponse().read() == BODY
    connection.close()


def raw(gateway: Gateway) -> socket.socket:
    host, _, port = gateway.endpoint.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=10)


def test_a_body_is_asked_for_only_if_the_request_is_not_refused(
    gateway: Gateway, s3: Any, state: Path
) -> None:
    head = f"PUT /bucket/asked HTTP/1.1\r\nHost: s3\r\nAuthorization: {SIGNED}\r\nContent-Length: 4\r\n"
    head += "Expect: 100-continue\r\n\r\n"
    with raw(gateway) as connection:
        connection.sendall(head.encode())
        assert connection.recv(4096).startswith(b"HTTP/1.1 100 ")
        connection.sendall(b"body")
        assert connection.recv(4096).startswith(b"HTTP/1.1 200 ")
    set_rules(state, [Rule(kind="precondition-failed")])
    with raw(gateway) as connection:
        connection.sendall(head.encode())
        assert connection.recv(4096).startswith(b"HTTP/1.1 412 ")
    assert read(s3, "asked") == b"body"


def test_in_an_outage_a_connection_is_reset_before_it_asks(gateway: Gateway, state: Path) -> None:
    set_rules(state, [Rule(kind="outage", times=None)])
    with pytest.raises(ConnectionResetError), raw(gateway) as connection:
        connection.recv(1)
    assert injected(state)[-1]["method"] == ""


def test_in_an_outage_nothing_is_done_until_it_is_cleared(s3: Any, state: Path) -> None:
    assert read(s3) == BODY  # there is a kept connection
    set_rules(state, [Rule(kind="outage", times=None)])
    for _ in range(3):
        with pytest.raises(BotoCoreError):
            s3.delete_object(Bucket="bucket", Key="there")
    clear(state)
    assert read(s3) == BODY


def test_an_outage_cuts_what_is_under_way(s3: Any, state: Path) -> None:
    set_rules(state, [Rule(kind="slow", bytes_per_second=2000)])
    body = s3.get_object(Bucket="bucket", Key="there")["Body"]
    assert body.read(100)
    set_rules(state, [Rule(kind="outage", times=None)])
    with pytest.raises((BotoCoreError, OSError)):
        body.read()


def test_faults_of_one_node_are_not_anothers(s3: Any, state: Path) -> None:
    set_rules(state, [Rule(kind=kind, nodes=("127.0.0.2",), times=None) for kind in ("outage", "reset")])
    assert read(s3) == BODY
    set_rules(state, [Rule(kind="reset", nodes=("127.0.0.1",))])
    with pytest.raises(BotoCoreError):
        read(s3)


def test_a_truncated_download_ends_in_the_middle(s3: Any, state: Path) -> None:
    set_rules(state, [Rule(kind="truncated")])
    body = s3.get_object(Bucket="bucket", Key="there")["Body"]
    assert body.read(len(BODY) // 2) == BODY[: len(BODY) // 2]
    with pytest.raises((ResponseStreamingError, BotoCoreError)):
        body.read()
    assert read(s3) == BODY


def test_a_truncated_upload_leaves_nothing(s3: Any, direct: Any, state: Path) -> None:
    set_rules(state, [Rule(kind="truncated", methods=("PUT",))])
    with pytest.raises(BotoCoreError):
        s3.put_object(Bucket="bucket", Key="half", Body=BODY)
    assert read(s3) == BODY
    assert absent(direct, "half")


def test_a_corrupted_download_differs_in_one_byte_and_checksums_find_it(s3: Any, state: Path) -> None:
    set_rules(state, [Rule(kind="corrupted")])
    found = s3.get_object(Bucket="bucket", Key="there", Range=f"bytes=0-{len(BODY) - 2}")["Body"].read()
    assert sum(a != b for a, b in zip(found, BODY[:-1], strict=True)) == 1
    set_rules(state, [Rule(kind="corrupted")])
    with pytest.raises(FlexibleChecksumError):
        read(s3)
    assert read(s3) == BODY


@pytest.mark.parametrize(
    "checksum",
    [
        {},  # the SDK's own CRC32
        {"ChecksumSHA256": base64.b64encode(hashlib.sha256(BODY).digest()).decode()},
        {"ContentMD5": base64.b64encode(hashlib.md5(BODY).digest()).decode()},
    ],
)
def test_a_corrupted_upload_is_refused(s3: Any, direct: Any, state: Path, checksum: dict[str, str]) -> None:
    set_rules(state, [Rule(kind="corrupted", methods=("PUT",))])
    with pytest.raises(ClientError, match="BadDigest"):
        s3.put_object(Bucket="bucket", Key="wrong", Body=BODY, **checksum)
    assert absent(direct, "wrong")
    s3.put_object(Bucket="bucket", Key="right", Body=BODY, **checksum)
    assert read(direct, "right") == BODY


def test_a_corrupted_part_is_refused(s3: Any, state: Path) -> None:
    upload = s3.create_multipart_upload(Bucket="bucket", Key="in-parts", ChecksumAlgorithm="SHA256")
    part = {"Bucket": "bucket", "Key": "in-parts", "UploadId": upload["UploadId"], "PartNumber": 1}
    set_rules(state, [Rule(kind="corrupted", key="partNumber=1")])
    with pytest.raises(ClientError, match="BadDigest"):
        s3.upload_part(**part, Body=BODY, ChecksumAlgorithm="SHA256")
    assert s3.upload_part(**part, Body=BODY, ChecksumAlgorithm="SHA256")["ETag"]


@pytest.mark.parametrize("framing", ["length", "chunks"])
@pytest.mark.parametrize("algorithm_header", [True, False])
def test_checksums_at_the_end_of_an_aws_chunked_body_are_compared(
    gateway: Gateway, direct: Any, state: Path, framing: str, algorithm_header: bool
) -> None:
    """As SDKs send uploads over TLS."""
    crc = base64.b64encode(zlib.crc32(BODY).to_bytes(4, "big")).decode()
    coded = b"%x\r\n%b\r\n0\r\nx-amz-checksum-crc32:%b\r\n\r\n" % (len(BODY), BODY, crc.encode())
    headers = {
        "Authorization": SIGNED,
        "Content-Encoding": "aws-chunked",
        "x-amz-content-sha256": "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
        "x-amz-trailer": "x-amz-checksum-crc32",
        "x-amz-decoded-content-length": str(len(BODY)),
    }
    if algorithm_header:
        headers["x-amz-sdk-checksum-algorithm"] = "CRC32"
    set_rules(state, [Rule(kind="corrupted", key="/trailer")])
    answers = []
    for _ in range(2):
        connection = http.client.HTTPConnection(gateway.endpoint.removeprefix("http://"), timeout=10)
        if framing == "length":
            connection.request("PUT", "/bucket/trailer", coded, headers)
        else:
            chunked = headers | {"Transfer-Encoding": "chunked"}
            pieces = iter([coded[:20], coded[20:]])
            connection.request("PUT", "/bucket/trailer", pieces, chunked, encode_chunked=True)
        found = connection.getresponse()
        answers.append((found.status, b"BadDigest" in found.read()))
        connection.close()
    assert answers == [(400, True), (200, False)]
    assert read(direct, "trailer") == BODY
    direct.delete_object(Bucket="bucket", Key="trailer")


def test_slow_and_delayed_requests_arrive_whole(s3: Any, direct: Any, state: Path) -> None:
    """The time is a lower limit: what the rule asks for."""
    for rule in (Rule(kind="slow", bytes_per_second=4 * len(BODY)), Rule(kind="delay", seconds=0.25)):
        for act in (lambda: read(s3), lambda: s3.put_object(Bucket="bucket", Key="slow", Body=BODY)):
            set_rules(state, [rule])
            began = time.monotonic()
            act()
            assert time.monotonic() - began >= 0.2
    assert read(s3) == read(direct, "slow") == BODY


# --- the emulation away, and the command


def test_while_the_emulation_is_away_clients_are_told_to_try_again(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    with Gateway(f"http://127.0.0.1:{port}", tmp_path) as gateway:
        s3 = one_try(gateway.endpoint)
        with pytest.raises(ClientError) as fault:
            s3.put_object(Bucket="bucket", Key="k", Body=BODY)
        assert fault.value.response["Error"]["Code"] == "ServiceUnavailable"
        upstream = ThreadingHTTPServer(("127.0.0.1", port), Echo)
        threading.Thread(target=upstream.serve_forever, daemon=True).start()
        try:
            connection = http.client.HTTPConnection(gateway.endpoint.removeprefix("http://"), timeout=10)
            connection.request("POST", "/", b"body")
            assert connection.getresponse().status == 299
            connection.close()
        finally:
            upstream.shutdown()
            upstream.server_close()


def test_connections_end_with_the_gateway(tmp_path: Path) -> None:
    with Gateway("http://127.0.0.1:1", tmp_path) as gateway:
        connection = raw(gateway)
        connection.sendall(b"OPTIONS")
        with raw(gateway) as later:  # accepted after the first one
            later.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert later.recv(12) == b"HTTP/1.1 503"
    with connection:
        assert connection.recv(1) == b""


def test_the_command_serves_the_sockets_it_was_given(aws: AwsServer, tmp_path: Path) -> None:
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    endpoints = [f"http://127.0.0.1:{listener.getsockname()[1]}" for listener in listeners]
    numbers = [listener.fileno() for listener in listeners]
    command = [
        sys.executable,
        "-m",
        "localcloud.gateway",
        "--upstream",
        aws.endpoint,
        "--state",
        str(tmp_path),
    ]
    for number in numbers:
        command += ["--listen-fd", str(number)]
    running = subprocess.Popen(command, pass_fds=numbers, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        for listener in listeners:
            listener.close()
        assert running.stdout is not None
        ready = json.loads(running.stdout.readline())
        assert ready == {"endpoint": endpoints[0], "pid": running.pid}
        for endpoint in endpoints:
            assert [bucket["Name"] for bucket in one_try(endpoint).list_buckets()["Buckets"]] == ["bucket"]
        set_rules(tmp_path, [Rule(kind="slow-down")])
        with pytest.raises(ClientError, match="SlowDown"):
            one_try(endpoints[0]).list_buckets()
        running.terminate()
        assert running.wait(timeout=10) == 0
    finally:
        running.kill()
        running.wait(timeout=10)


def test_an_upstream_that_is_none_is_refused_in_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "localcloud.gateway", "--upstream", "nowhere", "--state", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and "'nowhere'" in done.stderr
