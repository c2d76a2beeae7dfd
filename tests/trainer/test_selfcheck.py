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
from trainer.bench.nccl import NcclChoice
from trainer.cli import main
from trainer.contracts.node_document import NodeDocument, Promise, Release, TorchSource
from trainer.devices.metrics import publish
from trainer.devices.nvml import Nvml
from trainer.devices.reading import GpuHealth, GpuReading
from trainer.errors import DriverError
from trainer.exit_codes import Exit
from trainer.obs.exporter import NodeState
from trainer.selfcheck import run as selfcheck_run
from trainer.selfcheck import torch_build
from trainer.selfcheck.bandwidth import judge_allreduce, judge_memory
from trainer.selfcheck.devices import check_devices, names_match
from trainer.selfcheck.health import check_health, check_nvlink, check_pcie
from trainer.selfcheck.matmul import judge, judge_load
from trainer.selfcheck.report import (
    AllReduceFigure,
    Finding,
    LoadFigure,
    MatmulFigure,
    MemoryFigure,
    SelfCheckReport,
    conclude,
)
from trainer.selfcheck.run import run_selfcheck
from trainer.selfcheck.torch_build import (
    TorchBuild,
    TorchDevice,
    check_build,
    check_cuda,
    cuda_count,
    cuda_error,
    has_kernels,
    nvml_uuid,
    wheel_for,
)
from trainer.selfcheck.view import Done

from tests.trainer.host_fake import FakeHost, gpu_host
from tests.trainer.nvml_fake import LIBRARY_NOT_FOUND, UNKNOWN, FakeNvml, Gpu, h100, node

SOURCE = Path(__file__).resolve().parents[2] / "trainer" / "src"
HEALTHY_TORCH = TorchBuild("2.15.0+cu132", "13.2", ("sm_75", "sm_80", "sm_90", "sm_100"))


def promise(gpus: int = 8, model: str = "H100", memory: float = 80.0) -> Promise:
    return Promise(
        instance_type="p5.48xlarge",
        accelerator="nvidia",
        gpu_model=model,
        gpu_count=gpus,
        gpu_memory_gib=memory,
    )


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


# --- devices against the promise, and their health


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


# --- torch


def test_torch_needs_kernels_for_the_gpu_and_the_wheel_is_named() -> None:
    """pytorch 172352, 31285; unsloth PR 5876: "no kernel image is available"."""
    assert has_kernels((8, 9), ["sm_80", "sm_90"])  # same major version, older minor
    assert not has_kernels((7, 0), ["sm_75", "sm_80"])
    assert has_kernels((10, 3), ["sm_90", "compute_90"])  # PTX is compiled when loaded
    assert not has_kernels((12, 0), ["sm_100a", "sm_90a"])
    assert has_kernels((9, 0), ["sm_90a"]) and not has_kernels((10, 3), ["sm_100a"])
    assert has_kernels((10, 3), ["sm_100f"])
    found = check_build(promise(), HEALTHY_TORCH, Nvml(FakeNvml(node("V100"))).readings(), "580.95.05")
    assert (found.verdict, found.exit_code) == ("fail", Exit.DRIVER)
    assert "2.15.0" in found.message and "sm_75, sm_80" in (found.cause or "")
    assert "cu126" in (found.action or "") and "2.10" in (found.action or "")
    assert "cu128" in wheel_for((12, 0)) and "cu13" in wheel_for((7, 5))


def test_torch_is_compared_with_the_driver_before_cuda_is_started() -> None:
    readings = Nvml(FakeNvml(h100(1))).readings()
    assert check_build(promise(), HEALTHY_TORCH, readings, "580.95.05").verdict == "pass"
    old = check_build(promise(), HEALTHY_TORCH, readings, "570.124.06")
    assert (old.verdict, old.exit_code) == ("fail", Exit.DRIVER) and "needs driver 580" in old.message
    assert check_build(promise(), TorchBuild("2.15.0+cpu"), readings, "580.95.05").verdict == "fail"
    none = Promise(instance_type="local", accelerator="none", gpu_count=0)
    assert check_build(none, TorchBuild("2.15.0+cpu"), [], None).verdict == "pass"
    assert (
        check_build(promise(), HEALTHY_TORCH, [], None).verdict == "info"
    )  # the devices' check says the rest


CUDA_802 = (
    "Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling NumCudaDevices() "
    "that might have already set an error? Error 802: system not yet initialized"
)


