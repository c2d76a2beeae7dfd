"""A trainer release for tests that run the program: one small tar stands for each of its parts."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path


def small_release(folder: Path) -> Path:
    """Write tar and manifest, torch for images without it included; gives the manifest, for GPU_TRAINING_RELEASE."""
    (folder / "it.tar").write_bytes(b"it")
    tar = {"file": "it.tar", "sha256": hashlib.sha256(b"it").hexdigest()}
    manifest = {
        "version": "1.2.3",
        "artifacts": {"cp312": tar, "host": tar},
        "torchArtifacts": {"cp312": tar},
    }
    path = folder / "release.json"
    path.write_text(json.dumps(manifest))
    return path
