"""The self-check of devices against the promise, and of their health: absent things are never zero."""

from __future__ import annotations

from typing import Any

import pytest
from trainer.contracts.node_document import Promise
from trainer.devices.metrics import publish
from trainer.devices.nvml import Nvml
from trainer.devices.reading import GpuHealth, GpuReading
from trainer.exit_codes import Exit
from trainer.obs.exporter import NodeState
from trainer.selfcheck.devices import check_devices, names_match
from trainer.selfcheck.health import check_health, check_nvlink, check_pcie
from trainer.selfcheck.report import (
    conclude,
)

from tests.trainer.host_fake import FakeHost, gpu_host
from tests.trainer.nvml_fake import LIBRARY_NOT_FOUND, UNKNOWN, FakeNvml, Gpu, h100, node
from tests.trainer.selfcheck_kit import promise


def devices_verdict(gpus: list[Gpu], promised: Promise, **faults: Any) -> tuple[str, int | None, str]:
    findings, devices = check_devices(promised, gpu_host(), lambda: Nvml(FakeNvml(gpus, **faults)))
    findings = findings + check_health(devices.readings, devices.health)
    report = conclude(findings, [], level="quick", seconds=1, started_at="now", versions={})
    for finding in findings:
        if finding.verdict in ("fail", "unknown"):
            assert finding.cause and finding.action and finding.exit_code
    return (
        report.verdict,
        report.worst.exit_code if report.worst else None,
        " ".join(f.message for f in findings),
    )


def test_healthy_devices_pass_with_their_driver_named() -> None:
    verdict, _, message = devices_verdict(h100(), promise())
    assert verdict == "pass" and "8 x NVIDIA H100 80GB HBM3, driver 580.95.05" in message
    assert "8 GPUs without memory errors" in message


DRAM, SRAM, ROWS = 2, 7, "nvmlDeviceGetRemappedRows"


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        ({"lost": True}, Exit.DEVICE, "GPU 3 (unknown-3) is lost"),
        ({"fails": {"nvmlDeviceGetHandleByIndex": 8}}, Exit.DEVICE, "GPU 3 (unknown-3) cannot be used"),
        ({"ecc": 2}, Exit.DEVICE, "GPU 3: 2 uncorrected memory errors"),
        ({"ecc_counters": {(1, 0, SRAM): 1}}, Exit.DEVICE, "GPU 3: 1 uncorrected memory errors"),
        ({"ecc": 2, "ecc_counters": {(1, 0, DRAM): 2}}, Exit.RESET, "2 uncorrected"),  # its row is remapped
        (
            {"ecc_counters": {(1, 0, DRAM): 1}, "absent": {ROWS}},
            Exit.REBOOT,
            "1 uncorrected",
        ),  # a page, retired
        ({"ecc_counters": {(1, 0, DRAM): 1, (1, 0, SRAM): 1}}, Exit.DEVICE, "GPU 3: 1 uncorrected"),
        ({"ecc_counters": {(0, 0, SRAM): 10_001}}, Exit.DEVICE, "10001 corrected errors of SRAM"),
        ({"ecc_counters": {(0, 0, 2): 20_000_001}}, Exit.DEVICE, "corrected errors of device memory"),
        ({"remapped": (0, 1, 0, 1)}, Exit.DEVICE, "could not be remapped"),
        ({"remapped": (0, 513, 0, 0)}, Exit.DEVICE, "513 rows were remapped"),
        ({"remapped": (0, 1, 1, 0)}, Exit.RESET, "waits for a reset"),
        ({"retired": (31, 31), "absent": set()}, Exit.DEVICE, "62 memory pages are retired"),
        ({"retired_pending": 1, "absent": set()}, Exit.REBOOT, "waits for a reboot"),
        ({"recovery": 1}, Exit.RESET, "the driver asks for: reset"),
        ({"recovery": 2}, Exit.REBOOT, "the driver asks for: reboot"),
        ({"fails": {"nvmlDeviceGetUUID": 16}}, Exit.RESET, "the driver asks for: reset"),
        ({"recovery": 2, "ecc": 1}, Exit.REBOOT, "uncorrected"),  # the driver's own word goes first
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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ecc_counters": {(1, 1, SRAM): 5}}, "5 uncorrected SRAM errors in its life"),
        ({"recovery": 9}, "an action that is not known here: unknown (9)"),
    ],
)
def test_what_is_no_fault_yet_is_a_warning(change: dict[str, Any], message: str) -> None:
    gpus = h100()
    for name, value in change.items():
        setattr(gpus[3], name, value)
    verdict, _, text = devices_verdict(gpus, promise())
    assert verdict == "warning" and message in text