@pytest.mark.parametrize(
    ("fault", "number", "cause"),
    [
        (CUDA_802, 802, "fabric manager"),
        (
            "Error 803: system has unsupported display driver / cuda driver combination",
            803,
            "kernel module 580.95.05, library 580.126.09",
        ),
        ("Error 804: forward compatibility was attempted on non supported HW", 804, "forward compatibility"),
        ("Found no NVIDIA driver on your system.", None, "CUDA_VISIBLE_DEVICES"),
        (None, None, "CUDA_VISIBLE_DEVICES"),
    ],
)
def test_why_torch_sees_no_gpu_is_named(fault: str | None, number: int | None, cause: str) -> None:
    """pytorch 35710; gpu-burn 133; dcv-desktop 33 (802), pando85/homelab PR 4110 (803)."""
    host = gpu_host()
    host.files["/usr/lib64/libnvidia-ml.so.580.126.09"] = ""
    assert cuda_error(fault or "") == number
    found = check_cuda(promise(), [TorchDevice("cpu", "2 threads")], host, fault)
    assert found and (found.verdict, found.exit_code) == ("fail", Exit.DRIVER)
    assert cause in (found.cause or "") and found.action and "0 of 8" in found.message


def test_all_promised_gpus_must_be_seen_by_torch() -> None:
    seven = [TorchDevice(f"cuda:{n}", "H100", (9, 0)) for n in range(7)]
    found = check_cuda(promise(), seven, gpu_host(), None)
    assert found and "7 of 8" in found.message
    assert check_cuda(promise(gpus=7), seven, gpu_host(), None) is None
    assert check_cuda(None, [TorchDevice("cpu", "x")], FakeHost(), None) is None
    without_driver = promise().model_copy(update={"accelerator": "none"})  # as nodes of the local cloud are
    assert check_cuda(without_driver, [TorchDevice("cpu", "x")], FakeHost(), "Found no NVIDIA driver") is None


def test_without_a_promise_torch_must_see_what_nvml_tells_of() -> None:
    """Else a broken CUDA would pass on the CPU."""
    cpu, readings = [TorchDevice("cpu", "2 threads")], Nvml(FakeNvml(h100(8))).readings()
    found = check_cuda(None, cpu, FakeHost(), CUDA_802, readings)
    assert found and found.exit_code == Exit.DRIVER and "0 of 8" in found.message
    for visible, wanted in (("", 0), ("0,1", 2), ("GPU-0003", 1)):
        assert cuda_count(readings, {"CUDA_VISIBLE_DEVICES": visible}) == wanted
    assert cuda_count(Nvml(FakeNvml(node("MIG", 2))).readings(), {}) == 1  # CUDA shows one part
    mixed = Nvml(FakeNvml([*node("A10G"), *node("L4")])).readings()
    assert cuda_count(mixed, {"CUDA_VISIBLE_DEVICES": "1"}) == 1 and cuda_count((), {}) == 0


def test_torchs_uuid_is_nvmls() -> None:
    assert nvml_uuid("1234-5") == "GPU-1234-5" and nvml_uuid("GPU-1") == "GPU-1"
    assert nvml_uuid("MIG-1") == "MIG-1" and nvml_uuid("") is None


# --- verdicts on figures


def figure(**changes: Any) -> MatmulFigure:
    values: dict[str, Any] = {
        "device": "cuda:0",
        "name": "NVIDIA H100 80GB HBM3",
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
        "digest": "aa",
        "floor_tflops": 545.0,
    }
    return MatmulFigure(**{**values, **changes})


