"""The self-check as a whole: its order, its repeats, its verdict, its command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from trainer.cli import main
from trainer.contracts.node_document import NodeDocument, Release, TorchSource
from trainer.devices.nvml import Nvml
from trainer.errors import DriverError
from trainer.exit_codes import Exit
from trainer.selfcheck import run as selfcheck_run
from trainer.selfcheck.report import (
    Finding,
    SelfCheckReport,
    conclude,
)
from trainer.selfcheck.run import run_selfcheck
from trainer.selfcheck.torch_build import (
    TorchDevice,
)
from trainer.selfcheck.view import Done

from tests.trainer.host_fake import gpu_host
from tests.trainer.nvml_fake import UNKNOWN, FakeNvml, h100
from tests.trainer.selfcheck_kit import HEALTHY_TORCH, promise

SOURCE = Path(__file__).resolve().parents[2] / "trainer" / "src"


def test_the_worst_finding_decides_and_info_never_spoils_a_pass() -> None:
    def verdict(*verdicts: Any) -> SelfCheckReport:
        findings = [
            Finding(check="c", verdict=v, message="m", exit_code=14 if v in ("fail", "unknown") else None)
            for v in verdicts
        ]
        return conclude(findings, [], level="quick", seconds=1, started_at="now", versions={})

    assert (verdict("pass", "info").verdict, verdict("pass", "info").exit_code) == ("pass", 0)
    assert verdict("warning", "pass").passed
    assert (verdict("unknown", "warning").passed, verdict("unknown", "warning").exit_code) == (False, 14)
    assert verdict("unknown", "fail").verdict == "fail"


class Steps:
    """The self-check of a node with eight GPUs, on a machine that has none; what torch would say is given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.host = gpu_host(8, sizes_mib={"/dev/shm": 8192, str(folder): 50 * 1024})
        self.host.commands = {
            "systemctl is-active": Done(0, "active\n"),
            "journalctl": Done(0, "[ 9.8] ip kernel: NVRM: loading NVIDIA UNIX Open Kernel Module\n"),
        }
        self.gpus, self.folder, self.cuda_started_at = h100(8), folder, -1.0
        self.nvml_error: int | None = None
        for gpu in self.gpus:
            gpu.fabric_state = None  # as on an A100: only the service can tell
        self.document = NodeDocument(
            stack="test",
            group="gpu",
            auto_scaling_group="test-gpu",
            region="us-east-1",
            artifacts_bucket="artifacts",
            release=Release(uri="s3://bucket/release.tar", sha256="0" * 64, version="0"),
            interpreter=sys.executable,
            torch=TorchSource(site_packages="/opt/pytorch"),
            promise=promise(),
            launching_hook="launching",
            terminating_hook="terminating",
            log_group="/test/nodes",
        )
        monkeypatch.setattr(selfcheck_run, "torch_build", lambda: HEALTHY_TORCH)
        monkeypatch.setattr(selfcheck_run, "torch_devices", self._torch_devices)
        monkeypatch.setattr(
            selfcheck_run, "check_clock", lambda *_: Finding(check="clock", verdict="pass", message="m")
        )
        monkeypatch.setattr(selfcheck_run, "remove_leftovers", list)
        monkeypatch.setattr(selfcheck_run, "_measure_memory", lambda _: None)
        monkeypatch.setattr(selfcheck_run, "_measure_matmul", lambda _: None)

    def _torch_devices(self) -> tuple[list[TorchDevice], str | None]:
        self.cuda_started_at = self.host.now
        return [TorchDevice(f"cuda:{n}", "H100", (9, 0), f"GPU-{n:04d}") for n in range(8)], None

    def run(self) -> SelfCheckReport:
        self.told: list[str] = []

        def open_nvml() -> Nvml:
            return Nvml(FakeNvml(self.gpus, self.nvml_error))

        return run_selfcheck(
            self.document, "quick", self.folder, "i-1", open_nvml, self.host, self.told.append
        )


