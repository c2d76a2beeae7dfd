"""Go, and the tools that our two Go modules pin: the Pulumi CLI, the EC2 metadata mock, actionlint."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

from . import pythons
from .places import ENGINE_MODULE, LINT_MODULE
from .running import Failed, Work
from .store import Entry, provide

BUILD_LIMIT_SECONDS = 2400.0  # the CLI takes about 4 minutes on 2 idle cores
QUESTION_LIMIT_SECONDS = 60.0
OLDEST_PULUMI = (3, 250)

PULUMI = "github.com/pulumi/pulumi/pkg/v3"
PULUMI_SDK = "github.com/pulumi/pulumi/sdk/v3"
# Kind -> our module that pins it, and the package built; its last part is the executable's name.
TOOLS = {
    "pulumi": (ENGINE_MODULE, f"{PULUMI}/cmd/pulumi"),
    "metadata-mock": (ENGINE_MODULE, "github.com/aws/amazon-ec2-metadata-mock/cmd/ec2-metadata-mock"),
    "actionlint": (LINT_MODULE, "github.com/rhysd/actionlint/cmd/actionlint"),
}
EXECUTOR = "pulumi-language-python-exec"


def pinned(module: str) -> str:
    """The version that go.mod pins, such as `v3.274.1`."""
    found = re.search(
        rf"^\s*{re.escape(module)} (v\S+)", (ENGINE_MODULE / "go.mod").read_text(), re.MULTILINE
    )
    if found is None:
        raise Failed(f"{module} is not in {ENGINE_MODULE / 'go.mod'}")
    return found.group(1)


def _oldest_go() -> tuple[int, ...]:
    found = re.search(r"^go (\d+(?:\.\d+)*)", (ENGINE_MODULE / "go.mod").read_text(), re.MULTILINE)
    if found is None:
        raise Failed(f"{ENGINE_MODULE / 'go.mod'} has no `go` line")
    return tuple(int(part) for part in found.group(1).split("."))


def _answer(*command: str) -> str:
    """What a command prints; empty if it cannot be run."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=QUESTION_LIMIT_SECONDS, env=_environment()
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _numbers(text: str) -> tuple[int, ...]:
    found = re.search(r"(\d+(?:\.\d+)+)", text)
    return tuple(int(part) for part in found.group(1).split(".")) if found else ()


@cache  # one question takes the CLI a third of a second
def _version(executable: str, *question: str) -> tuple[int, ...]:
    return _numbers(_answer(executable, *question))


def _on_path(name: str, oldest: tuple[int, ...], *question: str) -> Path | None:
    found = shutil.which(name)
    if found is None or _version(found, *question) < oldest:
        return None
    return Path(found).resolve()


def go_on_path() -> Path | None:
    """The `go` on PATH if it is new enough for our module."""
    return _on_path("go", _oldest_go(), "env", "GOVERSION")


def pulumi_on_path() -> Path | None:
    """The `pulumi` on PATH if it is new enough; the real file, which has its language hosts beside it."""
    return _on_path("pulumi", OLDEST_PULUMI, "version")


def go_path() -> Path:
    return go_on_path() or pythons.entry("go").path / "bin" / "go"


def tool_entry(kind: str) -> Entry:
    module, _ = TOOLS[kind]
    pins = ((module / name).read_text() for name in ("go.mod", "go.sum"))
    return Entry(kind, (*pins, platform.machine()))


def tool_path(kind: str) -> Path:
    return tool_entry(kind).path / TOOLS[kind][1].rpartition("/")[2]


def executor_entry() -> Entry:
    return Entry("language-exec", (pinned(PULUMI_SDK),))


def provide_go(work: Work) -> Path:
    if go_on_path() is None:
        pythons.provide_environment("go", work)
    return go_path()


def provide_tool(kind: str, work: Work) -> Path:
    """Build one of TOOLS at the version that go.mod and go.sum pin."""
    made = tool_entry(kind)
    module, package = TOOLS[kind]

    def make(folder: Path) -> None:
        flags = "-s -w"
        if kind == "pulumi":  # without its version the CLI skips every check of requiredPulumiVersion
            flags += f" -X {PULUMI_SDK}/go/common/version.Version={pinned(PULUMI)}"
        folder.mkdir()
        output = str(folder / package.rpartition("/")[2])
        build = ["build", "-v", "-trimpath", "-tags", "osusergo,grpcnotrace", "-ldflags", flags, "-o", output]
        work.run([str(go_path()), *build, package], made.log, BUILD_LIMIT_SECONDS, _environment(), module)

    provide(made, work, make)
    return tool_path(kind)


def provide_executor(work: Work) -> Path:
    """The script that runs a Python program under the engine, from the SDK's Go module."""
    made = executor_entry()

    def make(folder: Path) -> None:
        go = str(go_path())
        work.run(
            [go, "mod", "download", PULUMI_SDK], made.log, BUILD_LIMIT_SECONDS, _environment(), ENGINE_MODULE
        )
        module = subprocess.run(
            [go, "list", "-m", "-f", "{{.Dir}}", PULUMI_SDK],
            cwd=ENGINE_MODULE,
            env=_environment(),
            capture_output=True,
            text=True,
            check=True,
            timeout=QUESTION_LIMIT_SECONDS,
        ).stdout.strip()
        folder.mkdir()
        shutil.copyfile(Path(module) / "python" / "cmd" / EXECUTOR, folder / EXECUTOR)

    return provide(made, work, make) / EXECUTOR


def _environment() -> dict[str, str]:
    """The caller's environment, and a build that needs no C compiler and fetches no other toolchain."""
    fixed = {"GOFLAGS": "", "GOWORK": "off", "GOTOOLCHAIN": "local", "CGO_ENABLED": "0"}
    return {**os.environ, **fixed, "PULUMI_SKIP_UPDATE_CHECK": "true"}
