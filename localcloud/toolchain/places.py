"""Where things lie: the checkout, and the cache that all checkouts of one user share."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = ROOT / "requirements"
ENGINE_MODULE = ROOT / "localcloud" / "engine"
LINT_MODULE = ROOT / "localcloud" / "toolchain" / "lint"


def cache() -> Path:
    """The cache folder: `GPU_TRAINING_CACHE`, else `gpu-training` in the user's cache folder."""
    override = os.environ.get("GPU_TRAINING_CACHE")
    if override:
        return Path(override).expanduser().resolve()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser().resolve() / "gpu-training"
