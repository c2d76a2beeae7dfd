"""What the standby's forkserver imports ahead, and then the script of each rank that torchrun has it fork.

Such a rank does what `python -m trainer.worker` does, in the environment and with the log of its generation.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from trainer.agent.standby import AHEAD, import_aside, output_to


def run(environment: str, log: str, *argv: str) -> None:
    os.environ.update(json.loads(environment))  # beside RANK and its like, which torchrun has set
    output_to(log)
    Path("/proc/self/comm").write_text(f"rank-{os.environ['RANK']}")  # `rank_processes` finds it by that
    from trainer.worker import main

    code = main([*argv])
    sys.stdout.flush()
    sys.stderr.flush()
    if code:
        os._exit(code)  # as `trainer.worker` does; of the others torchrun waits for the return


if __name__ == "__main__":
    run(*sys.argv[1:])
else:
    import_aside(*AHEAD)
