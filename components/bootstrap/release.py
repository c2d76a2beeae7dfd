"""Reading the trainer release's manifest, which `make release` writes; nothing is built here."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from components.catalog import nearest

from .node_document import SCHEMA_VERSION

MANIFEST_VARIABLE = "GPU_TRAINING_RELEASE"  # another manifest than dist/release.json
MANIFEST = Path("dist") / "release.json"


class ReleaseError(ValueError):
    """The release is missing, unreadable, or lacks what a group's image needs."""


@dataclass(frozen=True)
class ReleaseFile:
    """One tar of wheels for one interpreter."""

    path: Path
    sha256: str


@dataclass(frozen=True)
class Release:
    """The trainer's tars, and those of torch where it was built for images without it, by `artifact_name`."""

    version: str
    trainer: dict[str, ReleaseFile]
    torch: dict[str, ReleaseFile]
    node_document_schema: int = SCHEMA_VERSION  # what this trainer reads

    def trainer_for(self, name: str) -> ReleaseFile:
        """The trainer for an interpreter such as cp312, or ``host``; ReleaseError where it was not built."""
        if name not in self.trainer:
            built = ", ".join(sorted(self.trainer)) or "none"
            raise ReleaseError(
                f"the trainer release has no artifact for {name} (it has: {built}): run 'make release'"
            )
        return self.trainer[name]

    def torch_for(self, name: str, image_profile: str) -> ReleaseFile:
        """torch for an image that has none; ReleaseError where the release does not carry it."""
        if name not in self.torch:
            raise ReleaseError(
                f"image profile '{image_profile}' has no torch and the trainer release carries none for "
                f"{name}: run 'make release TORCH={name}', or choose an image profile with torch"
            )
        return self.torch[name]


@dataclass(frozen=True)
class Releases:
    """The releases that are kept, the newest first."""

    kept: tuple[Release, ...]

    def choose(self, version: str | None) -> Release:
        """The release that nodes install: the newest, or the newest whose version this is or begins with.

        ``0.1.0`` stands for the newest build of 0.1.0, ``0.1.0-3f2a91bc`` for that one. Raises ReleaseError for one
        that is not kept, and for one that cannot read today's node documents.
        """
        found = [one for one in self.kept if version in (None, one.version, one.version.rpartition("-")[0])]
        if not found:
            names = [one.version for one in self.kept]
            close = nearest(str(version), names)
            raise ReleaseError(
                f"gpu-training:trainerVersion: no release '{version}' is kept; there are {', '.join(names)}"
                + (f" (nearest match: {close})" if close else "")
            )
        if found[0].node_document_schema != SCHEMA_VERSION:
            raise ReleaseError(
                f"gpu-training:trainerVersion: {found[0].version} reads node documents of schema "
                f"{found[0].node_document_schema}, this program writes {SCHEMA_VERSION}: deploy that release with "
                "the program of its own time"
            )
        return found[0]

    def files(self, used: Iterable[ReleaseFile]) -> list[ReleaseFile]:
        """What lies in the bucket: the tars in use, and of every kept release those for the same images."""
        used = list(used)
        roles = [
            (kind, name)
            for one in self.kept
            for kind in ("trainer", "torch")
            for name, file in getattr(one, kind).items()
            if file in used
        ]
        kept = [getattr(one, kind).get(name) for kind, name in roles for one in self.kept]
        return list(dict.fromkeys([*used, *(file for file in kept if file is not None)]))


def artifact_name(abi: str, architecture: str) -> str:
    """How a release names its tars: by interpreter, and by architecture where it is not x86_64."""
    return abi if architecture == "x86_64" else f"{abi}-{architecture}"


def read_releases(project_dir: Path) -> Releases:
    """The manifest ``dist/release.json`` of the project, or the one named by GPU_TRAINING_RELEASE.

    Raises ReleaseError when it is missing or is no manifest.
    """
    path = Path(os.environ.get(MANIFEST_VARIABLE) or project_dir / MANIFEST)
    try:
        manifest = json.loads(path.read_text("utf-8"))
        return Releases(tuple(_release(path.parent, row) for row in (manifest, *manifest.get("kept", []))))
    except ReleaseError:
        raise
    except FileNotFoundError:
        raise ReleaseError(f"the trainer release {path} is missing: run 'make release'") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ReleaseError(
            f"{path} is no manifest of a trainer release ({error}): run 'make release'"
        ) from None


def _release(folder: Path, row: Mapping[str, Any]) -> Release:
    return Release(
        version=row["version"],
        trainer=_files(folder, row["artifacts"]),
        torch=_files(folder, row.get("torchArtifacts", {})),
        node_document_schema=int(row.get("nodeDocumentSchema", SCHEMA_VERSION)),
    )


def _files(folder: Path, artifacts: Mapping[str, Mapping[str, Any]]) -> dict[str, ReleaseFile]:
    files = {name: ReleaseFile(folder / entry["file"], entry["sha256"]) for name, entry in artifacts.items()}
    for file in files.values():
        if not file.path.is_file():
            raise ReleaseError(f"{file.path} of the trainer release is missing: run 'make release'")
    return files
