"""What all tests share: the project's tools, an environment without anybody's credentials, tools that must be there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest

from localcloud.toolchain import Paths, paths, rootfs

# Whoever runs the tests has credentials, contexts and stacks of their own; none of them may reach a test.
FOREIGN = (
    "AWS_",
    "PULUMI_",
    "KUBECONFIG",
    "GPU_TRAINING_LOCAL",
    "GPU_TRAINING_STANDIN",
    "GPU_TRAINING_RELEASE",
    "TRAINER_",
)


def no_prometheus() -> list[str]:
    return [name for name in ("prometheus", "promtool", "amtool") if shutil.which(name) is None]


def no_loop_disk() -> list[str]:
    tools = [name for name in ("losetup", "mkfs.xfs", "blkid") if shutil.which(name) is None]
    return (
        tools
        if os.geteuid() == 0 and os.path.exists("/dev/loop-control")
        else [*tools, "root with loop devices"]
    )


# Marker -> what its tests need and this machine lacks.
MARKED = {"prometheus": no_prometheus, "machine": rootfs.missing, "loop_disk": no_loop_disk}


def pytest_configure(config: pytest.Config) -> None:
    for name in [name for name in os.environ if name.startswith(FOREIGN)]:
        del os.environ[name]
    os.environ["AWS_CONFIG_FILE"] = os.environ["AWS_SHARED_CREDENTIALS_FILE"] = os.devnull


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests of tools that this machine lacks are left out, with a word; where all was to be set up, it is a fault."""
    for marker, lacking in MARKED.items():
        absent = lacking()
        left_out = [item for item in items if item.get_closest_marker(marker) is not None]
        if not absent or not left_out:
            continue
        if os.environ.get("CI") == "true" or os.environ.get("SETUP_SYSTEM") == "1":
            raise pytest.UsageError(f"{', '.join(absent)} missing: run `SETUP_SYSTEM=1 make setup` first")
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)


def pytest_report_header(config: pytest.Config) -> list[str]:
    return [
        f"left out, this machine lacks {', '.join(absent)}: tests marked {marker}"
        for marker, lacking in MARKED.items()
        if (absent := lacking())
    ]


@pytest.fixture(scope="session")
def tools() -> Paths:
    return paths()


@pytest.fixture(autouse=True)
def unchanged_environment() -> Iterator[None]:
    """What a test writes into the environment ends with it."""
    before = dict(os.environ)
    yield
    for name in os.environ.keys() - before.keys():
        del os.environ[name]
    for name, value in before.items():
        if os.environ.get(name) != value:
            os.environ[name] = value
