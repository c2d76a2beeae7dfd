"""Lists as ``md5sum`` writes and checks them: a file that others can check with the tools of their system.

MD5 notices accidents, nobody's intent; what the trainer itself trusts is the manifest's SHA-256.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

from ..errors import ConfigurationError, DatasetError

# "<digest>  <name>" or "<digest> *<name>" (binary mode); a name with a backslash or a line feed is escaped and the
# line begins with a backslash (GNU coreutils).
_LINE = re.compile(r"(?P<escaped>\\?)(?P<digest>[0-9a-fA-F]{32}) [ *](?P<name>.+)")


def md5_of(path: Path) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def read_md5_list(path: Path) -> dict[str, str]:
    """File name (as the list has it, ``./`` taken off) to digest; raises ConfigurationError with the line."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: cannot be read: {error}") from error
    wanted: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise ConfigurationError(f"{path}, line {number}: is not of md5sum's form: DIGEST  FILE")
        name = match["name"]
        if match["escaped"]:
            name = re.sub(r"\\(.)", lambda found: {"n": "\n", "r": "\r"}.get(found[1], found[1]), name)
        wanted[name.removeprefix("./")] = match["digest"].lower()
    return wanted


def check_md5_list(list_file: Path, folder: Path, files: Iterable[Path]) -> int:
    """How many files were compared; raises DatasetError for the first one that differs, is missing or not listed.

    ``files``: all that is to be imported; each must be in the list, with a name relative to ``folder``.
    """
    wanted = read_md5_list(list_file)
    names = {path.relative_to(folder).as_posix(): path for path in files}
    for name in names:
        if name not in wanted:
            raise DatasetError(f"{names[name]} is not in {list_file}; add it, or move it away")
    for name, digest in wanted.items():
        path = folder / name
        if not path.is_file():
            raise DatasetError(f"{path} is missing; {list_file} lists it")
        if (found := md5_of(path)) != digest:
            raise DatasetError(f"{path} has MD5 {found}, {list_file} says {digest}; fetch the file again")
    return len(wanted)


def write_md5_list(list_file: Path, folder: Path, files: Iterable[Path]) -> None:
    """So that ``cd folder && md5sum -c list`` checks the files."""
    lines = []
    for path in files:
        name = path.relative_to(folder).as_posix()
        escaped = name.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
        mark = "\\" if escaped != name else ""
        lines.append(f"{mark}{md5_of(path)}  {escaped}\n")
    list_file.write_text("".join(lines), encoding="utf-8")
