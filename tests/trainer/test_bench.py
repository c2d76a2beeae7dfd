"""Benchmarks beside the matrix products: memory, all-reduce, NCCL's choice of network, the loader, the commands."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from prometheus_client.parser import text_string_to_metric_families
from trainer.agent.supervisor import worker_environment
from trainer.bench import allreduce as bench_allreduce
from trainer.bench import memory as bench_memory
from trainer.bench.allreduce import RankOptions, measure_allreduce, measure_as_rank, under_torchrun
from trainer.bench.dataloader import measure_loader
from trainer.bench.figures import allreduce_figures, memory_figures
from trainer.bench.memory import MemoryMeasured, copy_bytes, cpu_cache_bytes, measure_memory
from trainer.bench.nccl import EFA_NETWORK, NcclChoice, nccl_environment, parse_nccl_log
from trainer.bench.network import (
    allreduce_bound,
    allreduce_floor,
    bus_bandwidth,
    efa_gigabytes_per_second,
    nic_bound,
)
from trainer.bench.report import BenchReport, LoaderFigure, show
from trainer.bench.timing import Start, on_all, spread_ratio
from trainer.cli import main
from trainer.data.manifest import MANIFEST, DatasetName
from trainer.data.publish import describe, manifest_of
from trainer.devices.nvml import Nvml
from trainer.errors import BenchmarkFailed, DatasetError, DriverError
from trainer.exit_codes import Exit
from trainer.selfcheck import devices as selfcheck_devices
from trainer.selfcheck import torch_build
from trainer.selfcheck.devices import Devices
from trainer.selfcheck.render import console
from trainer.selfcheck.torch_build import TorchDevice
from trainer.store import Store

from tests.trainer.kit import Bench, run_config, worker_config, write_numbered_dataset
from tests.trainer.nvml_fake import FakeNvml, node

SOURCE = Path(__file__).resolve().parents[2] / "trainer" / "src"
GIB = 1 << 30


@pytest.fixture(autouse=True)
def ranks_find_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(SOURCE))


def wait_until(there: Callable[[], object], seconds: float = 60.0) -> None:
    give_up_at = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < give_up_at, "it never came"
        time.sleep(0.05)


def make_dataset(root: Path) -> Path:
    """A version as a finished sync leaves it."""
    folder = root / "numbers"
    write_numbered_dataset(folder)
    (folder / MANIFEST).write_text(describe(folder, DatasetName("numbers", "v1")).to_json())
    return folder


# --- memory


def test_a_copy_counts_what_is_read_and_what_is_written() -> None:
    found = MemoryMeasured("cpu", 10**9, (0.5, 1.0, 2.0), True)
    assert found.gigabytes_per_second == 2.0 and spread_ratio(found.seconds) == pytest.approx(1.5)
    (real,) = measure_memory(["cpu"], budget_seconds=0.05, copied_bytes=4 << 20)
    assert real.exact and real.copied_bytes == 4 << 20 and len(real.seconds) >= 5


def test_a_copy_that_is_not_the_original_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    real = torch.equal
    monkeypatch.setattr(
        torch, "equal", lambda a, b: real(a, b ^ (torch.arange(b.numel(), dtype=b.dtype) == 7).int())
    )
    (found,) = measure_memory(["cpu"], budget_seconds=0.0, copied_bytes=1 << 20)
    assert not found.exact


def test_a_copy_is_larger_than_the_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for index, size in enumerate(("32K", "1024K", "24M")):
        (tmp_path / f"index{index}").mkdir()
        (tmp_path / f"index{index}" / "size").write_text(f"{size}\n")
    assert cpu_cache_bytes(tmp_path) == 24 << 20 and cpu_cache_bytes(tmp_path / "none") == 0
    monkeypatch.setattr(bench_memory, "cpu_cache_bytes", lambda: 24 << 20)
    assert copy_bytes("cpu") == 96 << 20


def test_memory_is_held_to_the_gpus_own_floor() -> None:
    readings = Nvml(FakeNvml(node("H200"))).readings()
    device = TorchDevice("cuda:0", "NVIDIA H200", (9, 0), "GPU-0000")
    (figure,) = memory_figures([MemoryMeasured("cuda:0", 10**9, (0.001,), True)], [device], readings)
    assert figure.gigabytes_per_second == pytest.approx(2000) and figure.floor_gigabytes_per_second == 2332
    a100 = Nvml(FakeNvml(node("A100"))).readings()
    (figure,) = memory_figures([MemoryMeasured("cuda:0", 10**9, (0.001,), True)], [device], a100)
    assert figure.floor_warns_only  # nothing was published for the 40 GB one


# --- all-reduce


def test_two_processes_sum_exactly_over_gloo() -> None:
    found = measure_allreduce(["cpu"], [1 << 16, 1 << 20], budget_seconds=0.05)
    assert (found.backend, found.ranks, found.nodes, found.nccl) == ("gloo", 2, 1, None)
    assert [size.size_bytes for size in found.sizes] == [1 << 16, 1 << 20]
    assert all(size.exact and size.bus_gigabytes_per_second > 0 for size in found.sizes)
    (figure, _) = allreduce_figures(found, [TorchDevice("cpu", "2 threads")], (), None)
    assert figure.floor_gigabytes_per_second is None and figure.bound_gigabytes_per_second is None


def test_a_rank_that_dies_is_one_line_and_no_process_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "no-such-interface")
    with pytest.raises(DriverError, match=r"^rank \d ended with 1: .*no-such-interface"):
        measure_allreduce(["cpu"], [1 << 16], budget_seconds=0.01)


class Nonsense(RankOptions):
    def to_argument(self) -> str:
        return "{}"


def test_the_rank_that_failed_is_named_and_not_one_that_waited_for_it(tmp_path: Path) -> None:
    given = ("cpu", f"file://{tmp_path}/meeting", (1 << 16,), 0.01)
    ranks = [kind("gloo", given[0], rank, 2, *given[1:]) for rank, kind in enumerate((RankOptions, Nonsense))]
    with pytest.raises(DriverError, match=r"^rank 1 ended with 1: KeyError"):
        bench_allreduce._run(ranks, tmp_path, os.environ)


def test_no_rank_outlives_a_self_check_that_is_killed(tmp_path: Path) -> None:
    """The agent kills a self-check that takes too long; a rank that stayed would hold a GPU's memory."""
    code = "from trainer.bench.allreduce import measure_allreduce as m; m(['cpu'], [1 << 16], 300.0)"
    parent = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "TMPDIR": str(tmp_path)})
    children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")

    def ranks() -> list[Path]:
        return [Path("/proc") / pid for pid in children.read_text().split()]

    started: list[Path] = []
    try:
        wait_until(lambda: sum("torch" in (rank / "maps").read_text() for rank in ranks()) == 2)
        started = ranks()
        for rank in started:  # else they come to their end by themselves
            os.kill(int(rank.name), signal.SIGSTOP)
        parent.kill()
        parent.wait()
        wait_until(lambda: not any(map(_is_rank, started)), seconds=20)
    finally:
        parent.kill()
        for rank in filter(_is_rank, started):
            os.kill(int(rank.name), signal.SIGKILL)


