"""Which tools there are, where they lie, and in which order they are made."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

from . import golang, pythons, rootfs, system
from .running import Failed, Work

# What may be asked for -> what that takes.
NEEDS = {
    "program": ("program",),
    "image": ("image",),
    "workbench": ("image", "workbench"),
    "pulumi": ("pulumi",),
    "mock": ("mock",),
    "lint": ("actionlint",),
    "preview": ("program", "pulumi"),
    "system": ("system",),
    "machine": ("image", "mock", "machine"),
    "all": ("image", "program", "workbench", "mock", "pulumi", "actionlint", "system", "machine"),
}


@dataclass(frozen=True)
class Paths:
    """Where each tool is, also before `ensure` has made it. None: not on this machine."""

    uv: Path
    go: Path
    pulumi: Path
    language_host: Path | None  # the Python host that came with the CLI; None: the stand-in is used
    language_exec: Path
    metadata_mock: Path
    actionlint: Path
    python_program: Path
    python_workbench: Path
    python_image: Path
    image_dir: Path
    machine_root: Path  # the root file system of machine nodes
    prometheus: Path | None
    promtool: Path | None
    alertmanager: Path | None
    amtool: Path | None


def paths() -> Paths:
    """Look the tools up; nothing is made. Gives the same answer inside an environment of ours as outside."""
    image = pythons.entry("image").path
    on_path = golang.pulumi_on_path()
    host = on_path.parent / "pulumi-language-python" if on_path else None
    bundled = host is not None and host.exists()
    return Paths(
        uv=pythons.uv_entry().path / "bin" / "uv",
        go=golang.go_path(),
        pulumi=on_path or golang.tool_path("pulumi"),
        language_host=host if bundled else None,
        language_exec=golang.executor_entry().path / golang.EXECUTOR,
        metadata_mock=golang.tool_path("metadata-mock"),
        actionlint=golang.tool_path("actionlint"),
        python_program=pythons.entry("program").path / "bin" / "python",
        python_workbench=pythons.entry("workbench").path / "bin" / "python",
        python_image=image / "bin" / "python",
        image_dir=image,
        machine_root=rootfs.entry().path,
        prometheus=_which("prometheus"),
        promtool=_which("promtool"),
        alertmanager=_which("prometheus-alertmanager") or _which("alertmanager"),
        amtool=_which("amtool"),
    )


def _which(name: str) -> Path | None:
    found = shutil.which(name)
    return Path(found) if found else None


def ensure(*wanted: str) -> Paths:
    """Make what is missing for the names of NEEDS given; Python environments and Go builds side by side.

    Raises Failed with one line; then nothing of this call is left running.
    """
    needed = {need for name in wanted for need in NEEDS[name]}
    work = Work()
    python_steps: list[Callable[[Work], object]] = [
        lambda work, name=name: pythons.provide_environment(name, work)
        for name in ("image", "program", "workbench")
        if name in needed
    ]
    go_steps: list[Callable[[Work], object]] = []
    if "pulumi" in needed:
        host = paths().language_host
        if host is None:
            go_steps.append(golang.provide_executor)
        if golang.pulumi_on_path() is None:
            go_steps.append(lambda work: golang.provide_tool("pulumi", work))
    if "mock" in needed:
        go_steps.insert(0, lambda work: golang.provide_tool("metadata-mock", work))
    if "actionlint" in needed:
        go_steps.append(lambda work: golang.provide_tool("actionlint", work))
    if go_steps:
        go_steps.insert(0, golang.provide_go)
    if "system" in needed:
        system.provide_packages(work)
    machine_steps: list[Callable[[Work], object]] = []
    if "machine" in needed and (wanted == ("machine",) or not rootfs.missing()):
        machine_steps.append(rootfs.provide_rootfs)  # where it cannot be, nodes are process trees
    if python_steps or (go_steps and golang.go_on_path() is None):
        pythons.provide_uv(work)
    _side_by_side(work, python_steps, go_steps, machine_steps)
    return paths()


def _side_by_side(work: Work, *tracks: Iterable[Callable[[Work], object]]) -> None:
    def follow(track: Iterable[Callable[[Work], object]]) -> None:
        for step in track:
            step(work)

    with ThreadPoolExecutor(len(tracks)) as pool:
        futures: list[Future[None]] = [pool.submit(follow, track) for track in tracks]
        try:
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
        except BaseException:
            work.cancel()
            raise
        faults = [fault for future in done if (fault := future.exception()) is not None]
        if faults:
            work.cancel()
            raise faults[0] if isinstance(faults[0], Failed) else Failed(f"setup: {faults[0]!r}") from faults[
                0
            ]
