"""Reading the trainer release's manifest, which `make release` writes; nothing is built here."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

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
    """The trainer's tars, and those of torch where it was built for images without it, by interpreter ABI."""

    version: str
    trainer: dict[str, ReleaseFile]
    torch: dict[str, ReleaseFile]

    def trainer_for(self, abi: str) -> ReleaseFile:
        """The trainer for an interpreter such as cp312, or ``host``; ReleaseError where it was not built."""
        if abi not in self.trainer:
            built = ", ".join(sorted(self.trainer)) or "none"
            raise ReleaseError(
                f"the trainer release has no artifact for {abi} (it has: {built}): run 'make release'"
            )
        return self.trainer[abi]

    def torch_for(self, abi: str, image_profile: str) -> ReleaseFile:
        """torch for an image that has none; ReleaseError where the release does not carry it."""
        if abi not in self.torch:
            raise ReleaseError(
                f"image profile '{image_profile}' has no torch and the trainer release carries none for "
                f"{abi}: choose an image profile with torch, or add a tar of its wheels to "
                "'torchArtifacts' in the release's manifest"
            )
        return self.torch[abi]


def read_release(project_dir: Path) -> Release:
    """The manifest ``dist/release.json`` of the project, or the one named by GPU_TRAINING_RELEASE.

    Raises ReleaseError when it is missing or is no manifest.
    """
    path = Path(os.environ.get(MANIFEST_VARIABLE) or project_dir / MANIFEST)
    try:
        manifest = json.loads(path.read_text("utf-8"))
        return Release(
            version=manifest["version"],
            trainer=_files(path.parent, manifest["artifacts"]),
            torch=_files(path.parent, manifest.get("torchArtifacts", {})),
        )
    except ReleaseError:
        raise
    except FileNotFoundError:
        raise ReleaseError(f"the trainer release {path} is missing: run 'make release'") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ReleaseError(
            f"{path} is no manifest of a trainer release ({error}): run 'make release'"
        ) from None


def _files(folder: Path, artifacts: dict[str, dict[str, str]]) -> dict[str, ReleaseFile]:
    files = {abi: ReleaseFile(folder / entry["file"], entry["sha256"]) for abi, entry in artifacts.items()}
    for file in files.values():
        if not file.path.is_file():
            raise ReleaseError(f"{file.path} of the trainer release is missing: run 'make release'")
    return files
