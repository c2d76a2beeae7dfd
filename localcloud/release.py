"""`make release`: the trainer and its pinned dependencies, one tar for each interpreter that a node may have.

A tar holds `wheels/*.whl` and `requirements.txt`, which pins each of them by version and SHA-256, so that a node
installs it without any index. `dist/release.json` names the tars; the infrastructure program reads nothing else.
Equal inputs give equal bytes, and a second call on unchanged inputs does nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import parse_wheel_filename

from localcloud import packing
from localcloud.toolchain import places

LOCK_FILE = places.REQUIREMENTS / "trainer.txt"
SOURCE = places.ROOT / "trainer"
PACKAGE_SUFFIXES = {".py", ".json", ".yaml", ".typed"}
# What wheels for glibc 2.34 (Amazon Linux 2023) and newer may be tagged with.
PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in range(34, 16, -1)] + ["manylinux2014_x86_64"]


class ReleaseError(Exception):
    """One line: what could not be built and what to do."""


def host_abi() -> str:
    return f"cp{sys.version_info[0]}{sys.version_info[1]}"


def wanted_abis() -> list[str]:
    """The interpreters of all image profiles; this machine's own stands for `host`."""
    from components.catalog.image_profiles import IMAGE_PROFILES

    named = {profile.abi for profile in IMAGE_PROFILES.values() if profile.architecture == "x86_64"}
    return sorted((named - {"host"}) | {host_abi()})


def build(source: Path, lock: Path, out: Path, abis: Iterable[str], cache: Path) -> dict[str, Any]:
    """Build what is missing; returns the content of `<out>/release.json`. Raises ReleaseError."""
    abis = sorted(set(abis))
    if not lock.is_file():
        raise ReleaseError(f"{lock} is missing: run 'make lock'")
    inputs = _inputs_sha256(source, lock, abis)
    manifest_file = out / "release.json"
    known = _read_if_complete(manifest_file, inputs)
    if known:
        return known
    project = project_table(source / "pyproject.toml")
    wheel = packing.wheel_bytes(project, package_files(source / "src"))
    out.mkdir(parents=True, exist_ok=True)
    artifacts: dict[str, dict[str, Any]] = {}
    for abi in abis:
        wheels = download(pins_for(lock.read_text(), abi), abi, cache)
        files: dict[str, Path | bytes] = {f"wheels/{path.name}": path for path in wheels}
        files[f"wheels/{packing.wheel_name(project)}"] = wheel
        files["requirements.txt"] = _requirements(files).encode()
        artifacts[abi] = _write_artifact(out, f"trainer-{project['version']}-{abi}", files)
    if host_abi() in artifacts:
        artifacts["host"] = artifacts[host_abi()]
    manifest = {"version": project["version"], "artifacts": artifacts, "inputsSha256": inputs}
    temporary = manifest_file.with_suffix(".tmp")
    temporary.write_text(json.dumps(manifest, indent=2, sort_keys=True) + "\n")
    os.replace(temporary, manifest_file)
    _remove_old(out, {artifact["file"] for artifact in artifacts.values()})
    return manifest


def pins_for(lock_text: str, abi: str) -> list[str]:
    """The lock's `name==version --hash=…` lines that apply to CPython `abi` on x86-64 Linux, without markers."""
    version = f"{abi[2]}.{abi[3:]}"
    environment = {
        "python_version": version,
        "python_full_version": f"{version}.0",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "os_name": "posix",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": "x86_64",
        "extra": "",
    }
    pins = []
    for line in lock_text.replace("\\\n", " ").splitlines():
        words = line.split("#")[0].split(" --hash=")
        if not words[0].strip():
            continue
        requirement = Requirement(words[0].strip())
        if len(words) == 1:
            raise ReleaseError(f"{requirement.name} has no hash in the lock file: run 'make lock'")
        if requirement.marker is None or requirement.marker.evaluate(environment):
            hashes = " ".join(f"--hash={word.strip()}" for word in words[1:])
            pins.append(f"{requirement.name}{requirement.specifier} {hashes}")
    return pins


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
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
        ]
        command += ["--require-hashes", "--only-binary", ":all:", "--implementation", "cp"]
        command += ["--python-version", abi[2:], "--abi", abi, "--abi", "abi3", "--abi", "none"]
        command += [option for platform in PLATFORMS for option in ("--platform", platform)]
        command += ["--dest", str(partial), "--requirement", str(requirements)]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=600)
        if done.returncode != 0:
            shutil.rmtree(partial, ignore_errors=True)
            reason = (done.stderr.strip().splitlines() or ["no output"])[-1]
            raise ReleaseError(f"the wheels for {abi} could not be fetched: {reason}")
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


def _inputs_sha256(source: Path, lock: Path, abis: list[str]) -> str:
    digest = hashlib.sha256("\n".join([*abis, host_abi()]).encode())
    files = {f"src/{path}": data for path, data in package_files(source / "src").items()}
    files["pyproject.toml"] = (source / "pyproject.toml").read_bytes()
    files["requirements.txt"] = lock.read_bytes()
    files["release.py"] = Path(__file__).read_bytes()
    files["packing.py"] = Path(packing.__file__).read_bytes()
    for path, data in sorted(files.items()):
        digest.update(f"\n{path} {hashlib.sha256(data).hexdigest()}".encode())
    return digest.hexdigest()


def _read_if_complete(manifest_file: Path, inputs: str) -> dict[str, Any] | None:
    try:
        manifest = json.loads(manifest_file.read_text())
        sizes = {
            (manifest_file.parent / a["file"]).stat().st_size == a["bytes"]
            for a in manifest["artifacts"].values()
        }
    except (OSError, ValueError, KeyError):
        return None
    return manifest if manifest.get("inputsSha256") == inputs and sizes == {True} else None


def _requirements(wheels: dict[str, Path | bytes]) -> str:
    lines = []
    for name, source in wheels.items():
        data = source if isinstance(source, bytes) else source.read_bytes()
        project, version, _, _ = parse_wheel_filename(Path(name).name)
        lines.append(f"{project}=={version} --hash=sha256:{hashlib.sha256(data).hexdigest()}\n")
    return "".join(sorted(lines))


def _write_artifact(out: Path, stem: str, files: dict[str, Path | bytes]) -> dict[str, Any]:
    temporary = out / f"{stem}.tmp"
    packing.write_tar(temporary, files)
    data = temporary.read_bytes()
    sha256 = hashlib.sha256(data).hexdigest()
    name = f"{stem}-{sha256[:12]}.tar"
    os.replace(temporary, out / name)
    return {"file": name, "sha256": sha256, "bytes": len(data)}


def _remove_old(out: Path, keep: set[str]) -> None:
    for path in out.glob("trainer-*.tar"):
        if path.name not in keep:
            path.unlink(missing_ok=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make release", description=__doc__)
    parser.add_argument(
        "--out", type=Path, default=places.ROOT / "dist", help="folder for the tars and release.json"
    )
    out: Path = parser.parse_args().out
    before = (out / "release.json").read_bytes() if (out / "release.json").is_file() else b""
    try:
        manifest = build(SOURCE, LOCK_FILE, out, wanted_abis(), places.cache())
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    state = "unchanged" if (out / "release.json").read_bytes() == before else "built"
    for abi, artifact in sorted(manifest["artifacts"].items()):
        print(f"release: {state} {abi}: {artifact['file']} ({artifact['bytes'] / 2**20:.1f} MiB)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
