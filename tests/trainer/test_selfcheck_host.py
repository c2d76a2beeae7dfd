"""The self-check of the machine around the GPUs: driver, fabric manager, container, kernel log, disks, clock."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from trainer.contracts.node_document import Promise, Scratch
from trainer.devices.nvml import Nvml
from trainer.devices.xid_actions import xid_action
from trainer.disks.scratch import MODEL
from trainer.exit_codes import Exit
from trainer.selfcheck.devices import check_devices
from trainer.selfcheck.driver import check_container, check_driver, library_version
from trainer.selfcheck.fabric import UNIT, WAIT_SECONDS, check_fabric, has_nvswitch
from trainer.selfcheck.host import check_clock, check_disk, check_scratch, judge_clock
from trainer.selfcheck.report import Finding
from trainer.selfcheck.shared_memory import check_leftovers, check_shared_memory, remove_leftovers
from trainer.selfcheck.view import Done, Host
from trainer.selfcheck.xids import check_xids

from tests.trainer.host_fake import FakeHost, gpu_host, pci
from tests.trainer.nvml_fake import MISMATCH, FakeNvml, h100

P5 = Promise(instance_type="p5.48xlarge", accelerator="nvidia", gpu_model="H100", gpu_count=8)
G6 = Promise(instance_type="g6.xlarge", accelerator="nvidia", gpu_model="L4", gpu_count=1)
CPU = Promise(instance_type="local", accelerator="none", gpu_count=0)


def verdict(finding: Finding | None) -> tuple[str, int | None]:
    assert finding is not None
    if finding.verdict in ("fail", "unknown"):
        assert finding.cause and finding.action and finding.exit_code, (
            "a bad finding says why, what to do, and a code"
        )
    return finding.verdict, finding.exit_code


def active(word: str = "active") -> Done:
    return Done(0 if word == "active" else 3, f"{word}\n")


# --- driver and device files


def test_a_driver_with_a_file_for_each_gpu_passes() -> None:
    found = check_driver(P5, gpu_host(8))
    assert verdict(found) == ("pass", None) and "580.95.05" in found.message
    assert (
        check_driver(CPU, FakeHost()).verdict == "info" and check_driver(None, FakeHost()).verdict == "info"
    )


def test_what_is_missing_decides_between_device_driver_and_unknown() -> None:
    one_short = gpu_host(7)
    assert verdict(check_driver(P5, one_short)) == ("fail", Exit.DEVICE)  # not on the bus: replace
    cpu_machine = gpu_host(0)
    cpu_machine.files |= pci("0000:00:03.0", "0x030000", vendor="0x1d0f")
    assert verdict(check_driver(P5, cpu_machine)) == ("fail", Exit.DEVICE)
    hidden = gpu_host(8)  # a bus that cannot be seen says nothing
    hidden.files = {path: text for path, text in hidden.files.items() if not path.startswith("/sys")}
    assert verdict(check_driver(P5, hidden)) == ("pass", None)
    no_module = gpu_host(8)
    del no_module.files["/proc/driver/nvidia/version"]
    assert verdict(check_driver(P5, no_module)) == ("fail", Exit.DRIVER)
    no_file = gpu_host(8)
    del no_file.files["/dev/nvidia7"]
    assert verdict(check_driver(P5, no_file)) == ("unknown", Exit.DRIVER)  # the GPU may be sound
    no_uvm = gpu_host(8)
    del no_uvm.files["/dev/nvidia-uvm"]
    assert "nvidia-uvm" in check_driver(P5, no_uvm).message


def test_another_vendors_device_and_a_switch_are_no_gpu() -> None:
    host = gpu_host(0, switches=4)
    host.files |= pci("0000:00:03.0", "0x030000", vendor="0x1d0f")
    assert check_driver(P5, host).evidence["onBus"] == 0


def test_driver_and_library_of_different_versions_are_both_named() -> None:
    """shine-cluster 30, 50; aws-parallelcluster 4127: an unattended upgrade without a reboot (error 803)."""
    host = gpu_host(8)
    host.files["/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"] = ""
    host.files["/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.126.09"] = ""
    assert library_version(host) == "580.126.09"
    (found,), devices = check_devices(P5, host, lambda: Nvml(FakeNvml([], init_error=MISMATCH)))
    assert verdict(found) == ("unknown", Exit.DRIVER) and not devices.readings
    assert "580.95.05" in (found.cause or "") and "580.126.09" in (found.cause or "")
    assert "unattended" in (found.action or "")


def test_devices_taken_from_a_container_are_unknown_not_bad() -> None:
    """nvidia-container-toolkit 48, 251, 1227: the files are there, and the control group forgot them."""
    host = gpu_host(8)
    host.files["/.dockerenv"] = ""
    assert verdict(check_container(P5, host)) == ("pass", None)
    host.refused["/dev/nvidiactl"] = "Operation not permitted"
    found = check_container(P5, host)
    assert verdict(found) == ("unknown", Exit.DRIVER) and "Operation not permitted" in (
        found.message if found else ""
    )
    assert verdict(check_container(P5, gpu_host(8))) == ("info", None)  # no container: does not apply
    assert check_container(CPU, host) is None


# --- fabric manager


def fabric(host: FakeHost, states: Sequence[str | None] = (), driver: str | None = "580.95.05") -> Finding:
    return check_fabric(P5, host, lambda: states, driver)


def test_a_fabric_is_looked_for_where_the_type_has_switches() -> None:
    assert (
        has_nvswitch(P5, FakeHost())
        and not has_nvswitch(G6, FakeHost())
        and not has_nvswitch(CPU, FakeHost())
    )
    assert has_nvswitch(None, gpu_host(8, switches=4))
    one = P5.model_copy(update={"instance_type": "p5.4xlarge", "gpu_count": 1})
    assert not has_nvswitch(one, FakeHost())
    assert verdict(check_fabric(G6, gpu_host(1), list, None)) == ("info", None)


def test_a_fabric_manager_that_starts_late_is_waited_for() -> None:
    """pytorch 35710; TensorRT-LLM 398: error 802 in the first minutes."""
    host = gpu_host(8)
    host.commands = {
        f"systemctl is-active {UNIT}": lambda: active("active" if host.now >= 60 else "activating"),
        "nv-fabricmanager --version": Done(0, "Fabric Manager version is : 580.95.05\n"),
    }
    found = fabric(host)
    assert verdict(found) == ("pass", None) and "after 60 s" in found.message


@pytest.mark.parametrize(
    ("word", "cause"), [("failed", "failed"), ("inactive", "not started"), ("unknown", "not installed")]
)
def test_a_fabric_manager_that_never_comes_ends_after_three_minutes(word: str, cause: str) -> None:
    """ci-infra PR 552: started from cloud-init it gave up, and the node never joined."""
    host = gpu_host(8, commands={f"systemctl is-active {UNIT}": active(word)})
    found = fabric(host)
    assert verdict(found) == ("fail", Exit.DRIVER) and cause in (found.cause or "")
    assert "802" in (found.cause or "") and "journalctl" in (found.action or "")
    assert WAIT_SECONDS <= host.now < WAIT_SECONDS + 10


def test_where_systemd_does_not_run_nobody_is_waited_for() -> None:
    told = "System has not been booted with systemd as init system (PID 1). Can't operate.\n"
    host = gpu_host(8, commands={f"systemctl is-active {UNIT}": Done(1, told)})
    assert verdict(fabric(host)) == ("info", None) and host.now == 0


def test_the_gpus_own_word_on_the_fabric_counts() -> None:
    host = gpu_host(8, commands={f"systemctl is-active {UNIT}": active()})
    late = fabric(host, ["completed"] * 7 + ["in progress"])
    assert verdict(late) == ("fail", Exit.DRIVER) and "GPU 7" in late.message
    in_container = gpu_host(8)  # no systemctl there
    assert verdict(fabric(in_container, ["completed"] * 8)) == ("pass", None)
    assert verdict(fabric(gpu_host(8), [None] * 8)) == ("info", None)  # nobody can tell


def test_a_fabric_manager_of_another_version_is_named() -> None:  # gpu-operator 544
    commands: dict[str, Any] = {
        f"systemctl is-active {UNIT}": active(),
        "nv-fabricmanager --version": Done(0, "Fabric Manager version is : 570.86.15\n"),
    }
    found = fabric(gpu_host(8, commands=commands))
    assert verdict(found) == ("fail", Exit.DRIVER)
    assert "570.86.15" in found.message and "580.95.05" in found.message


# --- XIDs since boot


def log(*xids: tuple[str, int]) -> str:
    lines = [f"[ 12.1] ip kernel: NVRM: Xid (PCI:{place}): {code}, pid=1, text" for place, code in xids]
    return "\n".join(["[ 9.8] ip kernel: NVRM: loading NVIDIA UNIX Open Kernel Module", *lines])


def xids(
    *found: tuple[str, int], before: Sequence[tuple[str, int]] = (), recovery: int | None = 1
) -> list[Finding]:
    def journal(text: str) -> Done:
        return Done(0, text)

    gpus = h100(2)
    for gpu in gpus:
        if recovery is None:
            gpu.absent.add("nvmlDeviceGetFieldValues")
        else:
            gpu.recovery = recovery
    host = FakeHost(
        commands={
            "journalctl --dmesg --quiet --output=short-monotonic --boot 0": journal(log(*found)),
            "journalctl --dmesg --quiet --output=short-monotonic --boot -1": journal(log(*before)),
        }
    )
    return check_xids(Nvml(FakeNvml(gpus)).readings(), host)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (13, ("info", None)),  # of the program that ran
        (31, ("info", None)),
        (43, ("info", None)),
        (119, ("fail", Exit.RESET)),
        (79, ("fail", Exit.REBOOT)),
        (54, ("fail", Exit.DEVICE)),
        (48, ("warning", None)),  # memory's own check decides
        (74, ("warning", None)),  # NVLink's
        (999, ("warning", None)),  # a code of a driver to come
    ],
)
def test_an_xid_asks_for_what_the_catalogue_says(code: int, expected: tuple[str, int | None]) -> None:
    (found,) = xids(("0000:11:00", code), recovery=None)
    assert (found.verdict, found.exit_code) == expected
    assert f"XID {code} on GPU 1" in found.message and found.evidence["count"] == 1


def test_the_drivers_own_recovery_action_goes_before_the_catalogue() -> None:
    (found,) = xids(("0000:10:00", 119), recovery=0)
    assert (found.verdict, found.exit_code) == (
        "warning",
        None,
    ) and "asks for nothing any more" in found.message
    (elsewhere,) = xids(("0000:ff:00", 119), recovery=0)  # a GPU that NVML does not show
    assert elsewhere.exit_code == Exit.RESET and "PCI 0000:ff:00" in elsewhere.message


def test_a_gpu_that_falls_off_the_bus_again_after_a_reboot_is_replaced() -> None:
    (found,) = xids(("0000:10:00", 79), before=[("0000:10:00", 79)], recovery=None)
    assert found.exit_code == Exit.DEVICE and "in the boot before" in found.message


def test_xids_are_counted_by_gpu_and_code() -> None:
    found = xids(("0000:10:00", 31), ("0000:10:00", 31), ("0000:11:00", 31))
    assert [finding.evidence["count"] for finding in found] == [2, 1] and "2 times" in found[0].message


def test_no_xid_and_no_log_are_different_things() -> None:
    (none,) = xids()
    assert none.verdict == "pass"
    (blind,) = check_xids([], FakeHost())
    assert blind.verdict == "info" and "not known" in blind.message
    # Who may not read the journal gets an empty one, and no error: a boot without any kernel line there is none.
    (shut,) = check_xids(
        [], FakeHost(commands={"journalctl": Done(0, ""), "dmesg": Done(1, "not permitted")})
    )
    assert shut.verdict == "info" and "not known" in shut.message
    (by_dmesg,) = check_xids([], FakeHost(commands={"dmesg": Done(0, log(("0000:10:00", 79)))}))
    assert by_dmesg.exit_code == Exit.REBOOT


def test_every_listed_code_has_one_action() -> None:
    assert [xid_action(code) for code in (8, 40, 41, 42, 46, 79, 81, 147, 152, 4711)] == [
        *(
            "restart",
            "restart",
            "restart",
            "unknown",
            "reset",
            "reboot",
            "replace",
            "inspect",
            "watch",
            "unknown",
        )
    ]


# --- shared memory, disks, clock


def test_small_shared_memory_matters_where_several_processes_use_it() -> None:
    """nccl 290, 342, 525; pytorch 5040, 1355: docker's 64 MiB end in a bus error."""
    docker = FakeHost(sizes_mib={"/dev/shm": 64})
    several = check_shared_memory(8, docker)
    assert verdict(several) == ("fail", Exit.CONFIGURATION) and "--ipc=host" in (several.action or "")
    assert verdict(check_shared_memory(1, docker)) == ("warning", None)
    assert verdict(check_shared_memory(8, FakeHost(sizes_mib={"/dev/shm": 8192}))) == ("pass", None)
    assert verdict(check_shared_memory(8, FakeHost())) == ("info", None)


