"""`make preview`: what `pulumi up` would do to a stack, by the real engine with the policy pack, without credentials.

The stack is previewed as if it were new: on a scratch backend, with stand-ins for the provider plugins, and with
encrypted values replaced by placeholders. Standard output is Pulumi's own, or one JSON document.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from localcloud import release
from localcloud.engine.events import Events
from localcloud.engine.pulumi import Engine, Outcome
from localcloud.toolchain import ROOT, Failed, cache, paths

EXIT_FAULT = 1  # a fault of the program or the stack file, or a mandatory policy violated
EXIT_INTERRUPTED = 130
COST_BOUNDS = (("totalLow", "totalHigh"), ("totalLowAtMaxNodes", "totalHighAtMaxNodes"))
COST_OUTPUTS = ("hourlyCostUsd", "monthlyCostUsd", "costTable")
RELEASE_VARIABLE = "GPU_TRAINING_RELEASE"  # a release manifest to be used as it is


def stacks(project: Path = ROOT) -> list[str]:
    """The names of the project's stack files."""
    return sorted(path.name.split(".")[1] for path in project.glob("Pulumi.*.yaml"))


def examples(project: Path = ROOT) -> list[str]:
    """The example stack files, as they are named at the command: examples/<name>."""
    return sorted(f"examples/{path.stem}" for path in (project / "examples").glob("*.yaml"))


def summary(stack: str, events: Events, seconds: float) -> list[str]:
    """What a reviewer wants to know first, as lines of text."""
    counts = ", ".join(f"{number} {op}" for op, number in sorted(events.changes.items())) or "nothing"
    lines = [f"resources: {counts}"]
    levels = Counter(violation.level for violation in events.violations)
    lines.append(f"policies: {levels['mandatory']} mandatory and {levels['advisory']} advisory findings")
    for name in ("hourlyCostUsd", "monthlyCostUsd"):
        cost = events.outputs.get(name)
        if isinstance(cost, dict):
            now, full = (f"{cost[low]} to {cost[high]}" for low, high in COST_BOUNDS)
            lines.append(f"{name}: {now} at creation, {full} with every group full")
            if cost.get("unknownAtMaxNodes"):
                lines.append(
                    f"no price is known, and none is in these sums, of {', '.join(cost['unknownAtMaxNodes'])}"
                )
    lines.append("stand-in providers were used: nothing was asked of AWS, and the stack was taken as new")
    return [f"preview {stack}: {line}" for line in lines] + [f"preview {stack}: took {seconds:.1f} s"]


def digest(text: str, events: Events) -> str:
    """Pulumi's JSON digest with the outputs that tell the cost, which it leaves out; other text stays as it is."""
    try:
        document = json.loads(text)
    except ValueError:
        return text
    cost = {name: events.outputs[name] for name in COST_OUTPUTS if name in events.outputs}
    return json.dumps({**document, "cost": cost}, indent=2) + "\n"


def run(stack: str, work: Path, diff: bool = False, as_json: bool = False, show: bool = True) -> Outcome:
    """Preview one stack, or an example as a stack of its name, in a work folder.

    Raises Failed for what keeps the engine from starting.
    """
    if RELEASE_VARIABLE not in os.environ:
        try:
            release.build(release.SOURCE, release.LOCK_FILE, ROOT / "dist", release.wanted_abis(), cache())
        except release.ReleaseError as fault:
            raise Failed(str(fault)) from None
    folder, _, name = stack.rpartition("/")
    file = ROOT / folder / f"{name}.yaml" if folder else None
    engine = Engine(paths(), name, work, "preview", stack_file=file, show=show)
    return engine.preview(diff=diff, as_json=as_json)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make preview", description=__doc__)
    parser.add_argument("stack", choices=[*stacks(), *examples()])
    parser.add_argument("--diff", action="store_true", help="show each property")
    parser.add_argument("--json", action="store_true", help="Pulumi's JSON digest on standard output")
    asked = parser.parse_args()
    start = time.monotonic()
    work = Path(tempfile.mkdtemp(prefix="gpu-training-preview-"))
    try:
        outcome = run(asked.stack, work, diff=asked.diff, as_json=asked.json, show=not asked.json)
    except Failed as fault:  # its text names a log in the work folder, which is kept for that
        print(f"preview {asked.stack}: {fault}", file=sys.stderr)
        return EXIT_FAULT
    except KeyboardInterrupt:
        shutil.rmtree(work, ignore_errors=True)
        return EXIT_INTERRUPTED
    shutil.rmtree(work, ignore_errors=True)
    if asked.json:
        print(digest(outcome.text, outcome.events), end="")
    else:
        print("\n".join(["", *outcome.events.outputs.get("costTable", []), ""]))
    out = sys.stderr if asked.json else sys.stdout
    print("\n".join(summary(asked.stack, outcome.events, time.monotonic() - start)), file=out)
    if not outcome.ok:
        print(f"preview {asked.stack}: FAILED, see above", file=sys.stderr)
    return 0 if outcome.ok else EXIT_FAULT


if __name__ == "__main__":
    sys.exit(main())
