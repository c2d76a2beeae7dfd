"""`trainer train` on this machine: from a folder of shards to a folder of checkpoints, stopped and gone on with."""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from trainer.cli import main
from trainer.contracts.run import RunConfig
from trainer.data.sample import make_sample
from trainer.devices import nvml
from trainer.devices.nvml import Nvml
from trainer.errors import ConfigurationError
from trainer.exit_codes import Exit
from trainer.local_launch import launch, rank_environment
from trainer.local_run import RUN_FILE, _next_generation, _remember
from trainer.local_settings import settings_of
from trainer.runs.config import validate

from tests.trainer.kit import run_config
from tests.trainer.nvml_fake import FakeNvml, h100
from trainer import exclusive

SOURCE = Path(__file__).parents[2] / "trainer" / "src"
QUICK = (
    "--model",
    "tiny-vision",
    "--set",
    "training.modelArgs.width=8",
    "--batch-size",
    "32",
    "--device",
    "cpu",
)


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "shapes"
    make_sample(folder, samples=128, test_samples=32)
    return folder


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in rank_environment(0, 1, "")}
    return {**kept, "PYTHONPATH": str(SOURCE), "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def trainer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., Done]]:
    """`trainer train` in this process, which has torch loaded already; what it leaves behind is put back."""
    variables, path = dict(os.environ), list(sys.path)
    handlers = [(number, signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)]
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Done:
        os.environ.clear()
        os.environ.update({**variables, "GLOO_SOCKET_IFNAME": "lo"})
        code = main(["train", *arguments])
        shown = capsys.readouterr()
        return Done(code, shown.out, shown.err)

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield run
    torch.set_num_threads(threads)
    os.environ.clear()
    os.environ.update(variables)
    sys.path[:] = path
    for number, handler in handlers:
        signal.signal(number, handler)


def steps(output: str) -> list[dict[str, Any]]:
    return [event for event in map(json.loads, output.splitlines()) if event["kind"] == "step"]


def test_ctrl_c_saves_and_the_same_command_goes_on_to_the_very_same_end(
    shapes: Path, tmp_path: Path, trainer: Callable[..., Done]
) -> None:
    asked = ("--dataset", str(shapes), *QUICK, "--steps", "60", "--json")
    whole = trainer(*asked, "--run", "whole")
    assert whole.returncode == Exit.DONE, whole.stderr

    command = [sys.executable, "-m", "trainer", "train", *asked, "--run", "parts"]
    started = subprocess.Popen(
        command, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert started.stdout is not None
    seen = [started.stdout.readline() for _ in range(4)]  # it has begun
    started.send_signal(signal.SIGINT)
    rest, told = started.communicate(timeout=60)
    assert started.returncode == Exit.STOPPED_SAVED, told
    assert "saving at the next step, then stopping" in told and "Traceback" not in told
    first = steps("".join(seen) + rest)
    assert 3 <= len(first) < 60

    second = trainer(*asked, "--run", "parts")
    assert second.returncode == Exit.DONE, second.stderr
    losses = [step["loss"] for step in first + steps(second.stdout)]
    assert losses == [step["loss"] for step in steps(whole.stdout)] and len(losses) == 60

    other = trainer(*asked, "--run", "parts", "--set", "training.learningRate=0.5")
    assert other.returncode == Exit.CONFIGURATION and other.stdout == ""
    assert other.stderr == (
        "trainer: CONFIGURATION (2): run parts was begun with other settings (training.learningRate was 0.001, "
        "is 0.5): give them again to go on, or another --run name to begin anew\n"
    )


def test_a_model_that_is_not_here_is_told_in_one_line_that_says_where_it_goes(
    shapes: Path, tmp_path: Path, trainer: Callable[..., Done]
) -> None:
    done = trainer(
        "--dataset", str(shapes), "--device", "cpu", "--model", "no_such_module:build", "--steps", "1"
    )
    assert done.returncode == Exit.CONFIGURATION
    assert done.stderr == (
        'trainer: CONFIGURATION (2): model "no_such_module:build": there is no module no_such_module; '
        f"put it into {tmp_path}, or install it here with pip\n"
    )


def test_two_processes_from_a_file_of_settings_show_a_table(shapes: Path, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("nodes: 4\ntraining: {dataset: shapes@local, steps: 900}\n")
    command = [
        sys.executable,
        "-m",
        "trainer",
        "train",
        "--config",
        "run.yaml",
        "--dataset",
        str(shapes),
        *QUICK,
    ]
    done = subprocess.run(
        [*command, "--epochs", "2", "--processes", "2", "--run-dir", "here"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == Exit.DONE, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith(
        "run shapes: tiny-vision on shapes@local, 2 processes (cpu), 32 samples a step, 8 steps;"
    )
    assert re.fullmatch(r" +8 of 8 +\d\.\d{4} +[\d,]+ img +\d+\.\d% .*", lines[-5])
    assert lines[-4].startswith("  held-out after step 8: loss") and "accuracy" in lines[-4]
    assert lines[-2].startswith("finished: 8 steps, 2.00 epochs")
    assert list((tmp_path / "here" / "checkpoints").glob("step-00000008/*"))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "which data? give --dataset FOLDER"),
        (("--dataset", "absent"), "absent is not a folder"),
        (
            ("--dataset", "{shapes}", "--steps", "1", "--set", "training.augmnt.flip=true"),
            "did you mean augment?",
        ),
        (
            ("--dataset", "{shapes}", "--steps", "1", "--run-dir", "{shapes}/dataset.json"),
            "is not a folder; give",
        ),
        (("--dataset", "{shapes}", "--steps", "1", "--run-dir", "/proc/x"), "/proc/x: No such file"),
        (("--dataset", "{shapes}"), "training: give either steps or epochs"),
        (("--dataset", "{shapes}", "--steps", "1", "--device", "cuda"), "--device cuda: torch sees no GPU"),
        (("--dataset", "{shapes}", "--devices", "0", "--device", "cpu"), "leave one of them out"),
        (
            ("--dataset", "{shapes}", "--steps", "1", "--batch-size", "9999"),
            "9999 is more than the 128 training",
        ),
    ],
)
def test_a_users_mistake_is_one_line(
    shapes: Path, trainer: Callable[..., Done], arguments: tuple[str, ...], told: str
) -> None:
    done = trainer(*(argument.replace("{shapes}", str(shapes)) for argument in arguments))
    assert done.returncode == Exit.CONFIGURATION
    (line,) = done.stderr.splitlines()
    assert line.startswith("trainer: CONFIGURATION (2): ") and told in line


def test_two_runs_at_once_go_their_own_ways_and_one_folder_is_one_runs(
    shapes: Path, tmp_path: Path, trainer: Callable[..., Done]
) -> None:
    asked = ("--dataset", str(shapes), *QUICK, "--json")
    alone = trainer(*asked, "--steps", "6", "--run", "alone")
    command = [sys.executable, "-m", "trainer", "train", *asked, "--steps", "100000", "--run", "long"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as long:
        assert long.stdout is not None
        for _ in range(4):
            long.stdout.readline()
        beside = trainer(*asked, "--steps", "6", "--run", "beside")
        same = trainer(*asked, "--steps", "100000", "--run", "long")
        long.send_signal(signal.SIGINT)
        long.communicate(timeout=60)
    assert long.returncode == Exit.STOPPED_SAVED
    assert beside.returncode == Exit.DONE, beside.stderr
    assert [step["loss"] for step in steps(beside.stdout)] == [step["loss"] for step in steps(alone.stdout)]
    assert same.returncode == Exit.CONFIGURATION and same.stdout == ""
    assert same.stderr.startswith(
        f"trainer: CONFIGURATION (2): run long is under way in {tmp_path}/runs/long: "
    )


def test_a_run_trains_on_the_gpus_it_was_given_and_not_on_another_runs(
    shapes: Path, tmp_path: Path, trainer: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exclusive, "GPU_LOCKS", tmp_path / "locks")
    monkeypatch.setattr(nvml, "Nvml", lambda: Nvml(FakeNvml(h100(2))))
    uuids = [reading.uuid for reading in nvml.Nvml().readings()]
    asked = (
        "--dataset",
        str(shapes),
        *QUICK[:-2],
        "--steps",
        "1",
    )  # torch sees no GPU here, so a CPU does it
    with exclusive.hold("other", tmp_path / "other", [uuids[1]]):
        for devices in ("1", uuids[1], "0,1"):
            taken = trainer(*asked, "--devices", devices)
            assert taken.returncode == Exit.CONFIGURATION and taken.stdout == ""
            assert (
                f"GPU {uuids[1]} is taken by run other (process {os.getpid()}, in {tmp_path}/other)"
                in taken.stderr
            )
        free = trainer(*asked, "--devices", "0")
        assert free.returncode == Exit.DONE, free.stderr
        assert os.environ["CUDA_VISIBLE_DEVICES"] == uuids[0]


def test_where_a_process_cannot_be_started_none_stays_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Any] = []
    real = subprocess.Popen

    def start(*arguments: Any, **more: Any) -> Any:
        if started:
            raise BlockingIOError("no more processes")
        started.append(real(*arguments, **more))
        return started[0]

    monkeypatch.setattr(subprocess, "Popen", start)
    before = [(number, signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)]
    with pytest.raises(BlockingIOError):
        launch(["-c", "import time; time.sleep(60)"], 2, os.environ, "meeting")
    for number, handler in before:
        signal.signal(number, handler)
    assert started[0].returncode == -signal.SIGKILL


@pytest.mark.parametrize("text", ["training:\n", "training: fast\n", "name: x\ntraining: []\n"])
def test_a_file_whose_training_is_empty_is_a_plain_fault(shapes: Path, tmp_path: Path, text: str) -> None:
    (tmp_path / "run.yaml").write_text(text)
    asked = argparse.Namespace(
        config=tmp_path / "run.yaml",
        run_name=None,
        model=None,
        batch_size=None,
        epochs=None,
        steps=None,
        set=[],
    )
    with pytest.raises(ConfigurationError, match="training"):
        validate(settings_of(asked, None))


def test_a_kill_while_the_settings_are_written_leaves_the_old_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def kill(path: Path, text: str) -> None:
        path.write_bytes(text.encode()[:20])
        raise Killed

    run = run_config("one")
    _remember(run, tmp_path)
    monkeypatch.setattr(Path, "write_text", kill)
    with pytest.raises(Killed):
        _remember(run.model_copy(update={"nodes": 2}), tmp_path)
    assert RunConfig.from_json((tmp_path / RUN_FILE).read_bytes()) == run


def test_a_folder_that_only_looks_like_a_start_of_the_run_counts_for_none(tmp_path: Path) -> None:
    (tmp_path / "gen-0003").mkdir()
    (tmp_path / "gen-0003.bak").mkdir()
    assert _next_generation(tmp_path) == 4


def test_each_process_gets_its_rank_devices_and_locks_and_the_first_own_fault_is_the_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = (
        "import os, sys, json; rank = int(os.environ['RANK']);"
        "names = ('RANK', 'LOCAL_RANK', 'WORLD_SIZE', 'TRAINER_MEETING_FILE', 'CUDA_VISIBLE_DEVICES');"
        "os.fstat(int(os.environ['LOCK']));"
        "open(f'rank{rank}', 'w').write(json.dumps({name: os.environ[name] for name in names}));"
        "sys.exit([32, 31, 0][rank])"
    )
    monkeypatch.chdir(tmp_path)
    before = [(number, signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)]
    lock = os.open(tmp_path, os.O_RDONLY)
    variables = {**os.environ, "CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b", "LOCK": str(lock)}
    assert launch(["-c", script], 3, variables, "meeting", [lock]) == Exit.OUT_OF_MEMORY
    os.close(lock)
    for number, handler in before:
        signal.signal(number, handler)
    told = [json.loads((tmp_path / f"rank{rank}").read_text()) for rank in range(3)]
    assert [one["RANK"] for one in told] == [one["LOCAL_RANK"] for one in told] == ["0", "1", "2"]
    assert {one["WORLD_SIZE"] for one in told} == {"3"}
    assert {one["TRAINER_MEETING_FILE"] for one in told} == {"meeting"}
    assert {one["CUDA_VISIBLE_DEVICES"] for one in told} == {"GPU-a,GPU-b"}
