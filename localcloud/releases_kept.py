"""`dist/release.json`: the newest release, and under `kept` the four before it, to which a stack can roll back.

A release's row has its version, the day of its build, the schema of node documents that it reads, and its tars by
interpreter. Tars that no row names are removed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

MANIFEST = "release.json"
KEPT = 5  # releases, the newest included
TARS = ("trainer-*.tar", "torch-*.tar")


def read(manifest_file: Path) -> list[dict[str, Any]]:
    """The releases whose tars are all there in full, the newest first; none where there is no manifest."""
    try:
        manifest = json.loads(manifest_file.read_text())
        rows = [{key: value for key, value in manifest.items() if key != "kept"}, *manifest.get("kept", [])]
        return [row for row in rows if _is_complete(row, manifest_file.parent)]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []


def write(manifest_file: Path, newest: dict[str, Any], others: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Put a release in front of the others and forget what is too old; returns the manifest. The file is left alone
    where nothing changed.
    """
    kept = [row for row in others if row["version"] != newest["version"]][: KEPT - 1]
    manifest = {**newest, "kept": kept} if kept else newest
    text = json.dumps(manifest, indent=2, sort_keys=True) + "\n"
    if not manifest_file.is_file() or manifest_file.read_text() != text:
        temporary = manifest_file.with_suffix(f".{os.getpid()}.tmp")
        temporary.write_text(text)
        os.replace(temporary, manifest_file)
    named = {tar["file"] for row in [newest, *kept] for tar in _tars(row)}
    for pattern in TARS:
        for path in manifest_file.parent.glob(pattern):
            if path.name not in named:
                path.unlink(missing_ok=True)
    return manifest


def _tars(row: dict[str, Any]) -> list[dict[str, Any]]:
    return [*row["artifacts"].values(), *row.get("torchArtifacts", {}).values()]


def _is_complete(row: dict[str, Any], folder: Path) -> bool:
    return all(
        (folder / tar["file"]).is_file() and (folder / tar["file"]).stat().st_size == tar["bytes"]
        for tar in _tars(row)
    )
