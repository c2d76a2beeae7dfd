"""What a node with GPUs exports: series that belong to the GPU they name, XIDs once, and nothing for what is away."""

from __future__ import annotations

import os
import re
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from trainer.devices import metrics as device_metrics
from trainer.devices.metrics import DeviceMetrics
from trainer.devices.xid import Xid
from trainer.devices.xid_nvml import SAME_SECONDS, NvmlXids, XidTally, kernels_place
from trainer.obs import dcgm
from trainer.obs.exporter import Exporter, NodeState

from tests.trainer.nvml_events_fake import Nvml
from tests.trainer.nvml_fake import UNKNOWN, Gpu, h100

FELL_OFF, STORM = Xid("0000:10:00", 79), Xid("0000:11:00", 31)


class KernelLog:
    """A reader that says what it is told to say."""

    def __init__(self) -> None:
        self.lines: list[Xid] = []
        self.available = True

    def new(self) -> list[Xid]:
        found, self.lines = self.lines, []
        return found

    def close(self) -> None:
        pass


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[DeviceMetrics, Nvml, KernelLog]]:
    log, module = KernelLog(), Nvml(h100(2))
    monkeypatch.setattr(device_metrics.XidReader, "open", lambda: log)
    opened = DeviceMetrics.open(NodeState(), "nvidia", module)
    yield opened, module, log
    opened.close()


def scraped(exporter: Exporter) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{exporter.port}/metrics", timeout=5) as answer:
        return answer.read().decode()


def test_a_place_on_the_bus_is_the_same_in_both_sources() -> None:
    assert kernels_place("00000000:3B:00.0") == "0000:3b:00"
    assert kernels_place("00000001:3B:00.0") == "0001:3b:00"
    assert kernels_place("what is this") == "what is this"


def test_an_xid_that_both_sources_tell_counts_once() -> None:
    tally = XidTally()
    assert tally.take("kernel-log", [FELL_OFF, FELL_OFF], 0) == [FELL_OFF, FELL_OFF]  # it happened twice
    assert tally.take("nvml", [FELL_OFF, STORM], 1) == [STORM]
    assert tally.take("nvml", [FELL_OFF], 2) == []
    assert tally.take("nvml", [FELL_OFF], 3) == [FELL_OFF]  # a third one, of which the log says nothing
    assert tally.take("kernel-log", [FELL_OFF], 4 + SAME_SECONDS) == [FELL_OFF], "too late to be the same"


def test_a_lost_gpus_event_is_matched_without_its_place() -> None:
    tally = XidTally()
    assert tally.take("nvml", [Xid("unknown", 79)], 0) == [Xid("unknown", 79)]
    assert tally.take("kernel-log", [FELL_OFF], 0) == []


def test_each_source_adds_what_the_other_one_misses(devices: tuple[DeviceMetrics, Nvml, KernelLog]) -> None:
    metrics, module, log = devices
    module.happen(0, 48)
    log.lines = [Xid("0000:10:00", 48), FELL_OFF]
    metrics.refresh()
    module.happen(1, 31)
    metrics.refresh()
    counts = {code: metrics.state.get("trainer_gpu_xid_total", xid=code) for code in ("48", "79", "31", "13")}
    assert counts == {"48": 1, "79": 1, "31": 1, "13": None}


def test_which_xid_sources_there_are_is_told(devices: tuple[DeviceMetrics, Nvml, KernelLog]) -> None:
    metrics, _, log = devices
    metrics.refresh()
    state = metrics.state
    sources = ("kernel-log", "nvml")
    assert [state.get("trainer_xid_source_available", source=name) for name in sources] == [1, 1]
    log.available = False  # journalctl ended
    metrics.refresh()
    assert [state.get("trainer_xid_source_available", source=name) for name in sources] == [0, 1]
    assert NvmlXids.open(Nvml(h100(2), deaf=True)) is None


def test_a_cpu_node_says_nothing_of_gpus() -> None:
    state = NodeState()
    DeviceMetrics.open(state, "none").refresh()
    assert state.values() == {}


