"""An S3 on loopback for all contestants alike: s3s-fs where it can be had, else moto, which is a tenth as fast."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from localcloud.toolchain import Failed, cache

VERSION = "0.14.1"  # of the crate s3s-fs
BUILD_SECONDS = 1800
START_SECONDS = 30
KEYS = {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "benchmark"}


@contextmanager
def s3_server(folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Its name, and the environment in which SDK, aws and s5cmd find it; ends with the block."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("AWS_")},
        **KEYS,
        "AWS_ENDPOINT_URL": url,
        "S3_ENDPOINT_URL": url,  # s5cmd's
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    program = _s3s_fs()
    if program is None:
        from moto.server import ThreadedMotoServer

        server = ThreadedMotoServer(ip_address="127.0.0.1", port=port, verbose=False)
        server.start()
        try:
            yield "moto", environment
        finally:
            server.stop()
        return
    folder.mkdir(parents=True)
    login = ("--access-key", KEYS["AWS_ACCESS_KEY_ID"], "--secret-key", KEYS["AWS_SECRET_ACCESS_KEY"])
    command = [program, "--host", "127.0.0.1", "--port", str(port), *login, str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_for(port, process)
        yield f"s3s-fs {VERSION}", environment
    finally:
        process.kill()
        process.wait()


def _s3s_fs() -> str | None:
    """From PATH or the cache; built once where there is cargo (minutes). None: not to be had."""
    home = cache() / f"s3s-fs-{VERSION}"
    built = home / "bin" / "s3s-fs"
    if found := shutil.which("s3s-fs"):
        return found
    if not built.exists() and (cargo := shutil.which("cargo")):
        print(f"bench: building s3s-fs {VERSION} once, a few minutes ...", file=sys.stderr, flush=True)
        command = [
            cargo,
            "install",
            "s3s-fs",
            "--version",
            VERSION,
            "--locked",
            "--features",
            "binary",
            "--root",
        ]
        try:
            subprocess.run([*command, str(home)], check=True, capture_output=True, timeout=BUILD_SECONDS)
        except (subprocess.SubprocessError, OSError) as error:
            print(
                f"bench: s3s-fs could not be built ({error}); moto serves instead",
                file=sys.stderr,
                flush=True,
            )
    return str(built) if built.exists() else None


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise Failed(f"s3s-fs ended at once with {process.returncode}")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise Failed(f"s3s-fs did not answer within {START_SECONDS} s")
