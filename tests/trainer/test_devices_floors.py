"""The table of peaks and floors: no typing error comes in, no GPU is guessed, a fraction of one has no floor."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from trainer.devices.floors import GpuFloors, floors_for, peak_tflops, table, whole_table

DTYPES = {"fp32", "tf32", "fp16", "bf16", "fp8"}


def faults(row: GpuFloors) -> list[str]:
    """What is wrong with a row, by the rules that the vendor's own table breaks four times."""
    found = []
    if set(row.floor) != set(row.peak) or not set(row.peak) <= DTYPES:
        found.append("a floor for each peak, and of known dtypes only")
    for dtype, peak in row.peak.items():
        floor, measured = row.floor.get(dtype, 0.0), row.measured.get(dtype)
        if measured is None and dtype not in row.warn_only:
            found.append(f"{dtype}: nothing was published, so it may only warn")
        if measured is not None and not measured < peak:
            found.append(f"{dtype}: more was measured than the peak")
        if measured is not None and not 0.55 * measured <= floor <= 0.76 * measured:
            found.append(f"{dtype}: the floor is no 0.6 to 0.75 of what was measured")
        # Cards of 70 W reach little more than half of their sheet: there the floor may be lower, with a measurement.
        sags = measured is not None and measured < 0.65 * peak
        if not (0.2 if sags else 0.4) * peak <= floor < peak:
            found.append(f"{dtype}: the floor is no sane share of the peak")
    if row.memory is not None:
        memory = row.memory
        if not 0.4 * memory.peak <= memory.floor < memory.peak:
            found.append("memory: the floor is no sane share of the peak")
        if memory.measured is None and not memory.warn_only:
            found.append("memory: nothing was published, so it may only warn")
        if memory.measured is not None and not memory.floor <= 0.76 * memory.measured < memory.peak:
            found.append("memory: floor, measurement and peak do not fit")
    return found


def test_every_row_is_sane_against_measurement_and_datasheet() -> None:
    assert {row.name: faults(row) for row in table() if faults(row)} == {}


def test_the_table_is_dated_sourced_and_names_no_device_twice() -> None:
    whole = whole_table()
    assert datetime.date.fromisoformat(whole.as_of) >= datetime.date(2026, 11, 30)
    assert "datasheet" in whole.source and "DCGM" in whole.source
    ids = [id_ for row in table() for id_ in row.pci_device_ids]
    names = [name for row in table() for name in row.names]
    assert len(ids) == len(set(ids)) and len(names) == len(set(names))
    assert all(len(id_) == 4 and id_ == id_.upper() and int(id_, 16) for id_ in ids)


def test_every_gpu_that_ec2_has_is_in_it() -> None:
    families = {family for row in table() for family in row.families}
    assert families >= {"g4dn", "p3", "p3dn", "g5", "g6", "gr6", "g6e", "g7", "g7e", "p4d", "p4de"}
    assert families >= {"p5", "p5e", "p5en", "p6-b200", "p6-b300", "p6e-gb200"}


def changed(name: str, **changes: Any) -> GpuFloors:
    row = next(row for row in table() if row.name == name)
    return GpuFloors.model_validate({**row.model_dump(by_alias=True), **changes})


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        # NVIDIA/DCGM diag-skus: H200's least bandwidth is 2333 where thousands are meant: it passes anything.
        (changed("H200", memory={"peak": 4800, "measured": 3110, "floor": 2.333}), "memory: the floor"),
        # A100 (20b0): 137 500 where its own comment says 1 372 500.
        (
            changed("A100 SXM 80", memory={"peak": 2039, "measured": 1564, "floor": 137.5}),
            "memory: the floor",
        ),
        # L40 (26b5): 49 050 MB/s.
        (changed("L40S", memory={"peak": 864, "measured": 700, "floor": 49.05}), "memory: the floor"),
        # B100: a bandwidth in a field of GFLOP/s.
        (changed("B200", floor={"fp32": 3416.25}), "fp32: the floor"),
    ],
)
def test_the_four_typing_errors_of_the_vendors_table_would_be_found(row: GpuFloors, fault: str) -> None:
    assert any(found.startswith(fault) for found in faults(row))


def test_an_unknown_gpu_has_no_peak_and_no_floor() -> None:
    for unknown in (floors_for("FFFF"), floors_for(None), floors_for(None, "NVIDIA A10"), floors_for("", "")):
        assert unknown is None
    assert peak_tflops("FFFF", "bf16") is None  # never a guess: no MFU there


def test_the_device_id_decides_and_the_whole_name_only_where_there_is_none() -> None:
    h100 = floors_for("2330")
    assert h100 is not None and h100.floor["bf16"] == 545 and h100.peak["fp8"] == 1979
    assert floors_for("FFFF", "NVIDIA L4") is None  # an id that is not known is an answer
    l40s = floors_for(None, "nvidia l40s")  # torchtitan looks for lower case in a name of capitals
    assert l40s is not None and l40s.name == "L40S"
    a10g = floors_for(None, "NVIDIA A10G")  # llm.c PR 621: taken for an A10, which has 125
    assert a10g is not None and a10g.peak["bf16"] == 70
    assert floors_for(None, "NVIDIA H200 NVL") is None
    assert peak_tflops("2330", "bf16") == 989 and peak_tflops("1EB8", "bf16") is None


def test_a_fraction_of_a_gpu_is_held_to_no_floor() -> None:
    """g6f gives an eighth to a half of an L4, MIG parts of an A100: no scaled figure would be honest."""
    assert floors_for("27B8", memory_bytes=23034 << 20) is not None
    assert floors_for("27B8", memory_bytes=11444 << 20) is None
    assert floors_for("20B0", memory_bytes=19968 << 20) is None
