"""NVML as it really behaves: one test per public report of code that trusted it. No GPU has run these."""

from __future__ import annotations

import ctypes
import inspect
from typing import Any

import pynvml
import pytest
from trainer.devices.nvml import Nvml, NvmlUnavailable
from trainer.devices.reading import GpuHealth, GpuReading, reading_of
from trainer.devices.visible import visible_uuids

from tests.trainer.nvml_fake import (
    ANSWERS,
    FUNCTION_NOT_FOUND,
    GPU_IS_LOST,
    LIBRARY_NOT_FOUND,
    MISMATCH,
    NOT_SUPPORTED,
    PROFILES,
    RESET_REQUIRED,
    UNINITIALIZED,
    UNKNOWN,
    FakeNvml,
    Gpu,
    NVMLError,
    h100,
    node,
)


def read(gpu: Gpu) -> GpuReading:
    return Nvml(FakeNvml([gpu])).readings()[0]


def health(gpu: Gpu) -> GpuHealth:
    return Nvml(FakeNvml([gpu])).health()[0]


# --- the stand-in is like the module


def test_the_stand_in_has_the_real_modules_names_values_and_signatures() -> None:
    fake = FakeNvml([])
    own = {"gpus", "init_error", "count_error", "started", "calls"}
    for name in {n for n in dir(fake) if not n.startswith("_")} - own | set(ANSWERS):
        real = getattr(pynvml, name)  # AttributeError: no such thing in nvidia-ml-py
        if isinstance(real, int):
            assert getattr(fake, name) == real, name
    for name in ("nvmlDeviceGetFieldValues", "nvmlDeviceGetMigDeviceHandleByIndex"):
        mine, theirs = inspect.signature(getattr(fake, name)), inspect.signature(getattr(pynvml, name))
        assert len(mine.parameters) == len(theirs.parameters)
    codes = {
        pynvml.NVML_ERROR_UNINITIALIZED: UNINITIALIZED,
        pynvml.NVML_ERROR_NOT_SUPPORTED: NOT_SUPPORTED,
        pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: LIBRARY_NOT_FOUND,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_GPU_IS_LOST: GPU_IS_LOST,
        pynvml.NVML_ERROR_RESET_REQUIRED: RESET_REQUIRED,
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: MISMATCH,
        pynvml.NVML_ERROR_UNKNOWN: UNKNOWN,
    }
    assert all(real == mine for real, mine in codes.items())


def test_a_field_values_members_are_the_real_unions_by_the_real_types() -> None:
    from trainer.devices import nvml

    assert tuple(field[0] for field in pynvml.c_nvmlValue_t._fields_) == nvml.VALUE_TYPES
    assert pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION == nvml.RECOVERY_ACTION
    assert pynvml.NVML_FI_DEV_MEMORY_TEMP == nvml.MEMORY_TEMPERATURE
    assert pynvml.NVML_FI_DEV_POWER_INSTANT == nvml.POWER_INSTANT
    assert pynvml.NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL in nvml.NVLINK_ERRORS
    assert issubclass(pynvml.c_nvmlGpuFabricInfo_v2_t, ctypes.Structure)


@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_every_profile_is_read_without_a_fault(profile: str) -> None:
    reading, seldom = read(PROFILES[profile]()), health(PROFILES[profile]())
    assert reading.uuid == "GPU-0000" and reading.fault is None and not reading.lost
    assert reading.memory_total_bytes and reading.memory_total_bytes > 2**31
    assert (seldom.nvlinks is not None) == (
        profile in ("V100", "A100", "H100", "H200", "B200", "B300", "MIG")
    )
    assert (reading.remap_failed is None) == (
        profile in ("T4", "V100", "g6f")
    )  # rows are remapped from Ampere on


# --- pitfalls, by report


def test_bytes_and_text_are_both_taken() -> None:  # dask/distributed 5768, 7563; vllm 7649
    gpu = Gpu(name=b"NVIDIA L4", uuid=b"GPU-abc")
    assert (read(gpu).name, read(gpu).uuid) == ("NVIDIA L4", "GPU-abc")