def test_at_the_thresholds_nothing_is_wrong() -> None:
    gpus = h100()
    gpus[0].ecc_counters = {(0, 0, SRAM): 10_000, (0, 0, 2): 20_000_000, (1, 1, SRAM): 4}
    gpus[1].remapped = (0, 512, 0, 0)
    gpus[2].retired, gpus[2].absent = (30, 31), set()
    assert devices_verdict(gpus, promise())[0] == "pass"


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

    none = Promise(instance_type="local", accelerator="none", gpu_count=0)
    findings, devices = check_devices(none, FakeHost(), never)
    assert [f.verdict for f in findings] == ["info"] and "does not apply" in findings[0].message
    assert not devices.readings and check_health((), ()) == [] and check_nvlink((), ()) == []

    def absent() -> Nvml:
        return Nvml(FakeNvml([], init_error=LIBRARY_NOT_FOUND))

    assert check_devices(None, FakeHost(), absent)[0][0].verdict == "info"  # a laptop
    assert check_devices(promise(), FakeHost(), absent)[0][0].verdict == "unknown"  # a broken GPU node


def test_a_fraction_of_a_gpu_passes_and_says_what_it_does_not_tell() -> None:
    g6f = Promise(
        instance_type="g6f.xlarge", accelerator="nvidia", gpu_model="L4", gpu_count=1, gpu_memory_gib=2.8
    )
    verdict, _, message = devices_verdict(node("g6f"), g6f)
    assert verdict == "pass" and "do not tell of memory errors (not supported)" in message


def test_absent_values_are_not_exported() -> None:
    functions = {"nvmlDeviceGetPowerUsage", "nvmlDeviceGetFieldValues", "nvmlDeviceGetTotalEccErrors"}
    state = NodeState()
    publish(Nvml(FakeNvml([Gpu(absent=set(functions)), Gpu()])).readings(), state)
    assert state.get("trainer_gpu_power_watts", gpu="0", uuid="GPU-0000") is None
    assert state.get("trainer_gpu_power_watts", gpu="1", uuid="GPU-0001") == 72.5
    assert state.get("trainer_gpu_clock_hertz", gpu="0", uuid="GPU-0000") == 2.04e9


def test_names_match_by_words_whatever_the_case() -> None:
    assert names_match("L40S", "NVIDIA L40S") and names_match("A100", "NVIDIA A100-SXM4-40GB")
    assert names_match("RTX PRO Server 6000", "NVIDIA RTX PRO 6000 Blackwell Server Edition")
    assert not names_match("L4", "NVIDIA L40S")


def test_inactive_nvlinks_fail_only_where_the_model_has_links() -> None:
    gpus = h100(2)
    readings, health = _asked(gpus)
    assert [f.verdict for f in check_nvlink(readings, health)] == ["pass"]
    gpus[1].links[3:5] = [0, 0]
    (found,) = check_nvlink(*_asked(gpus))
    assert (found.verdict, found.exit_code) == ("fail", Exit.DEVICE) and "2 of 18 NVLinks" in found.message
    assert [f.verdict for f in check_nvlink(*_asked(node("L4", 2)))] == ["info"]
    assert "there is one GPU" in check_nvlink(*_asked(h100(1)))[0].message  # p5.4xlarge: links to nobody
    dark = h100(2)
    for gpu in dark:
        gpu.links = []
    assert [f.verdict for f in check_nvlink(*_asked(dark))] == ["warning"]  # an H100 has them
    gpus[1].links, gpus[0].fields = [1] * 18, {38: (0, 3, 12)}
    verdicts = {f.verdict: f.message for f in check_nvlink(*_asked(gpus))}
    assert verdicts["pass"] and "12 crc_flit" in verdicts["info"]


def _asked(gpus: list[Gpu]) -> tuple[list[GpuReading], list[GpuHealth]]:
    nvml = Nvml(FakeNvml(gpus))
    return nvml.readings(), nvml.health()


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        ((5, 16), ("pass", None)),
        ((4, 16), ("warning", None)),
        ((5, 8), ("warning", None)),
        ((5, 4), ("fail", Exit.PERFORMANCE)),
    ],
)
def test_the_pcie_link_is_judged_as_it_was_under_load(
    seen: tuple[int, int], expected: tuple[str, int | None]
) -> None:
    gpus = h100(1)
    gpus[0].pcie = (1, 16)  # idle: falls to generation 1, which says nothing
    (found,) = check_pcie(*_asked(gpus), {0: seen})
    assert (found.verdict, found.exit_code) == expected
    assert (
        check_pcie(*_asked(node("T4")), {0: (3, 8)})[0].verdict == "pass"
    )  # all the lanes that a T4 has there
    assert check_pcie(*_asked(node("g6f")), {})[0].verdict == "info"