def test_what_a_killed_nccl_left_is_removed_and_what_is_in_use_stays(tmp_path: Path) -> None:  # llm-d 352
    shm, processes = tmp_path / "shm", tmp_path / "proc"
    (processes / "17").mkdir(parents=True)
    shm.mkdir()
    for name in ("nccl-left", "nccl-used", "other"):
        (shm / name).touch()
    (processes / "17" / "maps").write_text(
        f"7f00-7f01 rw-s 00000000 00:19 42    {shm}/nccl-used\n7f02-7f03 r--p 0 0 0\n"
    )
    removed = remove_leftovers(shm, processes)
    assert removed == ["nccl-left"] and sorted(os.listdir(shm)) == ["nccl-used", "other"]
    (told,) = check_leftovers(removed)
    assert told.verdict == "info" and check_leftovers([]) == []
    assert remove_leftovers(tmp_path / "none", processes) == []


def test_a_full_disk_is_found_before_hours_of_work() -> None:
    assert verdict(check_disk("/x", FakeHost(sizes_mib={"/x": 50 * 1024}))) == ("pass", None)
    assert verdict(check_disk("/x", FakeHost(sizes_mib={"/x": 5 * 1024}))) == ("warning", None)
    full = check_disk("/x", FakeHost(sizes_mib={"/x": 100}))
    assert (full.verdict, full.exit_code) == ("fail", Exit.CONFIGURATION)


