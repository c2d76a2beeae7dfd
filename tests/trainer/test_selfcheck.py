"""The self-check: what it finds on broken machines, and that absent things are never zero."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from trainer.contracts.node_document import Promise
from trainer.devices.metrics import publish
from trainer.devices.nvml import Nvml
from trainer.exit_codes import Exit
from trainer.obs.exporter import NodeState
from trainer.selfcheck.devices import TorchDevice, check_devices, check_torch, has_kernels, names_match
from trainer.selfcheck.host import check_clock, check_shared_memory, judge_clock
from trainer.selfcheck.matmul import judge, judge_clocks
from trainer.selfcheck.report import Finding, MatmulFigure, SelfCheckReport, conclude

from tests.trainer.nvml_fake import LIBRARY_NOT_FOUND, UNKNOWN, FakeNvml, Gpu, h100

SOURCE = Path(__file__).resolve().parents[2] / "trainer" / "src"


def promise(gpus: int = 8, model: str = "H100", memory: float = 80.0) -> Promise:
    return Promise(
        instance_type="p5.48xlarge",
        accelerator="nvidia",
        gpu_model=model,
        gpu_count=gpus,
        gpu_memory_gib=memory,
    )


def devices_verdict(gpus: list[Gpu], promised: Promise, **faults: Any) -> tuple[str, int | None, str]:
    findings, _, _ = check_devices(promised, lambda: Nvml(FakeNvml(gpus, **faults)))
    report = conclude(findings, [], level="quick", seconds=1, started_at="now", versions={})
    return (
        report.verdict,
        report.worst.exit_code if report.worst else None,
        " ".join(f.message for f in findings),
    )


# --- devices against the promise


def test_healthy_devices_pass_with_their_driver_named() -> None:
    verdict, _, message = devices_verdict(h100(), promise())
    assert (verdict, message) == ("pass", "8 x NVIDIA H100 80GB HBM3, driver 580.95.05")


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        ({"lost": True}, Exit.DEVICE, "GPU 3 (unknown-3) is lost"),
        ({"ecc": 2}, Exit.DEVICE, "GPU 3: 2 uncorrected memory errors"),
        ({"remapped": (0, 1, 0, 1)}, Exit.DEVICE, "could not be remapped"),
        ({"remapped": (0, 1, 1, 0)}, Exit.RESET, "waits for a reset"),
        ({"recovery": 1}, Exit.RESET, "the driver asks for: reset"),
        ({"recovery": 2}, Exit.REBOOT, "the driver asks for: reboot"),
        ({"name": "NVIDIA H200"}, Exit.DEVICE, '"NVIDIA H200", p5.48xlarge promises H100'),
    ],
)
def test_one_unhealthy_gpu_of_eight_fails_the_node(change: dict[str, Any], code: Exit, message: str) -> None:
    gpus = h100()
    for name, value in change.items():
        setattr(gpus[3], name, value)
    verdict, exit_code, text = devices_verdict(gpus, promise())
    assert (verdict, exit_code) == ("fail", code)
    assert message in text


def test_a_missing_gpu_fails_and_a_surplus_or_odd_memory_warns() -> None:
    assert devices_verdict(h100(7), promise())[:2] == ("fail", Exit.DEVICE)
    assert devices_verdict(h100(8), promise(gpus=7))[0] == "warning"
    assert devices_verdict(h100(8), promise(memory=141.0))[0] == "warning"


def test_what_cannot_be_read_is_unknown_not_bad() -> None:
    for faults in ({"init_error": UNKNOWN}, {"count_error": UNKNOWN}, {"init_error": LIBRARY_NOT_FOUND}):
        verdict, code, _ = devices_verdict(h100(), promise(), **faults)
        assert (verdict, code) == ("unknown", Exit.DRIVER)


def test_without_gpus_promised_devices_do_not_apply() -> None:
    def never() -> Nvml:
        raise AssertionError("NVML was asked on an image without a driver")

    findings, readings, _ = check_devices(
        Promise(instance_type="local", accelerator="none", gpu_count=0), never
    )
    assert (
        [f.verdict for f in findings] == ["info"] and "does not apply" in findings[0].message and not readings
    )

    def absent() -> Nvml:
        return Nvml(FakeNvml([], init_error=LIBRARY_NOT_FOUND))

    assert check_devices(None, absent)[0][0].verdict == "info"  # a laptop
    assert check_devices(promise(), absent)[0][0].verdict == "unknown"  # a broken GPU node


def test_each_value_is_read_by_itself_and_absent_is_none_and_not_exported() -> None:
    functions = {"nvmlDeviceGetPowerUsage", "nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetRemappedRows"}
    functions |= {"nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetTemperatureV"}
    gpus = [Gpu(absent=set(functions)), Gpu(name=b"NVIDIA L4")]
    readings = Nvml(FakeNvml(gpus)).readings()
    assert (readings[0].power_watts, readings[0].ecc_uncorrected, readings[0].remap_failed) == (
        None,
        None,
        None,
    )
    assert readings[0].temperature_celsius == 60 and readings[0].clock_reasons == 1  # by the older calls
    assert readings[1].power_watts == 72.5 and readings[1].name == "NVIDIA L4"
    assert readings[1].pci_device_id == "27B8" and readings[1].temperature_margin_celsius == 20
    state = NodeState()
    publish(readings, state)
    assert state.get("trainer_gpu_power_watts", gpu="0", uuid="GPU-0000") is None
    assert state.get("trainer_gpu_power_watts", gpu="1", uuid="GPU-0001") == 72.5
    assert state.get("trainer_gpu_clock_hertz", gpu="0", uuid="GPU-0000") == 2.04e9


def test_throttle_bits_are_told_one_by_one() -> None:
    reading = Nvml(FakeNvml([Gpu(reasons=0x8 | 0x4)])).readings()[0]
    active = {reason for reason, on in reading.throttled_by().items() if on}
    assert active == {"hw_slowdown", "sw_power_cap"}
    assert [f.verdict for f in judge_clocks({0: 0x40 | 0x80 | 0x4})] == ["fail"]
    assert [f.verdict for f in judge_clocks({0: 0x20})] == ["warning"]
    assert judge_clocks({0: 0x4 | 0x1}) == []  # a power cap is normal at full load


def test_names_match_by_words_whatever_the_case() -> None:
    assert names_match("L40S", "NVIDIA L40S") and names_match("A100", "NVIDIA A100-SXM4-40GB")
    assert not names_match("L4", "NVIDIA L40S")


# --- torch, floors, matmul


def test_torch_needs_kernels_for_the_gpu_and_the_wheel_is_named() -> None:
    assert has_kernels((8, 9), ["sm_80", "sm_90"])  # same major version, older minor
    assert not has_kernels((7, 0), ["sm_75", "sm_80"])
    assert has_kernels((10, 3), ["sm_90", "compute_90"])  # PTX is compiled when loaded
    assert not has_kernels((12, 0), ["sm_100a", "sm_90a"])
    volta = [TorchDevice("cuda:0", "V100", (7, 0), "GPU-0000")]
    finding = check_torch(promise(gpus=1), volta, "2.15.0", ["sm_75", "sm_80"])
    assert (finding.verdict, finding.exit_code) == ("fail", Exit.DRIVER)
    assert "2.15.0" in finding.message and "sm_75, sm_80" in (finding.cause or "")
    blind = check_torch(promise(), [TorchDevice("cpu", "2 threads")], "2.15.0+cpu", [])
    assert blind.verdict == "fail" and "0 of 8" in blind.message


def figure(**changes: Any) -> MatmulFigure:
    values: dict[str, Any] = {
        "device": "cuda:0",
        "name": "NVIDIA H100",
        "pci_device_id": "2330",
        "dtype": "bf16",
        "n": 8192,
        "repeats": 20,
        "tflops_median": 700.0,
        "tflops_min": 690.0,
        "tflops_max": 710.0,
        "spread_ratio": 0.03,
        "error": 1e-5,
        "tolerance": 2.0**-7,
        "repeatable": True,
        "floor_tflops": 545.0,
    }
    return MatmulFigure(**{**values, **changes})


@pytest.mark.parametrize(
    ("changes", "verdict", "code"),
    [
        ({}, "pass", None),
        ({"error": 0.02}, "fail", Exit.DEVICE),
        ({"repeatable": False}, "fail", Exit.DEVICE),
        ({"tflops_median": 0.0}, "fail", Exit.DEVICE),
        ({"tflops_median": 500.0}, "fail", Exit.PERFORMANCE),
        (
            {"tflops_median": 500.0, "pci_device_id": "3182", "dtype": "fp16", "floor_tflops": 1200.0},
            "warning",
            None,
        ),
        ({"pci_device_id": "FFFF", "floor_tflops": None}, "pass", None),
    ],
)
def test_numbers_come_before_speed(changes: dict[str, Any], verdict: str, code: Exit | None) -> None:
    findings = judge([figure(**changes)], {}, "quick")
    assert findings[0].verdict == verdict and findings[0].exit_code == code


def test_a_floor_from_the_configuration_goes_before_the_table_and_applies_to_a_cpu() -> None:
    slow_cpu = figure(device="cpu", pci_device_id=None, dtype="fp32", tflops_median=0.05, floor_tflops=1.0)
    assert judge([slow_cpu], {"fp32": 1.0}, "quick")[0].exit_code == Exit.PERFORMANCE


def test_a_gpu_slower_than_its_peers_warns_in_a_quick_check_and_fails_in_a_full_one() -> None:
    peers = [figure(), figure(device="cuda:1", tflops_median=600.0)]
    assert [f.verdict for f in judge(peers, {}, "quick")] == ["warning"]
    full = judge(peers, {}, "full")
    assert [f.exit_code for f in full] == [Exit.PERFORMANCE] and "cuda:1" in full[0].message


# --- host and report


def test_small_shared_memory_matters_where_several_processes_use_it(tmp_path: Path) -> None:
    missing = check_shared_memory(8, tmp_path / "none")
    assert missing.verdict == "info"
    assert check_shared_memory(1).check == "shared-memory"


def test_a_clock_far_off_is_named_before_aws_refuses_every_call() -> None:
    assert judge_clock(3.0).verdict == "pass"
    assert judge_clock(-120.0).verdict == "warning"
    off = judge_clock(1000.0)
    assert (off.verdict, off.exit_code) == ("fail", Exit.S3) and "1000 s ahead of S3" in off.message
    assert check_clock("http://127.0.0.1:1/").verdict == "info"  # nobody there: not compared, not bad


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


def test_the_command_tells_a_program_everything_by_its_schema(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "trainer", "selfcheck", "--json", "--folder", str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    schema = SelfCheckReport.model_json_schema(by_alias=True)
    jsonschema.validate(report, schema)
    assert report["verdict"] in ("pass", "warning") and report["exitCode"] == 0
    (only,) = report["matmul"]
    assert only["dtype"] == "fp32" and only["tflopsMedian"] > 0 and only["repeatable"] is True
    assert only["error"] < only["tolerance"] and "floorTflops" not in only  # absent, not zero
    assert report["matmulTflops"] == only["tflopsMedian"]
    text = " ".join(finding["message"] for finding in report["findings"])
    assert "does not apply" in text and "floors do not apply" in text
