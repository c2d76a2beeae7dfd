"""`make release`: the trainer and its pinned dependencies, one tar for each interpreter that a node may have.

A tar holds `wheels/*.whl` and `requirements.txt`, which pins each of them by version and SHA-256, so that a node
installs it without any index. `dist/release.json` names the tars of the newest release and of the four before it;
the infrastructure program reads nothing else. Equal inputs give equal bytes, and a second call on unchanged inputs
does nothing. `make release TORCH=cp312` adds torch's wheels, for images that have no torch.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import sys
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import Any

from localcloud import packing, releases_kept, torch_release, wheels
from localcloud.toolchain import places
from localcloud.wheels import ReleaseError, Target, pins_for, pip_download, requirements_of, write_artifact

LOCK_FILE = places.REQUIREMENTS / "trainer.txt"
SOURCE = places.ROOT / "trainer"
PACKAGE_SUFFIXES = {".py", ".json", ".yaml", ".typed"}
SCHEMA_FILE = "src/trainer/contracts/node_document.py"


def host_abi() -> str:
    return f"cp{sys.version_info[0]}{sys.version_info[1]}"


def wanted_abis() -> list[str]:
    """What all image profiles need; this machine's own interpreter stands for `host`."""
    from components.bootstrap.release import artifact_name
    from components.catalog.image_profiles import IMAGE_PROFILES

    named = {artifact_name(profile.abi, profile.architecture) for profile in IMAGE_PROFILES.values()}
    return sorted((named - {"host"}) | {host_abi()})


def build(
    source: Path, lock: Path, out: Path, abis: Iterable[str], cache: Path, today: date | None = None
) -> dict[str, Any]:
    """Build what is missing; returns the content of `<out>/release.json`. Raises ReleaseError.

    A release that is kept and has these very inputs becomes the newest again as it is.
    """
    abis = sorted(set(abis))
    if not lock.is_file():
        raise ReleaseError(f"{lock} is missing: run 'make lock'")
    inputs = _inputs_sha256(source, lock, abis)
    manifest_file = out / releases_kept.MANIFEST
    releases = releases_kept.read(manifest_file)
    same = next((entry for entry in releases if entry.get("inputsSha256") == inputs), None)
    if same is None:
        newest = _build_new(source, lock, out, abis, cache, today or date.today())
        newest["inputsSha256"] = inputs
    else:
        newest = same
    newest = torch_release.carried(newest, releases, torch_release.LOCK_FILE)
    return releases_kept.write(manifest_file, newest, releases)


def _build_new(
    source: Path, lock: Path, out: Path, abis: list[str], cache: Path, today: date
) -> dict[str, Any]:
    project = project_table(source / "pyproject.toml")
    wheel = packing.wheel_bytes(project, package_files(source / "src"))
    # Sources that differ are different releases, whether or not somebody thought of a new version number; neither
    # the machine that builds nor the day is part of the name.
    version = f"{project['version']}-{_source_sha256(source, lock)[:8]}"
    out.mkdir(parents=True, exist_ok=True)
    artifacts: dict[str, dict[str, Any]] = {}
    for abi in abis:
        fetched = download(pins_for(lock.read_text(), abi), abi, cache)
        files: dict[str, Path | bytes] = {f"wheels/{path.name}": path for path in fetched}
        files[f"wheels/{packing.wheel_name(project)}"] = wheel
        files["requirements.txt"] = requirements_of(files).encode()
        artifacts[abi] = write_artifact(out, f"trainer-{version}-{abi}", files)
    if host_abi() in artifacts:
        artifacts["host"] = artifacts[host_abi()]
    return {
        "version": version,
        "date": today.isoformat(),
        "nodeDocumentSchema": _schema_version(source),
        "artifacts": artifacts,
    }


