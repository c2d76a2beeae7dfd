"""`python -m localcloud.aws --port 0 --state .local/aws`: one JSON line with the endpoint, then service.

The state of the cloud is in memory. The folder gets `endpoint.json`, for those who look for a running cloud.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
from pathlib import Path


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m localcloud.aws", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0: any free port")
    parser.add_argument("--state", type=Path, required=True, help="folder for endpoint.json")
    options = parser.parse_args(argv)

    from .server import AwsServer, PortInUse  # moto takes a second to import; not for --help

    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    options.state.mkdir(parents=True, exist_ok=True)
    endpoint_file = options.state / "endpoint.json"
    try:
        with AwsServer(port=options.port) as aws:
            ready = json.dumps({"endpoint": aws.endpoint, "pid": os.getpid()})
            endpoint_file.write_text(ready + "\n")
            print(ready, flush=True)
            stop.wait()
    except PortInUse as fault:
        print(f"localcloud.aws: {fault}", file=sys.stderr)
        return 2
    finally:
        endpoint_file.unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
