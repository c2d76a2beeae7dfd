"""Verdicts on the self-check's benchmarks."""

from __future__ import annotations

from typing import Any

import pytest
from trainer.bench.nccl import NcclChoice
from trainer.exit_codes import Exit
from trainer.selfcheck.bandwidth import judge_allreduce, judge_memory
from trainer.selfcheck.matmul import judge, judge_load
from trainer.selfcheck.report import (
    AllReduceFigure,
    LoadFigure,
    MatmulFigure,
    MemoryFigure,
)


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
