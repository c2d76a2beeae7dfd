"""The tools the project needs, built or installed once into the user's cache: none has to be on the machine.

Run by any `python3` from 3.10 on, before anything is installed: it uses the standard library alone.

    python3 -m localcloud.toolchain ensure all      # what `make setup` does
    python3 -m localcloud.toolchain exec workbench -m pytest

`paths()` tells where the tools are; `ensure()` makes those that are not there yet.
"""

from __future__ import annotations

import sys

if sys.version_info < (3, 10):  # noqa: UP036 - the one place that meets an older one
    raise SystemExit(
        f"setup: Python 3.10 or newer is needed, this is {sys.version_info[0]}.{sys.version_info[1]} "
        f"({sys.executable}); name another by `make PYTHON=python3.12 ...`"
    )

from .places import ROOT, cache
from .plan import NEEDS, Paths, ensure, paths
from .running import Failed

__all__ = ["NEEDS", "ROOT", "Failed", "Paths", "cache", "ensure", "paths"]