def download(pins: list[str], abi: str, cache: Path) -> list[Path]:
    """The wheels for the pins, fetched by pip and kept in the cache by the hash of the pins."""
    text = "\n".join(pins) + "\n"
    folder = cache / "wheels" / f"{abi}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    if not folder.is_dir():
        partial = folder.with_name(f"{folder.name}.{os.getpid()}.part")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        requirements = partial / "requirements.txt"
        requirements.write_text(text)
        print(f"release: fetching {len(pins)} wheels for {abi}", file=sys.stderr)
        try:
            pip_download(Target.of(abi), requirements, partial, limit_seconds=600)
        except ReleaseError as error:
            shutil.rmtree(partial, ignore_errors=True)
            raise ReleaseError(f"the wheels for {abi} could not be fetched: {error}") from None
        requirements.unlink()
        try:
            os.replace(partial, folder)
        except OSError:  # another process was first
            shutil.rmtree(partial, ignore_errors=True)
    return sorted(folder.glob("*.whl"))


def project_table(pyproject: Path) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib  # pyright: ignore[reportMissingImports]  pytest brings it there
    return tomllib.loads(pyproject.read_text())["project"]


def package_files(src: Path) -> dict[str, bytes]:
    return {
        path.relative_to(src).as_posix(): path.read_bytes()
        for path in sorted(src.rglob("*"))
        if path.is_file() and path.suffix in PACKAGE_SUFFIXES
    }


def _schema_version(source: Path) -> int:
    """The newest schema of node documents that this trainer reads."""
    found = re.search(r"^SCHEMA_VERSION = (\d+)$", (source / SCHEMA_FILE).read_text(), re.MULTILINE)
    if found is None:
        raise ReleaseError(f"{source / SCHEMA_FILE} names no SCHEMA_VERSION")
    return int(found[1])


def _source_sha256(source: Path, lock: Path) -> str:
    files = {f"src/{path}": data for path, data in package_files(source / "src").items()}
    files["pyproject.toml"] = (source / "pyproject.toml").read_bytes()
    files["requirements.txt"] = lock.read_bytes()
    return _digest(files)


def _inputs_sha256(source: Path, lock: Path, abis: list[str]) -> str:
    """Of everything that the tars of this machine come from, the code that makes them included."""
    files = {"source": _source_sha256(source, lock).encode(), "abis": "\n".join([*abis, host_abi()]).encode()}
    for module in (Path(__file__), Path(packing.__file__), Path(wheels.__file__)):
        files[module.name] = module.read_bytes()
    return _digest(files)


def _digest(files: dict[str, bytes]) -> str:
    digest = hashlib.sha256()
    for path, data in sorted(files.items()):
        digest.update(f"\n{path} {hashlib.sha256(data).hexdigest()}".encode())
    return digest.hexdigest()


def main() -> int:
    parser = argparse.ArgumentParser(prog="make release", description=__doc__)
    parser.add_argument(
        "--out", type=Path, default=places.ROOT / "dist", help="folder for the tars and release.json"
    )
    parser.add_argument(
        "--torch", metavar="ABI", help="also torch's wheels for an image without torch: cp312"
    )
    asked = parser.parse_args()
    out: Path = asked.out
    before = (out / releases_kept.MANIFEST).read_bytes() if (out / releases_kept.MANIFEST).is_file() else b""
    try:
        manifest = build(SOURCE, LOCK_FILE, out, wanted_abis(), places.cache())
        if asked.torch:
            manifest = torch_release.add(out, asked.torch, places.cache())
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("release: interrupted; what was fetched is kept for the next call", file=sys.stderr)
        return 130
    state = "unchanged" if (out / releases_kept.MANIFEST).read_bytes() == before else "built"
    print(f"release: {state} {manifest['version']}")
    for kind in ("artifacts", "torchArtifacts"):
        for abi, artifact in sorted(manifest.get(kind, {}).items()):
            print(f"release:   {abi}: {artifact['file']} ({artifact['bytes'] / 2**20:.1f} MiB)")
    for entry in manifest.get("kept", []):
        print(f"release: kept {entry['version']} of {entry['date']}; trainerVersion: {entry['version']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
