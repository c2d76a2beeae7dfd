"""The matrix benchmark measures what it says: wrong numbers, changing bits and lost time are all found."""

from __future__ import annotations

import time

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from trainer.bench.compare import against_cpu
from trainer.bench.figures import choose_dtypes, load_by_device, load_figures, matmul_figures
from trainer.bench.matmul import (
    LEAST_REPEATS,
    SIZES,
    Measured,
    choose_size,
    fitting_size,
    measure,
    native_dtypes,
)
from trainer.bench.product import FP8_SCALE, TOLERANCE, Product, normalised_error
from trainer.devices.nvml import Nvml
from trainer.devices.sampler import Load, Sampler
from trainer.errors import ConfigurationError
from trainer.selfcheck.torch_build import TorchDevice

from tests.trainer.nvml_fake import UNKNOWN, FakeNvml, Gpu, h100, node

Tensor = torch.Tensor


def matrices(n: int = 256, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return (
        torch.randn(n, n, generator=generator).to(dtype),
        torch.randn(n, n, generator=generator).to(dtype),
    )


def test_a_cpu_is_measured_in_fp32_exact_repeatable_and_within_its_budget() -> None:
    began = time.monotonic()
    (found,) = measure(["cpu"], ["fp32"], budget_seconds=0.4)
    assert time.monotonic() - began < 30  # bounded, whatever else the machine does
    assert len(found.seconds) >= LEAST_REPEATS and found.n in SIZES
    assert 0 < found.error <= found.tolerance and found.repeatable and found.finite
    assert found.tflops_median == pytest.approx(
        2 * found.n**3 / sorted(found.seconds)[len(found.seconds) // 2] / 1e12, rel=0.5
    )


@pytest.mark.parametrize(
    ("name", "dtype"), [("fp32", torch.float32), ("fp16", torch.float16), ("bf16", torch.bfloat16)]
)
def test_the_tolerance_lets_rounding_pass_and_finds_one_flipped_bit(name: str, dtype: torch.dtype) -> None:
    a, b = matrices(dtype=dtype)
    c = (a.double() @ b.double()).to(dtype)  # rounded once, as a tensor core does
    assert normalised_error(a, b, c) <= TOLERANCE[name]
    bits = c.view(torch.int32 if dtype == torch.float32 else torch.int16)
    high = {torch.float32: 27, torch.float16: 13, torch.bfloat16: 11}[dtype]  # a high bit of the exponent
    bits[128, 128] ^= 1 << high
    assert normalised_error(a, b, c) > TOLERANCE[name]


def test_a_product_that_was_not_done_or_is_no_number_is_infinitely_wrong_or_far_off() -> None:
    a, b = matrices()
    assert normalised_error(a, b, torch.zeros(256, 256)) > TOLERANCE["fp32"]
    spoilt = a @ b
    spoilt[130, 130] = float("nan")
    assert normalised_error(a, b, spoilt) == float("inf")


def test_changing_bits_between_repeats_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = torch.matmul, []

    def flaky(a: Tensor, b: Tensor, *, out: Tensor) -> Tensor:
        real(a, b, out=out)
        calls.append(1)
        if len(calls) % 7 == 0:
            out[0, 0] += out[0, 0].abs() * 1e-6 + 1e-6  # far below any tolerance
        return out

    monkeypatch.setattr(torch, "matmul", flaky)
    (found,) = measure(["cpu"], ["fp32"], budget_seconds=0.2)
    assert not found.repeatable


def test_torchs_flags_are_as_they_were() -> None:
    flags = torch.backends.cuda.matmul
    before = (flags.allow_tf32, flags.allow_fp16_reduced_precision_reduction)
    measure(["cpu"], ["fp32"], budget_seconds=0.05)
    assert (flags.allow_tf32, flags.allow_fp16_reduced_precision_reduction) == before


def test_emulated_dtypes_do_not_apply_by_themselves() -> None:
    """pytorch 124996: torch says that a T4 can do bf16, and emulates it."""
    assert native_dtypes("cpu", None) == ["fp32"]
    assert native_dtypes("cuda:0", (7, 5)) == ["fp32", "fp16"]
    assert native_dtypes("cuda:0", (8, 0)) == ["fp32", "tf32", "fp16", "bf16"]
    assert native_dtypes("cuda:0", (8, 9)) == ["fp32", "tf32", "fp16", "bf16", "fp8"]
    t4 = TorchDevice("cuda:0", "Tesla T4", (7, 5))
    assert choose_dtypes(t4, None) == ["fp32", "fp16"] and choose_dtypes(t4, ["bf16"]) == ["bf16"]
    with pytest.raises(ConfigurationError, match="Tesla T4 cannot multiply in fp8"):
        choose_dtypes(t4, ["fp8"])
    with pytest.raises(ConfigurationError, match="a CPU cannot multiply in tf32"):
        choose_dtypes(TorchDevice("cpu", "2 threads"), ["tf32"])


def test_fp8_is_held_to_the_numbers_it_was_rounded_to() -> None:
    """Against unrounded inputs only the rounding of e4m3 would be seen, 2^-4 of each."""
    product = Product.random(128, "fp8", "cpu", seed=3)
    assert product.a.dtype == torch.float8_e4m3fn and product.c.dtype == torch.bfloat16
    largest = product.a.float().abs().max().item()
    assert FP8_SCALE < largest < 448  # uses the range, and none is saturated (gpu-fryer)
    product.run()
    assert 0 < product.error() <= TOLERANCE["fp8"]
    product.c[64, 64] += 16
    assert product.error() > TOLERANCE["fp8"]


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16", "fp8"])
def test_the_same_seed_gives_the_same_bits_and_another_one_others(dtype: str) -> None:
    first, again, other = (Product.random(128, dtype, "cpu", seed) for seed in (1, 1, 2))
    for product in (first, again, other):
        product.spoil()
        product.run()
    assert first.digest() == again.digest() != other.digest()
    assert first.same_as(again.c) and not first.same_as(other.c) and first.done()
    again.c[0, 0] = float("nan")
    assert not again.done() and not again.same_as(first.c)


def test_cpu_half_precision_ends_within_its_time_box() -> None:
    """pytorch 146508, 111456, PR 181367: fp16 and bf16 on a CPU can be hundreds of times slower."""
    (found,) = measure(["cpu"], ["bf16"], budget_seconds=0.2)
    assert found.n in SIZES and len(found.seconds) >= LEAST_REPEATS and found.error <= found.tolerance


def test_all_devices_multiply_one_size_at_once() -> None:
    """GPUs can only be compared bit by bit at one size: the smallest that fits all."""
    first, second = measure(["cpu", "cpu"], ["fp32"], budget_seconds=0.1)
    assert first.n == second.n and first.digest == second.digest


def test_a_correctness_check_has_its_value_on_a_cpu_too() -> None:
    """pytorch 83863: a bf16 product of a row of 1024 ones was wrong without mkldnn."""
    ones = torch.ones(1, 1024, dtype=torch.bfloat16)
    assert (ones @ ones.t()).item() == 1024


# --- what the GPUs did meanwhile


def an_h100() -> Gpu:
    return h100(1)[0]


def test_load_is_the_median_the_highest_and_all_bits() -> None:
    load = Load()
    gpu = an_h100()
    for clock, reasons, pcie in ((1980, 0x4, (1, 16)), (1200, 0x8 | 0x4, (5, 16)), (1970, 0x4, (5, 16))):
        gpu.clock, gpu.reasons, gpu.pcie = clock, reasons, pcie
        load.take(Nvml(FakeNvml([gpu])).readings()[0])
    assert load.clock_hertz == 1.97e9 and load.pcie == (5, 16) and load.power_limit_watts == 700
    assert set(load.held_by()) == {"hw_slowdown", "sw_power_cap"} and load.temperature_celsius == 61
    (figure,) = load_figures({0: load})
    assert figure.pcie == "gen 5 x16" and figure.power_watts == 630


def test_what_a_gpu_does_not_tell_stays_unknown_under_load() -> None:
    load = Load()
    load.take(Nvml(FakeNvml(node("g6f"))).readings()[0])
    (figure,) = load_figures({0: load})
    assert (figure.clock_hertz, figure.power_watts, figure.pcie, figure.held_by) == (None, None, None, ())
    assert load.reasons is None  # not told is not "nothing held it"


def test_the_sampler_sees_every_gpu_and_ends_with_a_broken_nvml() -> None:
    gpus = h100(2)
    opened: list[FakeNvml] = []

    def open_nvml() -> Nvml:
        opened.append(FakeNvml(gpus))
        return Nvml(opened[-1])

    with Sampler(open_nvml, seconds=0.001) as sampler:
        deadline = time.monotonic() + 10
        while len(sampler.loads) < 2 and time.monotonic() < deadline:
            time.sleep(0.005)
        gpus[0].fails["nvmlDeviceGetUUID"] = UNKNOWN
    assert set(sampler.loads) == {0, 1} and len(opened) == 1
    with Sampler(None) as nothing:
        pass
    assert nothing.loads == {}


def measured(device: str, dtype: str, tflops: float, n: int = 8192, digest: str = "aa") -> Measured:
    return Measured(device, dtype, n, (2 * n**3 / tflops / 1e12,), 1e-5, True, True, digest)


def test_figures_carry_floor_and_peak_of_the_very_gpu_joined_by_uuid() -> None:
    """pytorch PR 92315: CUDA's first device may be NVML's second."""
    gpus = [*node("T4"), *node("H100")]
    readings = Nvml(FakeNvml(gpus)).readings()
    devices = [
        TorchDevice("cuda:0", "NVIDIA H100", (9, 0), "GPU-0001"),
        TorchDevice("cuda:1", "Tesla T4", (7, 5), "GPU-0000"),
    ]
    fast, slow = matmul_figures(
        [measured("cuda:0", "bf16", 700), measured("cuda:1", "bf16", 2.2)], devices, readings, {}
    )
    assert (fast.floor_tflops, fast.peak_tflops, fast.power_limit_watts) == (545, 989, 700)
    assert fast.pci_subsystem_id == "16CA" and not fast.emulated
    assert slow.emulated and slow.floor_tflops is None and slow.peak_tflops is None
    own = matmul_figures([measured("cuda:0", "bf16", 700)], devices, readings, {"bf16": 600.0})
    assert own[0].floor_tflops == 600
    load = load_figures({0: Load(), 1: Load()})
    joined = load_by_device(load, devices, readings)
    assert {device: figure.gpu for device, figure in joined.items()} == {"cuda:0": 1, "cuda:1": 0}


def test_a_part_or_a_fraction_of_a_gpu_is_held_to_no_floor() -> None:
    for profile, uuid in (("MIG", "MIG-1111"), ("g6f", "GPU-0000")):
        readings = Nvml(FakeNvml(node(profile))).readings()
        device = TorchDevice("cuda:0", "part", (8, 0), uuid)
        (figure,) = matmul_figures([measured("cuda:0", "fp16", 30)], [device], readings, {})
        assert figure.pci_device_id and figure.floor_tflops is None and figure.peak_tflops is None


def test_gpu_against_cpu_is_a_ratio_of_what_was_measured_with_its_core_count() -> None:
    devices = [TorchDevice("cuda:0", "NVIDIA H100", (9, 0), "GPU-0000")]
    found = [measured("cuda:0", "fp32", 50), measured("cuda:0", "bf16", 750)]
    gpus = matmul_figures(found, devices, (), {})
    (cpu,) = matmul_figures(
        [measured("cpu", "fp32", 0.125, n=1024)], [TorchDevice("cpu", "all cores")], (), {}
    )
    single, best = against_cpu(gpus, cpu, 2)
    assert (single.dtype, single.ratio, single.cpu_cores) == ("fp32", pytest.approx(400), 2)
    assert (best.dtype, best.ratio, best.cpu_n) == ("bf16", pytest.approx(6000), 1024)
    assert against_cpu([], cpu, 2) == []
    assert len(against_cpu(gpus[:1], cpu, 2)) == 1  # fp32 is its fastest: told once


@given(gflops=st.floats(0.05, 1e6), budget=st.floats(0.05, 30), largest=st.sampled_from(SIZES))
def test_the_size_follows_from_the_budget_on_any_machine(gflops: float, budget: float, largest: int) -> None:
    """bf16 on a CPU is hundreds of times slower than fp32: a fixed size would take minutes there."""
    seconds_of: dict[int, float] = {}
    spent = 0.0
    while (n := choose_size(seconds_of, budget, largest)) is not None:
        seconds_of[n] = 2 * n**3 / (gflops * 1e9)
        spent += seconds_of[n]
    chosen = fitting_size(seconds_of, budget)
    assert chosen == SIZES[0] or seconds_of[chosen] * LEAST_REPEATS <= budget
    assert chosen <= largest and spent <= max(budget, seconds_of[SIZES[0]]) * 1.2


def test_on_a_busy_machine_small_products_that_wait_do_not_end_the_search() -> None:
    """40 ms of waiting a product, 50 GFLOPS: n = 128 would be told as 0.0001 TFLOPS."""
    seconds_of: dict[int, float] = {}
    while (n := choose_size(seconds_of, budget_seconds=0.5, largest=1024)) is not None:
        seconds_of[n] = 0.04 + 2 * n**3 / 50e9
    assert fitting_size(seconds_of, 0.5) == 512
