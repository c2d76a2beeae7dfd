"""The catalog of instance types, for validators that need a type's facts.

The pack is served from its own folder, in the environment of the program; the program's root, one above, is put
at the end of the import path.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = str(Path(__file__).parents[3])
if ROOT not in sys.path:
    sys.path.append(ROOT)

from components.catalog import INSTANCE_TYPES, nearest, on_demand_price  # noqa: E402

__all__ = ["INSTANCE_TYPES", "nearest", "on_demand_price"]
