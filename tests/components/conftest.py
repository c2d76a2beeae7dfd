"""A trainer release for every test: the program reads its manifest, and the engine would read the tars."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def release_manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A manifest with one small tar for each interpreter that the stack files need."""
    folder = tmp_path_factory.mktemp("dist")
    artifacts = {}
    for abi in ("cp312", "host"):
        data = f"the trainer for {abi}".encode()
        (folder / f"{abi}.tar").write_bytes(data)
        artifacts[abi] = {
            "file": f"{abi}.tar",
            "sha256": hashlib.sha256(data).hexdigest(),
            "bytes": len(data),
        }
    manifest = folder / "release.json"
    manifest.write_text(json.dumps({"version": "1.2.3", "artifacts": artifacts, "inputsSha256": "0" * 64}))
    return manifest


@pytest.fixture(autouse=True)
def release(release_manifest: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPU_TRAINING_RELEASE", str(release_manifest))