def test_a_name_that_is_no_utf8_is_told_in_hex() -> None:  # gpuopenanalytics/pynvml 53
    broken = UnicodeDecodeError("utf-8", b"\xff\x00", 0, 1, "invalid start byte")
    assert read(Gpu(fails={"nvmlDeviceGetName": broken})).name == "ff00"
    assert read(Gpu(fails={"nvmlDeviceGetUUID": broken})).uuid == "ff00"


def test_a_function_that_the_driver_or_the_module_lacks_costs_its_value_only() -> None:
    """pynvml 43, k8s-device-plugin 331 (driver); nvitop 79, 88, 181 (module)."""
    for function in set(ANSWERS) - {"nvmlDeviceGetUUID"}:
        reading = read(Gpu(fails={function: FUNCTION_NOT_FOUND}))
        assert reading.uuid == "GPU-0000" and reading.fault is None, function
        health(Gpu(fails={function: FUNCTION_NOT_FOUND}))

    class Older(FakeNvml):
        def __getattr__(self, function: str) -> Any:
            if function in ("nvmlDeviceGetTemperatureV", "nvmlDeviceGetMarginTemperature"):
                raise AttributeError(function)
            return super().__getattr__(function)

    (reading,) = Nvml(Older(node("L4"))).readings()
    assert reading.temperature_celsius == 60 and reading.temperature_margin_celsius is None


def test_the_drivers_reserve_is_not_counted_as_used() -> None:  # pynvml 59; gpustat 141; py3nvml 25
    assert read(Gpu(used=1 << 30)).memory_used_bytes == 1 << 30

    class First(FakeNvml):
        """A driver without the second version of the call."""

        def __getattr__(self, function: str) -> Any:
            answer = super().__getattr__(function)
            if function != "nvmlDeviceGetMemoryInfo":
                return answer

            def first(gpu: Gpu, version: int | None = None) -> Any:
                if version:
                    raise NVMLError(FUNCTION_NOT_FOUND)
                return answer(gpu)

            return first

    gpu = Gpu()
    (reading,) = Nvml(First([gpu])).readings()
    assert reading.memory_used_bytes == gpu.used + gpu.reserved  # as much as can be told there


def test_a_gpu_in_mig_mode_tells_its_parts_and_what_it_lacks_is_absent() -> None:  # nvitop 5; dask 8739
    reading = read(PROFILES["MIG"]())
    parts = [(part.uuid, part.memory_total_bytes) for part in reading.mig or ()]
    assert parts == [("MIG-1111", 9856 << 20), ("MIG-2222", 9856 << 20)]
    assert reading.utilization_ratio is None
    assert read(PROFILES["A100"]()).mig is None


def test_torch_finds_a_gpu_by_uuid_whatever_the_order() -> None:
    """pytorch PR 92315; TensorRT-LLM PR 12985: metrics were shown for the wrong GPU."""
    readings = Nvml(FakeNvml([*node("L4", 2), *node("MIG")])).readings()
    assert reading_of("GPU-0001", readings) is readings[1]
    assert reading_of("MIG-2222", readings) is readings[2]
    assert reading_of("GPU-none", readings) is None and reading_of(None, readings) is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, ["GPU-0000", "GPU-0001", "GPU-0002"]),
        ("", []),
        ("2,0", ["GPU-0002", "GPU-0000"]),
        ("GPU-0001", ["GPU-0001"]),  # vllm PR 6582: int() of it was an error
        ("MIG-2222", ["MIG-2222"]),
        ("1,7,0", ["GPU-0001"]),  # CUDA stops at the first that is none
        ("1,-1,0", ["GPU-0001"]),
        ("0,0", ["GPU-0000"]),
        ("GPU-", []),  # means several
    ],
)
def test_cuda_visible_devices_is_read_as_cuda_reads_it(value: str | None, expected: list[str]) -> None:
    gpus = node("MIG", 3)
    for gpu in gpus[1:]:
        gpu.mig = None
    readings = Nvml(FakeNvml(gpus)).readings()
    assert visible_uuids(readings, {} if value is None else {"CUDA_VISIBLE_DEVICES": value}) == expected


