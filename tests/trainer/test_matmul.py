"""The matrix benchmark measures what it says: wrong numbers, changing bits and lost time are all found."""

from __future__ import annotations

import time

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from trainer.bench.matmul import (
    LEAST_REPEATS,
    SIZES,
    TOLERANCE,
    applicable_dtypes,
    choose_size,
    measure,
    normalised_error,
)

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


def test_emulated_dtypes_do_not_apply() -> None:
    assert applicable_dtypes("cpu", None) == ["fp32"]
    assert applicable_dtypes("cuda:0", (7, 5)) == ["fp32", "fp16"]
    assert applicable_dtypes("cuda:0", (9, 0)) == ["fp32", "tf32", "fp16", "bf16"]


@given(gflops=st.floats(0.05, 1e6), budget=st.floats(0.05, 30), largest=st.sampled_from(SIZES))
def test_the_size_follows_from_the_budget_on_any_machine(gflops: float, budget: float, largest: int) -> None:
    """bf16 on a CPU is hundreds of times slower than fp32: a fixed size would take minutes there."""
    seconds_of: dict[int, float] = {}
    spent = 0.0
    while (n := choose_size(seconds_of, budget, largest)) is not None:
        seconds_of[n] = 2 * n**3 / (gflops * 1e9)
        spent += seconds_of[n]
    chosen = max(seconds_of)
    assert chosen == SIZES[0] or seconds_of[chosen] * LEAST_REPEATS <= budget
    assert chosen <= largest and spent <= max(budget, seconds_of[SIZES[0]]) * 1.2