def test_scratch_space_is_where_the_document_says_or_it_is_told() -> None:
    scratch = Scratch(owner="node", path="/opt/scratch")
    disks = {f"/sys/block/nvme{n}n1/device/model": f"{MODEL}          \n" for n in (1, 2)}
    disks["/sys/block/nvme0n1/device/model"] = "Amazon Elastic Block Store\n"
    mounted = FakeHost(files=disks, mounts={"/opt/scratch"}, sizes_mib={"/opt/scratch": 1 << 20})
    assert verdict(check_scratch(scratch, mounted)) == ("pass", None)
    unmounted = check_scratch(scratch, FakeHost(files=disks))
    assert verdict(unmounted) == ("warning", None)
    assert unmounted and unmounted.evidence["disks"] == ["nvme1n1", "nvme2n1"]
    assert "trainer-disks" in (unmounted.cause or "")
    unused = check_scratch(None, FakeHost(files=disks))
    assert unused and unused.verdict == "info" and "2 instance-store disks" in unused.message
    assert check_scratch(None, FakeHost()) is None


def test_a_clock_far_off_is_named_before_aws_refuses_every_call() -> None:
    assert judge_clock(3.0).verdict == "pass"
    assert judge_clock(-120.0).verdict == "warning"
    off = judge_clock(1000.0)
    assert (off.verdict, off.exit_code) == ("fail", Exit.S3) and "1000 s ahead of S3" in off.message
    assert (
        check_clock("http://127.0.0.1:1/", FakeHost()).verdict == "info"
    )  # nobody there: not compared, not bad


