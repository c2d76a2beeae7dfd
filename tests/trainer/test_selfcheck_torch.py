"""The self-check of torch against GPUs and driver."""

from __future__ import annotations

from pathlib import Path

import pytest
from trainer.contracts.node_document import Promise
from trainer.devices.nvml import Nvml
from trainer.exit_codes import Exit
from trainer.selfcheck import torch_build
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

from tests.trainer.host_fake import FakeHost, gpu_host
from tests.trainer.nvml_fake import FakeNvml, h100, node
from tests.trainer.selfcheck_kit import HEALTHY_TORCH, promise

SOURCE = Path(__file__).resolve().parents[2] / "trainer" / "src"


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


def test_torchs_own_build_is_read_without_starting_cuda() -> None:
    import torch

    found = torch_build.torch_build()
    assert found.version == torch.__version__ and found.cuda == torch.version.cuda
    assert not torch.cuda.is_initialized()
