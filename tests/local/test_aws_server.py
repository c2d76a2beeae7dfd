"""The local AWS API as a process: ready line, end, port in use."""

from __future__ import annotations

import io
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from localcloud.aws.server import ACCOUNT_ID, HOST, AwsServer, OneAtATime
from tests.local.cloud_kit import client, wait_until

COMMAND = [sys.executable, "-m", "localcloud.aws"]


def test_it_says_where_it_is_serves_and_ends_on_sigterm(tmp_path: Path) -> None:
    with subprocess.Popen([*COMMAND, "--state", str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            endpoint = json.loads(process.stdout.readline())["endpoint"]
            assert endpoint.startswith("http://127.0.0.1:")
            assert json.loads((tmp_path / "endpoint.json").read_text())["endpoint"] == endpoint
            assert client("sts", endpoint).get_caller_identity()["Account"] == ACCOUNT_ID
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0
    assert not (tmp_path / "endpoint.json").exists()


def test_a_port_in_use_is_one_clear_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = subprocess.run(
            [*COMMAND, "--port", port, "--state", str(tmp_path)],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.strip() == f"localcloud.aws: port {port} on 127.0.0.1 is in use; give another one or 0"


def test_each_cloud_begins_empty() -> None:
    with AwsServer() as first:
        client("s3", first.endpoint).create_bucket(Bucket="left-behind")
    with AwsServer() as second:
        assert client("s3", second.endpoint).list_buckets()["Buckets"] == []


def refused(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), timeout=5).close()
    except ConnectionRefusedError:
        return True
    except ConnectionResetError:  # it came while the door was closing
        return False
    return False


def test_a_pause_refuses_connections_cuts_those_that_are_open_and_keeps_the_state() -> None:
    with AwsServer() as aws, socket.create_connection((HOST, aws.port), timeout=10) as half:
        s3, endpoint = client("s3", aws.endpoint), aws.endpoint
        s3.create_bucket(Bucket="kept")
        half.sendall(b"PUT /kept/half HTTP/1.1\r\n")
        paused = threading.Thread(target=aws.pause, args=(1.0,))
        paused.start()
        wait_until(lambda: refused(aws.port), "the pause")
        assert half.recv(1) == b"", "a request under way is cut"
        paused.join(20)
        assert not paused.is_alive()
        assert aws.endpoint == endpoint
        assert [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]] == ["kept"]


def test_a_cloud_that_ends_during_a_pause_ends_at_once_and_stays_away() -> None:
    with AwsServer() as aws:
        paused = threading.Thread(target=aws.pause, args=(600.0,))
        paused.start()
        wait_until(lambda: refused(aws.port), "the pause")
    paused.join(20)
    assert not paused.is_alive()
    assert refused(aws.port)
    aws.pause(0.0)
    assert refused(aws.port), "a pause does not open what has ended"


def test_sigusr1_is_a_pause_of_the_process(tmp_path: Path) -> None:
    command = [*COMMAND, "--state", str(tmp_path), "--pause-seconds", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            endpoint = json.loads(process.stdout.readline())["endpoint"]
            port = int(endpoint.rpartition(":")[2])
            client("s3", endpoint).create_bucket(Bucket="kept")
            process.send_signal(signal.SIGUSR1)
            wait_until(lambda: refused(port), "the pause")
            wait_until(lambda: not refused(port), "its end")
            names = [bucket["Name"] for bucket in client("s3", endpoint).list_buckets()["Buckets"]]
            assert (names, process.poll()) == (["kept"], None)
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0


def test_two_clouds_in_one_process_are_refused() -> None:
    with AwsServer(), pytest.raises(RuntimeError, match="one AwsServer a process"):
        AwsServer().__enter__()


def test_managed_policies_can_be_attached(tmp_path: Path) -> None:
    with AwsServer() as aws:
        iam = client("iam", aws.endpoint)
        iam.create_role(RoleName="node", AssumeRolePolicyDocument="{}")
        arn = "arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore"
        iam.attach_role_policy(RoleName="node", PolicyArn=arn)
        assert iam.list_attached_role_policies(RoleName="node")["AttachedPolicies"][0]["PolicyArn"] == arn


def test_requests_take_turns_and_a_slow_sender_holds_nobody_up() -> None:
    inside, most = 0, 0
    arrived = threading.Event()

    def app(environ: dict[str, Any], _: Any) -> list[bytes]:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        time.sleep(0.01)
        inside -= 1
        return [environ["wsgi.input"].read()]

    class SlowBody:
        def read(self, _: int) -> bytes:
            assert arrived.wait(10), "the others wait for this body"
            return b"slow"

    turns = OneAtATime(app, threading.RLock())

    def ignore(*_: object) -> None:
        pass

    with ThreadPoolExecutor(9) as pool:
        slow = pool.submit(turns, {"CONTENT_LENGTH": "4", "wsgi.input": SlowBody()}, ignore)
        others = [
            pool.submit(turns, {"CONTENT_LENGTH": "2", "wsgi.input": io.BytesIO(b"ok")}, ignore)
            for _ in range(8)
        ]
        assert [b"".join(other.result(10)) for other in others] == [b"ok"] * 8
        arrived.set()
        assert list(slow.result(10)) == [b"slow"]
    assert most == 1