def test_nvml_that_goes_away_is_told_its_series_vanish_and_it_is_asked_again_later(
    devices: tuple[DeviceMetrics, Nvml, KernelLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics, module, _ = devices
    state = metrics.state
    metrics.refresh()
    assert len(state.values()["trainer_gpu_power_watts"]) == 2
    module.count_error = module.init_error = UNKNOWN  # systemctl daemon-reload took the device nodes away
    for _ in range(3):
        metrics.refresh()
    assert state.get("trainer_nvml_available") == 0 and "trainer_gpu_power_watts" not in state.values()
    assert "trainer_gpu_info" not in state.values() and module.registered == []
    module.count_error = module.init_error = None
    metrics.refresh()
    assert state.get("trainer_nvml_available") == 0, "not at every scrape"
    monkeypatch.setattr(device_metrics, "AGAIN_SECONDS", 0.0)
    metrics._again_at = 0.0
    metrics.refresh()
    assert state.get("trainer_nvml_available") == 1 and len(module.registered) == 2


def test_series_follow_the_gpu_and_not_its_place_in_the_list() -> None:
    """Log G57: the index changes when a GPU falls off or CUDA orders them its own way; the UUID does not."""
    gpus = [Gpu(name="one", uuid="GPU-a"), Gpu(name="two", uuid="GPU-b")]
    before, after = NodeState(), NodeState()
    for state, order in ((before, gpus), (after, gpus[::-1])):
        DeviceMetrics(state, None, None, Nvml(order)).refresh()
    named = [
        {(uuid, model) for _, uuid, model, _ in state.values()["trainer_gpu_info"]}
        for state in (before, after)
    ]
    assert named[0] == named[1] == {("GPU-a", "one"), ("GPU-b", "two")}
    assert before.get("trainer_gpu_power_watts", gpu="0", uuid="GPU-a") == 72.5
    assert after.get("trainer_gpu_power_watts", gpu="1", uuid="GPU-a") == 72.5


def test_a_gpu_that_fell_off_is_told_and_says_nothing_else(
    devices: tuple[DeviceMetrics, Nvml, KernelLog],
) -> None:
    metrics, module, _ = devices
    metrics.refresh()
    module.gpus[1].lost = True
    metrics.refresh()
    values = metrics.state.values()
    assert values["trainer_gpu_lost"] == {("0", "GPU-0000"): 0.0, ("1", "GPU-0001"): 1.0}
    assert set(values["trainer_gpu_power_watts"]) == {("0", "GPU-0000")}


def test_dcgms_names_are_there_only_when_asked_for() -> None:
    state = NodeState()
    gpu = Gpu(name="NVIDIA L4", uuid="GPU-a", fields={82: (0, 1, 70)})  # memory's temperature, unsigned
    DeviceMetrics(state, None, None, Nvml([gpu])).refresh()
    plain, both = Exporter(state, "127.0.0.1", 0), Exporter(state, "127.0.0.1", 0, dcgm_names=True)
    try:
        own, text = scraped(plain), scraped(both)
    finally:
        plain.close()
        both.close()
    assert "DCGM_" not in own and "trainer_gpu_power_watts" in text
    found = {
        sample.name: sample
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("DCGM_FI_DEV")
    }
    assert {name: sample.value for name, sample in found.items()} == {
        "DCGM_FI_DEV_SM_CLOCK": 2040,  # MHz
        "DCGM_FI_DEV_GPU_TEMP": 61,
        "DCGM_FI_DEV_MEMORY_TEMP": 70,
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": gpu.energy,  # mJ
        "DCGM_FI_DEV_POWER_USAGE": 72.5,
        "DCGM_FI_DEV_GPU_UTIL": 50,  # percent
        "DCGM_FI_DEV_FB_USED": 1024,  # MiB
        "DCGM_FI_DEV_FB_FREE": 23034 - 1024 - 512,  # the driver's reserve is neither used nor free
    }
    labels = found["DCGM_FI_DEV_GPU_TEMP"].labels
    assert set(labels) == set(dcgm.LABELS)
    assert labels["gpu"] == "0" and labels["UUID"] == "GPU-a" and labels["modelName"] == "NVIDIA L4"
    assert labels["device"] == "nvidia0" and labels["pci_bus_id"] == "00000000:10:00.0"
    assert labels["DCGM_FI_DRIVER_VERSION"] == "580.95.05" and labels["Hostname"]


def test_a_value_that_a_gpu_does_not_have_has_no_alias_either() -> None:
    state = NodeState()
    gpu = Gpu(absent={"nvmlDeviceGetPowerUsage", "nvmlDeviceGetUtilizationRates"})
    DeviceMetrics(state, None, None, Nvml([gpu])).refresh()
    names = {family.name for family in dcgm.families(state.values())}
    assert "DCGM_FI_DEV_POWER_USAGE" not in names and "DCGM_FI_DEV_GPU_TEMP" in names


def test_two_scrapes_at_once_read_the_devices_one_after_the_other() -> None:
    inside, most, entered = 0, 0, threading.Event()

    def refresh() -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        entered.wait(0.05)
        inside -= 1

    exporter = Exporter(NodeState(), "127.0.0.1", 0, refresh)
    try:
        threads = [threading.Thread(target=scraped, args=(exporter,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        exporter.close()
    assert most == 1


def test_nothing_is_left_in_files_and_no_other_process_exports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Log G53: with prometheus_client's multiprocess mode, files of dead processes go on telling their last values."""
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    first = NodeState()
    first.set("trainer_loss", 1.0)
    exporter = Exporter(first, "127.0.0.1", 0)
    try:
        assert "trainer_loss 1.0" in scraped(exporter)
    finally:
        exporter.close()
    after = Exporter(NodeState(), "127.0.0.1", 0)  # the agent was restarted
    try:
        assert "trainer_loss" not in scraped(after)
    finally:
        after.close()
    assert os.listdir(tmp_path) == []
    source = Path(__file__).resolve().parents[2] / "trainer" / "src" / "trainer"
    users = {
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        if re.search(r"^\s*(from|import) prometheus_client", path.read_text(), re.MULTILINE)
    }
    assert users == {"obs/exporter.py", "obs/dcgm.py"}