def test_cheap_checks_come_first_and_each_says_something(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    steps = Steps(monkeypatch, tmp_path)
    report = steps.run()
    assert [f.check for f in report.findings] == [
        *("driver", "devices", "torch", "fabric", "container", "health", "xid", "nvlink"),
        *("shared-memory", "disk", "clock"),
    ]
    assert report.verdict == "pass" and report.exit_code == 0 and report.instance_id == "i-1"
    assert report.versions["driver"] == "580.95.05"
    assert steps.told[0] == "looking at: driver and devices"  # while it looks, not when all is over
    assert steps.told[-2:] == ["measuring: matmul", "measuring: memory"]


def test_cuda_is_started_only_after_the_fabric_manager_is_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its error 802 would stay for the rest of the process."""
    steps = Steps(monkeypatch, tmp_path)
    steps.host.commands["systemctl is-active"] = lambda: Done(
        0, "active\n" if steps.host.now >= 40 else "activating\n"
    )
    assert steps.run().verdict == "pass" and steps.cuda_started_at >= 40
    late = Steps(monkeypatch, tmp_path)
    late.host.commands["systemctl is-active"] = Done(3, "failed\n")
    report = late.run()
    assert report.exit_code == Exit.DRIVER and late.cuda_started_at == -1.0  # not started at all
    assert report.findings[-1].message == "not measured: a check before it failed"


def test_without_a_driver_nobody_waits_for_the_fabric_manager(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    steps = Steps(monkeypatch, tmp_path)
    del steps.host.files["/proc/driver/nvidia/version"]
    steps.host.commands["systemctl is-active"] = Done(3, "inactive\n")
    report = steps.run()
    assert report.exit_code == Exit.DRIVER and steps.host.now == 0
    assert report.worst is not None and report.worst.check == "driver"  # the cause, not what follows from it


def test_a_check_that_failed_does_not_hide_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    steps = Steps(monkeypatch, tmp_path)
    steps.gpus[2].ecc = 1
    steps.host.sizes_mib["/dev/shm"] = 64
    report = steps.run()
    assert {f.check for f in report.findings if f.verdict == "fail"} == {"health", "shared-memory"}
    assert report.exit_code == Exit.DEVICE  # the first of the worst


def test_one_slow_run_is_repeated_before_a_node_is_given_away(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from trainer.bench import matmul as bench_matmul

    seconds, asked = [2e-3, 1.5e-3], []  # of a product of 8192^3: 550 and 733 TFLOPS

    def measure(devices: Any, dtypes: Any, *_: Any) -> list[bench_matmul.Measured]:
        took = seconds[len(asked)] * (2 if not asked else 1)
        asked.append(took)
        return [
            bench_matmul.Measured(device, "bf16", 8192, (took,), 1e-5, True, True, "aa") for device in devices
        ]

    measured = selfcheck_run._measure_matmul
    steps = Steps(monkeypatch, tmp_path)
    monkeypatch.setattr(selfcheck_run, "_measure_matmul", measured)
    monkeypatch.setattr(bench_matmul, "measure", measure)
    report = steps.run()
    assert len(asked) == 2 and report.verdict == "pass" and len(report.matmul) == 8
    assert "too slow: measuring it once more" in steps.told
    assert report.matmul[0].floor_tflops == 545 and report.matmul[0].peak_tflops == 989
    asked.clear()
    seconds[:] = [2e-3, 4e-3]
    assert steps.run().exit_code == Exit.PERFORMANCE and len(asked) == 2


def test_memory_that_is_slow_once_is_measured_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from trainer.bench import memory as bench_memory

    seconds = [1e-2, 4e-4]  # of a GB: 200 and 5000 GB/s

    def measure(devices: Any, *_: Any) -> list[bench_memory.MemoryMeasured]:
        took = seconds.pop(0)
        return [bench_memory.MemoryMeasured(device, 10**9, (took,), True) for device in devices]

    measured = selfcheck_run._measure_memory
    steps = Steps(monkeypatch, tmp_path)
    monkeypatch.setattr(selfcheck_run, "_measure_memory", measured)
    monkeypatch.setattr(bench_memory, "measure_memory", measure)
    assert steps.run().verdict == "pass" and not seconds
    seconds[:] = [1e-2, 1e-2]
    assert steps.run().exit_code == Exit.PERFORMANCE and not seconds


@pytest.mark.parametrize(("fault", "code"), [(RuntimeError("out of memory"), 10), (DriverError("NCCL"), 14)])
def test_a_benchmark_that_breaks_off_is_a_finding_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fault: Exception, code: int
) -> None:
    def broken(_: object) -> None:
        raise fault

    steps = Steps(monkeypatch, tmp_path)
    monkeypatch.setattr(selfcheck_run, "_measure_memory", broken)
    last = steps.run().findings[-1]
    assert (last.check, last.verdict, last.exit_code) == ("memory", "fail", code) and str(
        fault
    ) in last.message


def test_xids_are_looked_at_where_nvml_tells_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    steps = Steps(monkeypatch, tmp_path)
    steps.host.commands["journalctl"] = Done(
        0, "[ 12.1] ip kernel: NVRM: Xid (PCI:0000:10:00): 79, GPU has fallen\n"
    )
    steps.nvml_error = UNKNOWN
    report = steps.run()
    (found,) = (finding for finding in report.findings if finding.check == "xid")
    assert found.exit_code == report.exit_code == Exit.DEVICE  # off the bus in the boot before as well


def test_the_command_tells_a_program_everything_by_its_schema(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "trainer", "selfcheck", "--json", "--folder", str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0 and "looking at" not in done.stderr, (
        done.stderr
    )  # a program reads, not a terminal
    report = json.loads(done.stdout)
    schema = SelfCheckReport.model_json_schema(by_alias=True)
    jsonschema.validate(report, schema)
    assert report["verdict"] in ("pass", "warning") and report["exitCode"] == 0
    (only,) = report["matmul"]
    assert only["dtype"] == "fp32" and only["tflopsMedian"] > 0 and only["repeatable"] is True
    assert only["error"] < only["tolerance"] and "floorTflops" not in only  # absent, not zero
    assert report["matmulTflops"] == only["tflopsMedian"]
    assert (
        report["memory"][0]["exact"] is True and report["allreduce"] == []
    )  # the all-reduce is the full level's
    text = " ".join(finding["message"] for finding in report["findings"])
    assert "does not apply" in text and "floors do not apply" in text


def test_a_folder_that_is_not_there_is_an_error_of_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["selfcheck", "--folder", str(tmp_path / "nope")]) == Exit.CONFIGURATION
    told = capsys.readouterr().err
    assert "nope is not a folder" in told and told.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "terminal", "tells"),
    [([], False, True), (["--json"], False, False), (["--json"], True, True)],
)
def test_the_command_tells_what_it_looks_at_unless_a_program_reads(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    terminal: bool,
    tells: bool,
) -> None:
    def run(*_: Any, tell: Any) -> SelfCheckReport:
        tell("measuring: matmul")
        return conclude([], [], level="quick", seconds=1, started_at="now", versions={})

    monkeypatch.setattr(selfcheck_run, "run_selfcheck", run)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    assert main(["selfcheck", "--folder", str(tmp_path), *options]) == 0
    shown = capsys.readouterr()
    assert shown.err == ("measuring: matmul\n" if tells else "") and "measuring" not in shown.out