@pytest.mark.parametrize(
    ("changes", "verdict", "code"),
    [
        ({}, "pass", None),
        ({"error": 0.02}, "fail", Exit.DEVICE),
        ({"repeatable": False}, "fail", Exit.DEVICE),
        ({"tflops_median": 0.0}, "fail", Exit.DEVICE),  # gpu-fryer 10: zero must not pass
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


def test_a_slow_gpu_is_told_in_three_parts_peers_floor_and_cause() -> None:
    """Megatron-LM PR 4662: one slow GPU holds all."""
    peers = [figure(), figure(device="cuda:1", tflops_median=400.0)]
    load = {"cuda:1": LoadFigure(gpu=1, held_by=("sw_power_cap", "hw_thermal"))}
    (found,) = judge(peers, {}, "full", load)
    assert found.exit_code == Exit.PERFORMANCE
    assert "the floor is 545 and the best of its node has 700" in found.message
    assert found.evidence["peers"] == 0.571 and found.evidence["floor"] == 545.0
    assert found.evidence["heldBy"] == ["sw_power_cap", "hw_thermal"] and "heat held the clock" in (
        found.cause or ""
    )


def test_other_bits_than_the_other_gpus_are_silent_corruption() -> None:
    """torchtitan PR 4324: one deterministic step gives the same bits everywhere, or a GPU lies."""
    gpus = [figure(device=f"cuda:{n}", digest="bb" if n == 2 else "aa") for n in range(4)]
    (found,) = judge(gpus, {}, "quick")
    assert found.exit_code == Exit.DEVICE and found.message.startswith("cuda:2 bf16: other bits")
    two = [figure(), figure(device="cuda:1", digest="bb")]  # who is right cannot be said: both are named
    assert {f.evidence["device"] for f in judge(two, {}, "quick")} == {"cuda:0", "cuda:1"}
    other_kind = [figure(), figure(device="cuda:1", name="NVIDIA H100 PCIe", digest="bb")]
    assert judge(other_kind, {}, "quick")[0].verdict == "pass"  # another kernel may round otherwise


def test_throttle_bits_are_judged_one_by_one() -> None:
    both = LoadFigure(gpu=0, held_by=("hw_thermal", "hw_power_brake", "sw_power_cap"))
    assert [f.exit_code for f in judge_load([both])] == [Exit.DEVICE]
    assert [f.verdict for f in judge_load([LoadFigure(gpu=0, held_by=("sw_thermal",))])] == ["warning"]
    assert (
        judge_load([LoadFigure(gpu=0, held_by=("sw_power_cap",)), LoadFigure(gpu=1)]) == []
    )  # normal at full load


def memory(**changes: Any) -> MemoryFigure:
    values: dict[str, Any] = {"device": "cuda:0", "copied_bytes": 1 << 29, "repeats": 9, "spread_ratio": 0.01}
    values |= {"gigabytes_per_second": 2500.0, "exact": True, "floor_gigabytes_per_second": 1905.0}
    return MemoryFigure(**{**values, **changes})


def test_memory_is_exact_first_and_fast_then() -> None:
    assert [f.verdict for f in judge_memory([memory()])] == ["pass"] and judge_memory([]) == []
    assert judge_memory([memory(), memory(device="cuda:1", exact=False)])[0].exit_code == Exit.DEVICE
    assert judge_memory([memory(gigabytes_per_second=1900.0)])[0].exit_code == Exit.PERFORMANCE
    warned = judge_memory([memory(gigabytes_per_second=1900.0, floor_warns_only=True)])
    assert [f.verdict for f in warned] == ["warning"]
    assert "no floor" in judge_memory([memory(floor_gigabytes_per_second=None)])[0].message


def allreduce(**changes: Any) -> AllReduceFigure:
    values: dict[str, Any] = {
        "backend": "nccl",
        "ranks": 16,
        "nodes": 2,
        "message_bytes": 1 << 30,
        "repeats": 5,
    }
    values |= {"bus_gigabytes_per_second": 430.0, "spread_ratio": 0.1, "exact": True}
    values |= {"bound_gigabytes_per_second": 460.0, "floor_gigabytes_per_second": 276.0}
    return AllReduceFigure(**{**values, **changes})


def test_an_all_reduce_is_exact_fast_enough_and_over_the_promised_network() -> None:
    efa = NcclChoice(network="Libfabric", provider="efa", nics=32)
    (good,) = judge_allreduce([allreduce()], efa, 32)
    assert good.verdict == "pass" and "93% of its bound" in good.message
    assert judge_allreduce([allreduce(exact=False)], efa, 32)[0].exit_code == Exit.DEVICE
    assert (
        judge_allreduce([allreduce(bus_gigabytes_per_second=200.0)], efa, 32)[0].exit_code == Exit.PERFORMANCE
    )
    assert judge_allreduce([allreduce(backend="gloo")], None, 0)[0].verdict == "pass"


def test_sockets_where_efa_is_promised_are_a_failure_however_fast() -> None:
    """nccl 229; aws-ofi-nccl 67; InferenceX PR 2979: the fall-back is silent."""
    why = "NET/OFI Could not find any optimal provider"
    (found,) = judge_allreduce([allreduce()], NcclChoice(network="Socket", warning=why), 32)
    assert (found.verdict, found.exit_code) == ("fail", Exit.DRIVER) and found.cause == why
    tcp = NcclChoice(network="AWS Libfabric", provider="tcp;ofi_rxm")
    assert judge_allreduce([allreduce()], tcp, 4)[0].exit_code == Exit.DRIVER
    assert (
        judge_allreduce([allreduce()], NcclChoice(network="Socket"), 0)[0].verdict == "pass"
    )  # none is promised
    few = NcclChoice(network="Libfabric", provider="efa", nics=1)  # aws-ofi-nccl 584: one of four in use
    assert [f.verdict for f in judge_allreduce([allreduce()], few, 4)] == ["warning"]
    assert [f.verdict for f in judge_allreduce([allreduce()], NcclChoice(), 4)] == ["warning"]
    assert [f.verdict for f in judge_allreduce([allreduce()], None, 4)] == ["warning"]  # no log is no proof


def test_the_interface_of_the_first_meeting_is_told_and_dockers_own_is_warned_of() -> None:
    """nccl 526; verl 726: docker0 was chosen, and no other node is behind it."""
    (good,) = judge_allreduce([allreduce()], NcclChoice(network="Socket", interface="ens5"), 0)
    assert good.verdict == "pass" and "over Socket, first met on ens5" in good.message
    (bad,) = judge_allreduce([allreduce()], NcclChoice(network="Socket", interface="docker0"), 0)
    assert (
        bad.verdict == "warning" and "docker0" in bad.message and "NCCL_SOCKET_IFNAME" in (bad.action or "")
    )


# --- the whole


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


def test_torchs_own_build_is_read_without_starting_cuda() -> None:
    import torch

    found = torch_build.torch_build()
    assert found.version == torch.__version__ and found.cuda == torch.version.cuda
    assert not torch.cuda.is_initialized()
