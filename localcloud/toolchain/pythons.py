"""Python environments from the locked requirement files, installed by the uv that `bootstrap.txt` pins."""

from __future__ import annotations

import importlib.util
import os
import platform
import sys
from pathlib import Path

from .places import REQUIREMENTS
from .running import Failed, Work
from .store import Entry, provide

BOOTSTRAP_LIMIT_SECONDS = 300.0
INSTALL_LIMIT_SECONDS = 1800.0  # torch's CUDA build is 5 GB

# Environment -> the requirement files that make it.
ENVIRONMENTS = {
    "program": ("program",),
    "workbench": ("program", "trainer", "tests"),
    "image": ("image",),
    "go": ("go",),
}


def _locked_versions(*names: str) -> tuple[str, ...]:
    return tuple((REQUIREMENTS / f"{name}.txt").read_text() for name in names)


def _interpreter() -> tuple[str, ...]:
    """What an environment depends on beside its packages; the same inside an environment as outside of it."""
    return (sys.base_prefix, platform.python_version(), sys.implementation.name, platform.machine())


def _base_python() -> str:
    """The interpreter that environments are made from: never one inside an environment."""
    name = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    candidate = Path(sys.base_prefix) / "bin" / name
    return str(candidate) if candidate.exists() else getattr(sys, "_base_executable", sys.executable)


def site_packages(environment: Path) -> Path:
    """Where an environment of this interpreter keeps its packages."""
    return environment / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"


def uv_entry() -> Entry:
    return Entry("uv", (*_interpreter(), *_locked_versions("bootstrap")))


def entry(name: str) -> Entry:
    """The store's entry of an environment; the workbench borrows torch from the image and depends on it."""
    inputs = (*_interpreter(), *_locked_versions(*ENVIRONMENTS[name]))
    if name == "workbench":
        inputs = (*inputs, str(entry("image").path))
    return Entry(name, inputs)


def provide_uv(work: Work) -> Path:
    """Install uv by pip, hashes required, into an environment of its own."""
    made = uv_entry()

    def make(folder: Path) -> None:
        if importlib.util.find_spec("ensurepip") is None:
            raise Failed(
                "this Python has no venv module: sudo apt-get install python3-venv, or SETUP_SYSTEM=1"
            )
        work.run([_base_python(), "-m", "venv", str(folder)], made.log, BOOTSTRAP_LIMIT_SECONDS)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-input"]
        locked = ["--require-hashes", "--only-binary", ":all:", "-r", str(REQUIREMENTS / "bootstrap.txt")]
        work.run([*pip, *locked], made.log, BOOTSTRAP_LIMIT_SECONDS)

    return provide(made, work, make) / "bin" / "uv"


def provide_environment(name: str, work: Work) -> Path:
    """Install one of ENVIRONMENTS; gives its folder. The image has to be there before the workbench."""
    made = entry(name)
    uv = str(uv_entry().path / "bin" / "uv")

    def make(folder: Path) -> None:
        # Relocatable: scripts find their interpreter beside them, so that the folder may be renamed.
        create = ["venv", "--quiet", "--relocatable", "--no-project", "--python", _base_python(), str(folder)]
        work.run([uv, *create], made.log, BOOTSTRAP_LIMIT_SECONDS, _quiet_environment())
        install = [uv, "pip", "install", "--require-hashes", "--python", str(folder / "bin" / "python")]
        if name == "image":
            install.append("--compile-bytecode")  # as on a machine image: it is read-only for the nodes
        for requirement in ENVIRONMENTS[name]:
            install += ["-r", str(REQUIREMENTS / f"{requirement}.txt")]
        work.run(install, made.log, INSTALL_LIMIT_SECONDS, _quiet_environment())
        if name == "image":
            # A path without a minor version, as the image profile `local` of the catalog names it.
            (folder / "lib" / "python3").symlink_to(site_packages(folder).parent.name)
        if name == "workbench":
            # Torch comes from the image, exactly as in a node's own environment.
            (site_packages(folder) / "image.pth").write_text(f"{site_packages(entry('image').path)}\n")

    return provide(made, work, make)


def _quiet_environment() -> dict[str, str]:
    """The caller's environment without an active virtual environment or Python path."""
    dropped = {"VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME", "CONDA_PREFIX"}
    return {name: value for name, value in os.environ.items() if name not in dropped} | {
        "UV_NO_PROGRESS": "1",
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_HTTP_TIMEOUT": "180",
    }