def _is_rank(process: Path) -> bool:
    try:
        return "allreduce_rank" in (process / "cmdline").read_text()
    except OSError:  # it has ended
        return False


def test_a_rank_of_torchruns_has_nccl_write_down_what_it_chose(monkeypatch: pytest.MonkeyPatch) -> None:
    def run_rank(_: RankOptions) -> list[dict[str, object]]:
        Path(environment["NCCL_DEBUG_FILE"]).write_text(SOCKETS)
        assert environment["NCCL_DEBUG"] == "INFO"
        return [{"bytes": GIB, "seconds": [1.0], "exact": True}]

    environment = {"RANK": "0", "WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "8", "MASTER_ADDR": "x"}
    monkeypatch.setattr(bench_allreduce, "run_rank", run_rank)
    found = measure_as_rank("cuda:0", [GIB], 1.0, environment)
    assert (found.nodes, found.nccl and found.nccl.network) == (2, "Socket")


# --- all devices at once


def test_the_device_that_failed_is_named_and_not_those_that_waited_for_it() -> None:
    def job(device: str, start: Start) -> str:
        if device == "cuda:1":
            raise torch.OutOfMemoryError("CUDA out of memory")
        start()
        return device

    with pytest.raises(BenchmarkFailed, match=r"^cuda:1: CUDA out of memory$"):
        on_all(["cuda:0", "cuda:1", "cuda:2"], job)
    assert on_all(["cuda:0", "cuda:2"], job) == ["cuda:0", "cuda:2"]


def test_under_torchrun_the_ranks_are_torchruns_and_rank_0_reports(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "PYTHONPATH": str(SOURCE),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    assert not under_torchrun({}) and under_torchrun({"RANK": "0", "MASTER_ADDR": "x"})
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["-m", "trainer", "bench", "allreduce", "--json", "--size", "64K", "--seconds", "0.05"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    (report,) = (json.loads(line) for line in done.stdout.splitlines() if line.startswith("{"))
    (figure,) = report["allreduce"]
    assert (figure["ranks"], figure["nodes"], figure["exact"]) == (2, 1, True)


@pytest.mark.parametrize(
    ("nodes", "ranks", "nics", "nvlink", "bound"),
    [
        (2, 16, 50, None, 93.75),  # 2 x p4d
        (2, 16, 400, 460, 460),  # 2 x p5: NVLink is the narrower
        (2, 16, 400, None, 750),
        (4, 32, 400, None, 516.67),  # 4 x p6-b200
        (1, 8, 400, 228, 228),  # one node: NICs do not matter
        (1, 4, None, None, None),  # g5.12xlarge: no NVLink, nothing to hold it to
        (2, 2, None, None, None),
    ],
)
def test_the_bound_is_that_of_the_narrowest_link(
    nodes: int, ranks: int, nics: float | None, nvlink: float | None, bound: float | None
) -> None:
    found = allreduce_bound(nodes, ranks, nics, nvlink)
    assert found == (None if bound is None else pytest.approx(bound, abs=0.01))


def test_published_all_reduces_are_between_floor_and_bound() -> None:
    """ADA's figures at 16 GB: 2 x p4de 78, 2 x p5 487 (bounded near 480 by NVLink), 4 x p6-b200 377 GB/s."""
    for nodes, nics, published in ((2, 50, 78.3), (4, 400, 377)):
        bound = nic_bound(nics, nodes, 8 * nodes)
        floor = allreduce_floor(16 * GIB, bound)
        assert floor is not None and floor < published < bound
    assert allreduce_floor(128 << 20, 460) is None  # p5 has 59 % there: a floor names its size
    assert allreduce_floor(GIB, None) == 1.0


def test_bus_bandwidth_is_that_of_nccl_tests() -> None:
    assert bus_bandwidth(10**9, 1.0, 2) == 1.0 and bus_bandwidth(10**9, 1.0, 8) == 1.75


def test_the_nodes_own_efa_devices_are_read_and_others_are_not(tmp_path: Path) -> None:
    for name, vendor, rate in (
        ("rdmap79s0", "0x1d0f", "200 Gb/sec (4X HDR)"),
        ("rdmap80s0", "0x1d0f", "200 Gb/sec (4X HDR)"),
        ("mlx5_0", "0x15b3", "400 Gb/sec (4X NDR)"),
    ):
        (tmp_path / name / "device").mkdir(parents=True)
        (tmp_path / name / "ports" / "1").mkdir(parents=True)
        (tmp_path / name / "device" / "vendor").write_text(f"{vendor}\n")
        (tmp_path / name / "ports" / "1" / "rate").write_text(f"{rate}\n")
    assert efa_gigabytes_per_second(tmp_path) == 50.0
    assert efa_gigabytes_per_second(tmp_path / "none") is None


def test_nvlinks_figure_is_of_a_whole_node_only() -> None:
    from trainer.bench.allreduce import AllReduceMeasured, SizeMeasured

    def bound(ranks: int, gpus: str) -> float | None:
        devices = [TorchDevice(f"cuda:{n}", gpus, (9, 0), f"GPU-{n:04d}") for n in range(ranks)]
        found = AllReduceMeasured("nccl", ranks, 1, (SizeMeasured(GIB, (0.01,), True, ranks),))
        (figure,) = allreduce_figures(found, devices, Nvml(FakeNvml(node(gpus, ranks))).readings(), None)
        assert figure.floor_gigabytes_per_second is not None
        return figure.bound_gigabytes_per_second

    assert bound(8, "H100") == 460 and bound(2, "H100") is None and bound(4, "A10G") is None


# --- NCCL's log: lines as they were reported

P4D = """\
ip-10-216-178-255:416478:416478 [0] NCCL INFO Bootstrap : Using ens32:10.216.178.255<0>
ip-10-216-178-255:416478:416478 [0] NCCL INFO NET/Plugin: Failed to find ncclCollNetPlugin_v6 symbol.
ip-10-216-178-255:416478:416527 [0] NCCL INFO NET/OFI Using aws-ofi-nccl 1.4.0aws
ip-10-216-178-255:416478:416527 [0] NCCL INFO NET/OFI Selected Provider is efa
ip-10-216-178-255:416478:416527 [0] NCCL INFO Using network AWS Libfabric
NCCL version 2.9.9+cuda11.3
"""  # nccl 527
H200 = """\
8h200-2:6831:6840 [0] NCCL INFO NET/OFI Setting NCCL_TOPO_FILE environment variable to /proc/self/fd/150
8h200-2:6831:6840 [0] NCCL INFO PROFILER/Plugin: Could not find: libnccl-profiler.so.
8h200-2:6831:6840 [0] NCCL INFO Using network Libfabric
8h200-3:6310:6318 [0] NCCL INFO NET/OFI Selected Provider is efa (found 16 nics)
"""  # nccl 1597
SOCKETS = """\
ds-ml-01-0:17754:17754 [0] NCCL INFO Bootstrap : Using [0]lo:127.0.0.1<0>
ds-ml-01-0:17754:17754 [0] NCCL INFO NET/Plugin : No plugin found (libnccl-net.so).
ds-ml-01-0:17754:17754 [0] NCCL INFO NET/IB : No device found.
ds-ml-01-0:17754:17754 [0] NCCL INFO NET/Socket : Using [0]lo:127.0.0.1<0>
ds-ml-01-0:17754:17754 [0] NCCL INFO Using network Socket
NCCL version 2.4.8+cuda10.1
"""  # nccl 352
NO_PROVIDER = """\
ip-192-168-20-4:42:42 [0] NCCL INFO Bootstrap : Using [0]ens5:192.168.20.4<0>
ip-192-168-20-4:42:42 [0] get_ofi_provider:312 NCCL WARN NET/OFI Could not find any optimal provider
ip-192-168-20-4:42:42 [0] NCCL INFO Using network Socket
"""  # nccl 229


@pytest.mark.parametrize(
    ("log", "choice", "over_efa"),
    [
        (P4D, NcclChoice("2.9.9+cuda11.3", "AWS Libfabric", "efa", None, "ens32"), True),
        (H200, NcclChoice(None, "Libfabric", "efa", 16), True),
        (SOCKETS, NcclChoice("2.4.8+cuda10.1", "Socket", None, None, "lo"), False),
        (
            NO_PROVIDER,
            NcclChoice(
                network="Socket", interface="ens5", warning="NET/OFI Could not find any optimal provider"
            ),
            False,
        ),
        ("", NcclChoice(), False),
    ],
)
def test_what_nccl_chose_is_read_from_its_own_words(log: str, choice: NcclChoice, over_efa: bool) -> None:
    assert parse_nccl_log(log.splitlines()) == choice
    assert choice.over_efa == over_efa


def test_a_later_nccl_says_it_in_other_words() -> None:
    line = "ip-10-0-0-1:85:85 [0] NCCL INFO Assigned NET plugin Libfabric to comm"
    assert parse_nccl_log([line]).network == "Libfabric"


def test_where_efa_is_promised_a_fall_back_is_an_error() -> None:
    assert nccl_environment(32) == {"NCCL_NET": EFA_NETWORK}
    assert nccl_environment(0) == {} and nccl_environment(1, nodes=1) == {}


def test_workers_of_several_nodes_are_held_to_efa_unless_told_otherwise(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "artifacts", Store())
    alone = worker_config(bench, run_config(), 1, 1)
    promise = alone.document.promise.model_copy(update={"efa_count": 4})
    document = alone.document.model_copy(update={"promise": promise})
    twice = alone.generation.model_copy(update={"members": list(alone.generation.members) * 2})
    config = alone.model_copy(update={"document": document, "generation": twice})
    assert worker_environment(config, tmp_path, {})["NCCL_NET"] == EFA_NETWORK
    assert worker_environment(config, tmp_path, {"NCCL_NET": "Socket"})["NCCL_NET"] == "Socket"
    assert "NCCL_NET" not in worker_environment(alone, tmp_path, {})


# --- the loader


def test_samples_a_second_and_the_wait_for_them(tmp_path: Path) -> None:
    folder = make_dataset(tmp_path)
    manifest = manifest_of(folder)
    fast = measure_loader(folder, manifest, batch_size=4, workers=0, device="cpu", budget_seconds=0.05)
    assert fast.batches >= 5 and fast.samples_per_second > 0 and 0 < fast.wait_ratio <= 1
    slow = measure_loader(folder, manifest, 4, 0, "cpu", budget_seconds=0.05, step_seconds=0.05)
    assert slow.wait_ratio < fast.wait_ratio  # the step hides the reading
    with pytest.raises(DatasetError, match="make no batch of 100000"):
        measure_loader(folder, manifest, 100_000, 0, "cpu", 0.05)


# --- the commands


def run_cli(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = main(["bench", *arguments])
    return code, capsys.readouterr().out


def test_a_command_prints_a_table_or_json_and_writes_prometheus_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prometheus = tmp_path / "bench.prom"
    code, out = run_cli(capsys, "matmul", "--seconds", "0.05", "--json", "--prometheus", str(prometheus))
    report = BenchReport.from_json(out)
    assert code == 0 and report.name == "matmul" and report.matmul[0].dtype == "fp32"
    families = {f.name: f for f in text_string_to_metric_families(prometheus.read_text())}
    (sample,) = families["trainer_bench_matmul_tflops"].samples
    assert (
        sample.labels == {"device": "cpu", "dtype": "fp32"} and sample.value == report.matmul[0].tflops_median
    )
    assert families["trainer_bench_matmul_error_ratio"].samples[0].value < 1
    assert os.listdir(tmp_path) == ["bench.prom"]  # nothing half-written stays
    code, out = run_cli(capsys, "matmul", "--seconds", "0.05")
    assert code == 0 and "fp32" in out and "exact and repeatable" in out


def test_the_loaders_command_tells_the_wait_only_where_a_step_is_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, prometheus = make_dataset(tmp_path), tmp_path / "p.prom"
    common = (
        "dataloader",
        str(folder),
        "--batch-size",
        "4",
        "--seconds",
        "0.05",
        "--prometheus",
        str(prometheus),
    )
    code, out = run_cli(capsys, *common)
    assert code == 0 and "samples/s" in out and "waiting" not in out
    assert "trainer_bench_data_wait_ratio" not in prometheus.read_text()
    _, out = run_cli(capsys, *common, "--step-ms", "5")
    assert "of the time waiting" in out and "trainer_bench_data_wait_ratio" in prometheus.read_text()


def test_the_loaders_command_takes_shards_that_were_not_published(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_numbered_dataset(tmp_path / "numbers")
    code, out = run_cli(
        capsys, "dataloader", str(tmp_path / "numbers"), "--batch-size", "4", "--seconds", "0.05"
    )
    assert code == 0 and out.startswith("numbers@local: ")
    assert main(["bench", "dataloader", str(tmp_path / "none")]) == Exit.CONFIGURATION
    assert "none is not a folder; give the folder that holds the shards" in capsys.readouterr().err


def test_a_slow_loader_is_told_by_digits_that_mean_something(capsys: pytest.CaptureFixture[str]) -> None:
    loader = LoaderFigure(
        dataset="text@v1",
        batch_size=1,
        workers=0,
        batches=5,
        samples_per_second=0.4567,
        bytes_per_second=12_345,
        step_seconds=0,
        data_wait_ratio=1,
    )
    show(BenchReport(name="dataloader", seconds=1, loader=loader), console())
    assert "text@v1: 0.457 samples/s, 0.0123 MB/s" in capsys.readouterr().out


def test_a_size_is_read_with_its_unit(capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("0", "x", "1T", "-4M"):
        with pytest.raises(SystemExit):
            main(["bench", "allreduce", f"--size={text}"])
        assert "a size such as 64M or 1G" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ("matmul", "--seconds=-1"),
        ("memory", "--seconds=nan"),
        ("dataloader", "x", "--batch-size=0"),
        ("dataloader", "x", "--workers=-1"),
        ("dataloader", "x", "--step-ms=-1"),
    ],
)
def test_a_number_that_makes_no_sense_is_refused(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    with pytest.raises(SystemExit):
        main(["bench", *arguments])
    assert arguments[-1].split("=")[1] in capsys.readouterr().err


def test_a_folder_that_is_not_there_is_told_before_anything_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "memory", "--prometheus", str(tmp_path / "none" / "x.prom")]) == Exit.CONFIGURATION
    assert "its folder is not there" in capsys.readouterr().err


def test_gpus_that_cuda_does_not_start_are_no_cpu(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else a node with a broken driver would have its CPU measured, and pass."""
    devices = Devices(tuple(Nvml(FakeNvml(node("H100", 8))).readings()))
    cpu, fault = [TorchDevice("cpu", "2 threads")], "Error 802: system not yet initialized"
    monkeypatch.setattr(torch_build, "torch_devices", lambda: (cpu, fault))
    monkeypatch.setattr(selfcheck_devices, "check_devices", lambda *_: ([], devices))
    assert main(["bench", "memory"]) == Exit.DRIVER
    assert "torch sees 0 of 8 GPUs" in (said := capsys.readouterr().err) and "fabric manager" in said


def test_a_bad_finding_is_the_commands_exit_code() -> None:
    given: dict[str, Any] = {"check": "memory", "message": "m"}
    report = BenchReport.model_validate(
        {"name": "memory", "seconds": 1.0, "findings": [{**given, "verdict": "fail", "exitCode": 13}]}
    )
    assert report.exit_code == 13 and BenchReport(name="memory", seconds=1.0).exit_code == 0