def test_chrony_is_asked_where_s3_does_not_answer() -> None:
    answer = "A9FEA97B,169.254.169.123,4,1764500000.1,1200.5,0.000003,0.00001,1,2,3,4,5,6,Normal\n"
    off = check_clock("http://127.0.0.1:1/", FakeHost(commands={"chronyc -c tracking": Done(0, answer)}))
    assert (off.verdict, off.exit_code) == (
        "fail",
        Exit.S3,
    ) and "1200 s behind the time service" in off.message
    fresh = "00000000,,0,0.0,0.000000000,0.0,0.0,0,0,0,0,1.0,0.0,Not synchronised\n"
    early = check_clock(None, FakeHost(commands={"chronyc -c tracking": Done(0, fresh)}))
    assert early.verdict == "info" and "not synchronised yet" in early.message  # its 0 is no offset
    broken = check_clock(None, FakeHost(commands={"chronyc -c tracking": Done(0, "nonsense")}))
    assert broken.verdict == "info"


def test_who_answers_in_another_protocol_is_no_clock() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=_answer, args=(server, b"SSH-2.0-OpenSSH_9.6\r\n"))
        thread.start()
        found = check_clock(f"http://127.0.0.1:{server.getsockname()[1]}/", FakeHost())
        thread.join()
    assert found.verdict == "info" and "gave no date" in found.message


def _answer(server: socket.socket, words: bytes) -> None:
    connection, _ = server.accept()
    with connection:
        connection.recv(1 << 16)
        connection.sendall(words)


def test_this_machine_is_looked_at_without_a_fault(tmp_path: Path) -> None:
    host = Host()
    assert host.read(str(tmp_path / "none")) is None and host.names(str(tmp_path / "none")) == []
    assert host.run("no-such-program-here") is None and host.run("true") == Done(0, "")
    assert host.total_mib(str(tmp_path)) and host.free_gib(str(tmp_path)) is not None
    assert host.opens(str(tmp_path / "none")) == "No such file or directory"
    assert host.is_mount("/") and not host.is_mount(str(tmp_path))