def test_numbers_say_nothing_where_cuda_orders_different_gpus_by_speed() -> None:  # pytorch PR 94568
    readings = Nvml(FakeNvml([*node("T4"), *node("L4")])).readings()
    assert visible_uuids(readings, {"CUDA_VISIBLE_DEVICES": "0"}) is None
    assert visible_uuids(readings, {}) is None
    by_bus = {"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert visible_uuids(readings, by_bus) == ["GPU-0001"]
    assert visible_uuids(readings, {"CUDA_VISIBLE_DEVICES": "GPU-0000"}) == ["GPU-0000"]


@pytest.mark.parametrize("code", [UNKNOWN, UNINITIALIZED, MISMATCH])
def test_a_broken_nvml_is_unknown_and_comes_back(code: int) -> None:
    """nvidia-container-toolkit 48, 251, 1227: a daemon-reload takes the devices; not a bad GPU."""
    gpus = h100(2)
    nvml = Nvml(FakeNvml(gpus))
    assert len(nvml.readings()) == 2
    gpus[1].fails["nvmlDeviceGetUUID"] = code
    with pytest.raises(NvmlUnavailable) as raised:
        nvml.readings()
    assert raised.value.mismatch == (code == MISMATCH) and not raised.value.library_missing
    gpus[1].fails.clear()
    assert [reading.lost for reading in nvml.readings()] == [False, False]


def test_no_driver_is_told_apart_from_a_broken_one() -> None:
    with pytest.raises(NvmlUnavailable) as raised:
        Nvml(FakeNvml([], init_error=LIBRARY_NOT_FOUND))
    assert raised.value.library_missing
    with pytest.raises(NvmlUnavailable) as raised:
        Nvml(FakeNvml([], init_error=NOT_SUPPORTED))
    assert not raised.value.library_missing


def test_each_field_value_has_its_own_return_code_and_type() -> None:
    gpu = Gpu(
        fields={
            82: (0, 1, 74),
            186: (NOT_SUPPORTED, 1, 5),
            38: (0, 3, 7),
            45: (UNKNOWN, 3, 9),
        }
    )
    gpu.links = [1, 1]
    gpu.absent.add("nvmlDeviceGetPowerUsage")
    reading, seldom = read(gpu), health(gpu)
    assert reading.memory_temperature_celsius == 74 and reading.power_watts is None
    assert seldom.nvlink_errors == {"crc_flit": 7}
    for kind in (1, 3, 5):  # unsigned, long long, signed: each has its own member of the union
        gpu.fields[186] = (0, kind, 71_000)
        assert read(gpu).power_watts == 71


def test_a_lost_gpu_is_not_asked_again_and_takes_no_other_with_it() -> None:
    gpus = h100(2)
    fake = FakeNvml(gpus)
    nvml = Nvml(fake)
    nvml.readings()
    gpus[0].lost = True
    assert [(r.lost, r.uuid) for r in nvml.readings()] == [(True, "GPU-0000"), (False, "GPU-0001")]
    gpus[0].lost, before = False, len(fake.calls)
    gpus[0].fails = {function: AssertionError("it was asked again") for function in ANSWERS}
    assert nvml.readings()[0].lost and nvml.health()[0] == GpuHealth(0)
    assert len(fake.calls) > before


def test_a_fault_of_one_gpu_is_its_own() -> None:
    gpus = h100(3)
    gpus[1].fails["nvmlDeviceGetHandleByIndex"] = 8  # insufficient external power
    gpus[2].fails["nvmlDeviceGetUUID"] = RESET_REQUIRED
    first, second, third = Nvml(FakeNvml(gpus)).readings()
    assert first.fault is None and second.fault == "NVML error 8" and not second.lost
    assert third.recovery_action == "reset" and third.fault is None


def test_units_are_base_units() -> None:
    gpu = Gpu(power=71_500, power_limit=72_000, energy=1_500, clock=2040)
    reading = read(gpu)
    assert (reading.power_watts, reading.power_limit_watts, reading.energy_joules) == (71.5, 72.0, 1.5)
    assert reading.clock_hertz == 2.04e9 and reading.utilization_ratio == 0.5
    assert (reading.pci_device_id, reading.pci_subsystem_id) == ("27B8", "16CA")
    assert reading.pci_bus_id == "00000000:10:00.0"


def test_the_versioned_call_goes_before_the_old_one() -> None:
    assert read(Gpu()).temperature_celsius == 61
    assert read(Gpu(absent={"nvmlDeviceGetTemperatureV"})).temperature_celsius == 60
    reasons = {"nvmlDeviceGetCurrentClocksEventReasons"}  # throttle reasons until driver 535
    assert read(Gpu(reasons=0x48, absent=reasons)).clock_reasons == 0x48


def test_a_temperature_margin_may_be_zero_or_negative() -> None:  # gpud PR 1208
    assert read(Gpu(margin=0)).temperature_margin_celsius == 0
    assert read(Gpu(margin=-2)).temperature_margin_celsius == -2


def test_event_reasons_are_bits_not_values() -> None:
    """gpu-fryer compares the whole mask with single flags: two reasons at once pass unseen there."""
    active = {reason for reason, on in read(Gpu(reasons=0x8 | 0x4 | 0x1)).throttled_by().items() if on}
    assert active == {"hw_slowdown", "sw_power_cap"}
    assert not any(read(Gpu(reasons=0x1 | 0x2 | 0x10 | 0x100)).throttled_by().values())
    assert read(PROFILES["g6f"]()).throttled_by() == {}  # not told is not "no"


@pytest.mark.parametrize(
    ("number", "action"),
    [(0, "none"), (1, "reset"), (2, "reboot"), (3, "drain-p2p"), (4, "drain-and-reset"), (9, "unknown (9)")],
)
def test_the_recovery_action_is_field_230(number: int, action: str) -> None:
    assert read(Gpu(recovery=number)).recovery_action == action
    assert read(Gpu(absent={"nvmlDeviceGetFieldValues"})).recovery_action is None  # an older driver


def test_rows_and_pages() -> None:
    gpu = Gpu(remapped=(1, 2, 1, 0))
    assert (read(gpu).remap_pending, read(gpu).remap_failed) == (True, False)
    assert health(gpu).remapped_uncorrectable == 2
    old = PROFILES["V100"]()
    old.absent = {"nvmlDeviceGetRemappedRows"}
    old.retired, old.retired_pending = (3, 2), 1
    assert (health(old).retired_pages, health(old).retired_pages_pending) == (5, True)
    assert health(PROFILES["H100"]()).retired_pages is None


def test_ecc_is_told_by_place() -> None:
    gpu = Gpu(ecc_counters={(0, 0, 7): 4, (0, 0, 2): 5, (1, 0, 7): 1, (1, 1, 7): 6})
    seldom = health(gpu)
    assert (seldom.ecc_corrected_sram, seldom.ecc_corrected_dram) == (4, 5)
    assert (seldom.ecc_uncorrected_sram, seldom.ecc_uncorrected_dram) == (1, 0)
    assert seldom.ecc_uncorrected_sram_aggregate == 6


def test_nvlinks_are_counted_where_the_model_has_them() -> None:
    gpu = PROFILES["H100"]()
    gpu.links[5] = 0
    assert (health(gpu).nvlinks, health(gpu).nvlinks_inactive) == (18, 1)
    assert (health(PROFILES["L4"]()).nvlinks, health(PROFILES["L4"]()).nvlinks_inactive) == (None, None)


def test_the_fabrics_state_is_told_where_there_is_one() -> None:
    gpus = [*h100(4), PROFILES["A100"]()]
    gpus[1].fabric_state, gpus[2].fabric_status, gpus[3].lost = 2, UNKNOWN, True
    states = Nvml(FakeNvml(gpus)).fabric_states()
    # A registration that came to its end may have failed (nvml.h: "must be checked").
    assert states == ["completed", "in progress", "failed with NVML error 999", None, None]


def test_a_fraction_of_a_gpu_tells_little_and_nothing_of_it_is_zero() -> None:
    reading = read(PROFILES["g6f"]())
    values = (reading.power_watts, reading.ecc_uncorrected, reading.clock_hertz, reading.clock_reasons)
    assert set(values) == {None} and reading.memory_total_bytes == 2861 << 20
