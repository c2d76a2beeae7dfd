"""`python -m localcloud.gateway --upstream URL --state .local/gateway`: one JSON line with the endpoint, then service.

Listens on loopback, or on sockets that the parent made, perhaps in a network namespace, and passed on.
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

from .server import BACKLOG, HOST, Gateway


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m localcloud.gateway", description=__doc__)
    parser.add_argument("--upstream", required=True, help="URL of the AWS emulation")
    parser.add_argument("--state", type=Path, required=True, help="folder for the rules and injected.jsonl")
    parser.add_argument("--port", type=int, default=0, help="on loopback; 0: any free port")
    parser.add_argument(
        "--listen-fd", type=int, action="append", default=[], help="a listening socket; may be repeated"
    )
    options = parser.parse_args(argv)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        listeners = [socket.socket(fileno=number) for number in options.listen_fd]
        if not listeners:
            listeners = [socket.create_server((HOST, options.port), backlog=BACKLOG)]
        gateway = Gateway(options.upstream, options.state, listeners)
    except (OSError, ValueError) as fault:
        print(f"localcloud.gateway: {fault}", file=sys.stderr)
        return 2
    with gateway:
        print(json.dumps({"endpoint": gateway.endpoint, "pid": os.getpid()}), flush=True)
        stop.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
