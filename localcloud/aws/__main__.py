"""`python -m localcloud.aws --port 0 --state .local/aws`: one JSON line with the endpoint, then service.

The state of the cloud is in memory. The folder gets `endpoint.json`, for those who look for a running cloud.
SIGUSR1 takes the API away for a while, as a restart would (see `AwsServer.pause`).
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import sys
import threading
from pathlib import Path

HOST = "127.0.0.1"
SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGUSR1})


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m localcloud.aws", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0: any free port")
    parser.add_argument("--state", type=Path, required=True, help="folder for endpoint.json")
    parser.add_argument("--pause-seconds", type=float, default=10.0, help="what SIGUSR1 means")
    options = parser.parse_args(argv)

    try:  # before moto is imported, which takes a second or two
        listener = socket.create_server((HOST, options.port), backlog=128)
    except OSError:
        print(
            f"localcloud.aws: port {options.port} on {HOST} is in use; give another one or 0", file=sys.stderr
        )
        return 2
    # Before there are other threads: a signal that one of those takes would not wake this one.
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    from .server import AwsServer

    options.state.mkdir(parents=True, exist_ok=True)
    endpoint_file = options.state / "endpoint.json"
    try:
        with AwsServer(listener) as aws:
            ready = json.dumps({"endpoint": aws.endpoint, "pid": os.getpid()})
            endpoint_file.write_text(ready + "\n")
            print(ready, flush=True)
            while signal.sigwait(SIGNALS) == signal.SIGUSR1:
                threading.Thread(target=aws.pause, args=(options.pause_seconds,), daemon=True).start()
    finally:
        endpoint_file.unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
