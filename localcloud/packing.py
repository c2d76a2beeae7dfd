"""Archives with equal bytes for equal content: a pure-Python wheel and an uncompressed tar.

Nothing in them depends on the clock, the user, the order of a directory or the version of a compressor: times are
fixed, owners are root, names are sorted and the wheel's files are stored (the whole package is a few hundred KiB).
"""

from __future__ import annotations

import base64
import hashlib
import io
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ZIP_TIME = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip file can say
WHEEL_TEXT = "Wheel-Version: 1.0\nGenerator: gpu-training release\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def wheel_name(project: Mapping[str, Any]) -> str:
    return f"{project['name'].replace('-', '_')}-{project['version']}-py3-none-any.whl"


def wheel_bytes(project: Mapping[str, Any], files: Mapping[str, bytes]) -> bytes:
    """A wheel from a pyproject's ``[project]`` table and the package's files by path inside the wheel."""
    info = f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    content = dict(sorted(files.items()))
    content[f"{info}/METADATA"] = _metadata(project).encode()
    content[f"{info}/WHEEL"] = WHEEL_TEXT.encode()
    content[f"{info}/entry_points.txt"] = _entry_points(project).encode()
    record = "".join(f"{path},sha256={_digest(data)},{len(data)}\n" for path, data in content.items())
    content[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for path, data in content.items():
            entry = zipfile.ZipInfo(path, ZIP_TIME)
            entry.external_attr = 0o100644 << 16
            entry.create_system = 3  # Unix, on whatever system this runs
            archive.writestr(entry, data)
    return out.getvalue()


def write_tar(target: Path, files: Mapping[str, Path | bytes]) -> None:
    """An uncompressed tar (wheels are compressed already) with the files in the order of their names."""
    with tarfile.open(target, "w", format=tarfile.GNU_FORMAT) as archive:
        for name, source in sorted(files.items()):
            entry = tarfile.TarInfo(name)  # mtime 0, uid and gid 0
            entry.mode = 0o644
            with io.BytesIO(source) if isinstance(source, bytes) else source.open("rb") as data:
                entry.size = data.seek(0, io.SEEK_END)
                data.seek(0)
                archive.addfile(entry, data)


def sha256_of(source: Path | bytes) -> str:
    """In hex; a file is never in memory as a whole, since torch's are GiB large."""
    digest = hashlib.sha256()
    with io.BytesIO(source) if isinstance(source, bytes) else source.open("rb") as data:
        while block := data.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def _metadata(project: Mapping[str, Any]) -> str:
    lines = ["Metadata-Version: 2.1", f"Name: {project['name']}", f"Version: {project['version']}"]
    lines += [f"Summary: {project['description']}", f"License: {project['license']}"]
    lines += [f"Requires-Python: {project['requires-python']}"]
    lines += [f"Requires-Dist: {requirement}" for requirement in project["dependencies"]]
    for extra, requirements in project.get("optional-dependencies", {}).items():
        lines.append(f"Provides-Extra: {extra}")
        lines += [f"Requires-Dist: {requirement}; extra == '{extra}'" for requirement in requirements]
    return "\n".join(lines) + "\n"


def _entry_points(project: Mapping[str, Any]) -> str:
    lines = [f"{name} = {target}" for name, target in project["scripts"].items()]
    return "[console_scripts]\n" + "\n".join(lines) + "\n"
