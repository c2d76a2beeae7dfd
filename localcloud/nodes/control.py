"""Orders to a running driver: small files in `.local/control/`, answered beside themselves."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path

KINDS = ("spot-notice", "rebalance", "scheduled-event", "reboot", "stop", "start", "crash")
ANSWER_LIMIT_SECONDS = 15.0


@dataclass(frozen=True)
class Order:
    kind: str
    instance_id: str
    path: Path
    code: str = ""  # of a scheduled event
    seconds: float = 0.0  # until it

    def answer(self, status: str, text: str) -> None:
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps({"status": status, "text": text}) + "\n")
        part.replace(self.path.with_suffix(".answer"))


def take_orders(local: Path) -> list[Order]:
    """Orders not taken before, oldest first; a file that is no order is removed."""
    found: list[Order] = []
    folder = local / "control"
    if not folder.is_dir():
        return found
    for path in sorted(folder.glob("*.order"), key=lambda path: path.stat().st_mtime):
        try:
            content = json.loads(path.read_text())
            order = Order(
                content["kind"],
                content["instanceId"],
                path,
                content.get("code", ""),
                float(content.get("seconds", 0)),
            )
        except (OSError, ValueError, KeyError, TypeError):
            order = None
        path.unlink(missing_ok=True)
        if order is not None and order.kind in KINDS:
            found.append(order)
    return found


def give_order(
    local: Path, kind: str, instance_id: str, code: str = "", seconds: float = 0.0
) -> tuple[str, str]:
    """Write an order and wait for its answer: `(done | refused | failed | unanswered, text)`."""
    folder = local / "control"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{kind}-{instance_id}-{time.time_ns()}.order"
    part = path.with_suffix(".new")
    content = {"kind": kind, "instanceId": instance_id, "code": code, "seconds": seconds}
    part.write_text(json.dumps(content) + "\n")
    part.replace(path)
    answer = path.with_suffix(".answer")
    deadline = time.monotonic() + ANSWER_LIMIT_SECONDS
    while not answer.exists():
        if time.monotonic() > deadline:
            path.unlink(missing_ok=True)
            return "unanswered", f"no node driver took the order within {ANSWER_LIMIT_SECONDS:.0f} s"
        time.sleep(0.05)
    content = json.loads(answer.read_text())
    answer.unlink()
    return content["status"], content["text"]
