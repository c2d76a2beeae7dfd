"""A worker without torch: the ranks of all nodes go in lockstep through files, stop at one step, save and resume.

`FAKE_WORLD` names a folder that all nodes share. It stands for the network (a file per rank and step) and for the
bucket's checkpoint. A rank that waits too long for another one has lost its peer, as a collective would.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import time
from pathlib import Path

PEER_SECONDS = 3.0
RENDEZVOUS_SECONDS = 30.0  # for the first step, as nodes start one after the other


def main(folder: Path) -> int:
    faulthandler.register(signal.SIGUSR1, all_threads=True, chain=False)
    config = json.loads((folder / "worker.json").read_text())
    generation, arguments = config["generation"], config["run"]["training"].get("modelArgs", {})
    rank, world, n = config["nodeRank"], len(generation["members"]), generation["n"]
    shared = Path(os.environ["FAKE_WORLD"]) / config["run"]["name"]
    shared.mkdir(parents=True, exist_ok=True)
    saved = shared / "checkpoint"
    step = int(saved.read_text()) if saved.exists() else 0
    total = config["run"]["training"]["steps"]

    def tell(kind: str, **fields: object) -> None:
        with open(folder / f"events-rank{rank}.jsonl", "a") as events:
            events.write(json.dumps({"kind": kind, "time": time.time(), **fields}) + "\n")

    def end(code: int, message: str) -> int:
        (folder / f"exit-rank{rank}.json").write_text(
            json.dumps({"code": code, "message": message, "step": step})
        )
        return code

    def agree(name: str, stop: bool) -> bool | None:
        """All ranks' MAX of `stop`; None when one of them does not come."""
        (shared / f"{n}-{name}-{rank}").write_text(str(int(stop)))
        met = (shared / f"{n}-met").exists()
        patience = float(arguments.get("peer_seconds", PEER_SECONDS))
        deadline = time.monotonic() + (patience if met else RENDEZVOUS_SECONDS)
        votes = [shared / f"{n}-{name}-{other}" for other in range(world)]
        while time.monotonic() < deadline:
            texts = [path.read_text() for path in votes if path.exists()]
            if len(texts) == world and all(texts):
                (shared / f"{n}-met").touch()
                return "1" in texts
            time.sleep(0.003)
        return None

    def save() -> None:
        if rank == 0:
            saved.with_suffix(".tmp").write_text(str(step))
            os.replace(saved.with_suffix(".tmp"), saved)
            tell("checkpoint", step=step, seconds=0.01)

    if "say" in arguments:  # may name environment variables, as {HF_TOKEN}
        print(arguments["say"].format(**os.environ), flush=True)
    tell("started", step=step, samples=step * 10, totalSteps=total, worldSize=world)
    if arguments.get("fail") == n:
        return end(int(arguments["code"]), arguments.get("message", "told to fail").format(**os.environ))
    while step < total:
        stop = agree(str(step), (folder / "stop").exists())
        if stop is None:
            return end(32, "a peer did not come")
        if stop:
            save()
            tell("stopped", step=step, reason="asked", saved=True)
            return end(75, f"stopped at step {step}")
        time.sleep(float(arguments.get("seconds", 0.02)))
        step += 1
        tell(
            "step", step=step, loss=2.0 - step / total, samples=step * 10, seconds=0.02, dataWaitSeconds=0.001
        )
        if step == arguments.get("straggle_at") and rank == 0:
            tell("straggler", step=step, slowRank=world - 1, ratio=2.5)
        asked = folder / "save"
        if step % int(arguments.get("save_every", 1000)) == 0 or asked.exists():
            save()
            asked.unlink(missing_ok=True)
    save()
    tell("finished", step=step, epochs=1.0)
    return end(0, "done")


if __name__ == "__main__":
    sys.exit(1 if main(Path(sys.argv[1])) else 0)
