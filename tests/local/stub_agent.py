"""Stands for the trainer's agent in tests of the node driver: answers hooks, obeys notices, ends as told.

    stub_agent.py BEHAVIOUR agent --document FILE --state-dir FOLDER

BEHAVIOUR: `serve`, or `exit:CODE` (after coming into service; a second start in the same root serves).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

METADATA = os.environ["AWS_EC2_METADATA_SERVICE_ENDPOINT"]


def metadata(path: str) -> str | None:
    """None for 404 and while the service restarts."""
    try:
        asked = urllib.request.Request(f"{METADATA}/latest/api/token", method="PUT")
        asked.add_header("X-aws-ec2-metadata-token-ttl-seconds", "60")
        token = urllib.request.urlopen(asked, timeout=2).read().decode()
        asked = urllib.request.Request(f"{METADATA}/latest/meta-data/{path}")
        asked.add_header("X-aws-ec2-metadata-token", token)
        return urllib.request.urlopen(asked, timeout=2).read().decode()
    except (urllib.error.URLError, OSError):
        return None


def complete(hook: str, result: str) -> None:
    body = urllib.parse.urlencode(
        {
            "Action": "CompleteLifecycleAction",
            "Version": "2011-01-01",
            "AutoScalingGroupName": os.environ["GROUP"],
            "LifecycleHookName": hook,
            "InstanceId": metadata("instance-id"),
            "LifecycleActionResult": result,
        }
    )
    asked = urllib.request.Request(os.environ["AWS_ENDPOINT_URL"], data=body.encode())
    scope = "Credential=ASIATEST/20261130/us-east-1/autoscaling/aws4_request"
    asked.add_header("Authorization", f"AWS4-HMAC-SHA256 {scope}, SignedHeaders=host, Signature=0")
    try:
        urllib.request.urlopen(asked, timeout=5).read()
    except urllib.error.HTTPError as fault:
        print(f"{hook}: {fault.read().decode()}", flush=True)


def leave(*_: object) -> None:
    print("told to stop", flush=True)
    sys.exit(75)


def main() -> int:
    behaviour, state = sys.argv[1], Path(sys.argv[sys.argv.index("--state-dir") + 1])
    signal.signal(signal.SIGTERM, leave)
    state.mkdir(parents=True, exist_ok=True)
    again = (state / "started").exists()
    (state / "started").touch()
    # A worker in a session of its own: whoever ends the node has to find it.
    worker = subprocess.Popen(["sleep", "600"], start_new_session=True)
    (state / "worker.pid").write_text(str(worker.pid))
    complete("launching", "CONTINUE")
    print("in service", flush=True)
    if behaviour.startswith("exit:") and not again:
        return int(behaviour.removeprefix("exit:"))
    while True:
        if (action := metadata("spot/instance-action")) is not None:
            print(f"spot notice {' '.join(action.split())}", flush=True)
            return 75
        if metadata("autoscaling/target-lifecycle-state") == "Terminated":
            complete("terminating", "CONTINUE")
            print("taken out of service", flush=True)
            return 75
        time.sleep(0.1)


if __name__ == "__main__":
    sys.exit(main())
