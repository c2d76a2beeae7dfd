"""What the script leaves to systemd: the agent's unit and its root helper."""

import json
import os
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest
from trainer.exit_codes import Exit

from components.bootstrap.user_data import BootVariables
from tests.unit.boot_bench import AUTO_SCALING_GROUP, INSTANCE, Bench, minimal_release, publish

MAX_EXPOSURE = 3.0  # of `systemd-analyze security`, from 0 to 10


@pytest.fixture(scope="module")
def booted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Bench, BootVariables, list[str]]:
    """A node after its boot, what it was told, and the calls that it made; all tests here share it."""
    bench = Bench(tmp_path_factory.mktemp("node"))
    boot = publish(bench, minimal_release(bench.folder))
    done = bench.run(boot)
    assert done.returncode == 0, done.stdout + done.stderr
    return bench, boot, bench.calls


@pytest.fixture
def bench(booted: tuple[Bench, BootVariables, list[str]]) -> Bench:
    return booted[0]


def unit_file(bench: Bench) -> Path:
    return bench.root / "etc/systemd/system/trainer.service"


@pytest.fixture
def unit(bench: Bench) -> dict[str, list[str]]:
    """Directive -> its values, in the order of the file."""
    found: dict[str, list[str]] = {}
    for line in unit_file(bench).read_text().splitlines():
        if "=" in line:
            name, value = line.split("=", 1)
            found.setdefault(name, []).append(value)
    return found


@pytest.fixture
def analyze() -> str:
    found = shutil.which("systemd-analyze")
    assert found, "systemd-analyze is not installed: apt-get install systemd-container"
    return found


def exposure(analyze: str, file: Path) -> float:
    command = [analyze, "security", "--offline=true", "--no-pager", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    found = re.search(r"Overall exposure level for trainer\.service: ([\d.]+)", done.stdout)
    assert found, done.stdout + done.stderr
    return float(found[1])


class TestTheUnit:
    """Without a start hook the agent becomes a systemd service of its own user."""

    def test_the_service_is_enabled_once_its_unit_is_known(
        self, booted: tuple[Bench, BootVariables, list[str]]
    ) -> None:
        bench, _, calls = booted
        assert [call for call in calls if call.startswith(("systemctl", "useradd"))] == [
            f"useradd --system --user-group --home-dir {bench.root}/var/lib/trainer --no-create-home "
            "--shell /usr/sbin/nologin trainer",
            "systemctl daemon-reload",
            "systemctl enable --now trainer.service",
        ]

    def test_a_second_run_does_not_reload_systemd(
        self, booted: tuple[Bench, BootVariables, list[str]]
    ) -> None:
        bench, boot, _ = booted
        before = len(bench.calls)
        assert bench.run(boot).returncode == 0
        again = [call for call in bench.calls[before:] if call.startswith("systemctl")]
        assert again == ["systemctl enable --now trainer.service"]

    def test_it_starts_the_agent_with_the_document_and_the_state_folder(
        self, bench: Bench, unit: dict[str, list[str]]
    ) -> None:
        assert unit["ExecStart"] == [
            f"{bench.root}/opt/trainer/current/bin/trainer agent "
            f"--document {bench.root}/etc/trainer/node.json --state-dir {bench.root}/var/lib/trainer"
        ]

    def test_every_cache_lies_in_the_state_folder_which_is_all_that_the_agent_may_write(
        self, bench: Bench, unit: dict[str, list[str]]
    ) -> None:
        state = f"{bench.root}/var/lib/trainer"
        environment = dict(pair.split("=", 1) for line in unit["Environment"] for pair in line.split())
        caches = {name: value for name, value in environment.items() if not name.startswith("AWS_")}
        assert set(caches) == {"HOME", "XDG_CACHE_HOME", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"}
        assert all(value == state or value.startswith(f"{state}/cache") for value in caches.values())
        assert unit["StateDirectory"] == ["trainer"] and unit["ProtectSystem"] == ["strict"]
        assert "ReadWritePaths" not in unit

    def test_the_agent_has_its_own_user_and_the_groups_that_the_image_knows(
        self, unit: dict[str, list[str]]
    ) -> None:
        assert unit["User"] == ["trainer"] and unit["NoNewPrivileges"] == ["yes"]
        assert unit["CapabilityBoundingSet"] == [""]
        # Not `render`, which this image lacks: a unit with an unknown group does not start.
        assert unit["SupplementaryGroups"][0].split() == ["systemd-journal", "video"]

    def test_it_reaches_the_devices_of_training_and_no_others(self, unit: dict[str, list[str]]) -> None:
        assert unit["DevicePolicy"] == ["closed"]
        assert unit["DeviceAllow"] == [
            "char-nvidia* rw",
            "char-infiniband_verbs rw",
            "char-gdrdrv rw",
        ]

    def test_what_cuda_nccl_and_efa_need_is_left_open(self, unit: dict[str, list[str]]) -> None:
        assert unit["LimitMEMLOCK"] == ["infinity"]
        closed = {"PrivateDevices", "MemoryDenyWriteExecute", "PrivateNetwork", "PrivateUsers", "ProcSubset"}
        assert not closed & set(unit)
        assert unit["RestrictAddressFamilies"] == ["AF_UNIX AF_INET AF_INET6 AF_NETLINK"]

    def test_the_device_files_are_made_before_the_device_policy_is_read(
        self, bench: Bench, unit: dict[str, list[str]]
    ) -> None:
        devices = unit_file(bench).with_name("trainer-devices.service").read_text()
        assert "ExecStart=-/usr/bin/nvidia-modprobe -c 0 -u" in devices and "User=" not in devices
        assert "TimeoutStartSec=60" in devices
        for order in ("Wants", "After"):
            assert "trainer-devices.service" in unit[order][0].split()

    def test_disks_are_put_together_at_each_boot_before_the_agent_starts(
        self, bench: Bench, unit: dict[str, list[str]]
    ) -> None:
        """Reports B17 (karpenter#5981): a RAID mounted after user data ran; B18 (scylladb#6184, #8907): one that was
        made once, and an fstab line that kept the host from booting.
        """
        for order in ("Wants", "After"):
            assert "trainer-disks.service" in unit[order][0].split()
        # Wanted, not required: the agent starts on the root disk where there is no scratch space.
        assert not {"Requires", "BindsTo", "RequiresMountsFor"} & set(unit)
        disks = unit_file(bench).with_name("trainer-disks.service").read_text()
        assert (
            f"ExecStart={bench.root}/opt/trainer/current/bin/python -I -m trainer.disks "
            f"--document {bench.root}/etc/trainer/node.json\n" in disks
        )
        assert "Type=oneshot" in disks and "User=" not in disks
        # A mount's own process is one of this unit's. When a start fails, and one mount is enough for that, systemd
        # ends all that is left of the unit, which would take the good mounts with it (systemd.kill, KillMode=).
        assert "RemainAfterExit=yes\n" in disks and "KillMode=process\n" in disks
        # With the time to boot before it this is less than the launching hook's 900 s.
        assert "TimeoutStartSec=480\n" in disks and "TimeoutStopSec=15\n" in disks
        assert not (bench.root / "etc/fstab").exists()

    def test_scratch_space_is_the_agents_to_write_and_need_not_be_there(
        self, tmp_path: Path, analyze: str
    ) -> None:
        scratched = Bench(tmp_path)
        boot = publish(
            scratched, minimal_release(tmp_path), scratch={"owner": "image", "path": "/opt/dlami/nvme"}
        )
        assert scratched.run(boot).returncode == 0
        lines = unit_file(scratched).read_text().splitlines()
        assert [line for line in lines if line.startswith("ReadWrite")] == ["ReadWritePaths=-/opt/dlami/nvme"]
        assert exposure(analyze, unit_file(scratched)) < MAX_EXPOSURE

    def test_only_what_a_restart_can_mend_is_restarted(self, unit: dict[str, list[str]]) -> None:
        of_the_agent = {code for code in Exit if not code.name.startswith("BOOT_")}
        assert not_restarted(unit) == of_the_agent - {Exit.DONE, Exit.S3, Exit.PEER_LOST, Exit.BUG}
        assert unit["Restart"] == ["on-failure"] and unit["StartLimitBurst"] == ["4"]

    def test_a_worker_that_is_killed_for_memory_is_the_agents_to_restart(
        self, unit: dict[str, list[str]]
    ) -> None:
        assert unit["OOMPolicy"] == ["continue"]

    def test_a_crash_of_a_worker_leaves_no_trace_of_its_environment(self, unit: dict[str, list[str]]) -> None:
        """Secrets are in it. systemd-coredump and apport write it down also where core dumps have the size 0; the
        size 1 is the one at which the kernel calls neither (fs/coredump.c, coredump_pipe).
        """
        assert unit["LimitCORE"] == ["1"]

    def test_the_stop_limit_leaves_the_agent_time_to_save(self, unit: dict[str, list[str]]) -> None:
        assert unit["TimeoutStopSec"] == ["110"] and unit["KillMode"] == ["mixed"]


def not_restarted(unit: dict[str, list[str]]) -> set[Exit]:
    return {Exit(int(code)) for code in unit["RestartPreventExitStatus"][0].split()}


class TestItsSecurity:
    """As systemd itself judges the unit; docs/security.md tells why each line is there."""

    def test_its_exposure_is_below_three(self, bench: Bench, analyze: str) -> None:
        assert exposure(analyze, unit_file(bench)) < MAX_EXPOSURE

    def test_systemd_knows_every_directive(self, bench: Bench, analyze: str) -> None:
        names = ("trainer.service", "trainer-devices.service", "trainer-disks.service")
        units = [str(unit_file(bench).with_name(name)) for name in names]
        done = subprocess.run([analyze, "verify", *units], capture_output=True, text=True, timeout=60)
        assert not re.findall(
            r"^.*trainer.*(?:Unknown|Failed to parse|Invalid).*$", done.stderr, re.MULTILINE
        )

    def test_every_line_that_still_counts_against_it_has_its_reason_in_the_documentation(
        self, bench: Bench, analyze: str
    ) -> None:
        command = [analyze, "security", "--offline=true", "--json=short", str(unit_file(bench))]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        open_ = {str(row["name"]) for row in json.loads(done.stdout) if float(row.get("exposure") or 0) > 0}
        text = (Path(__file__).parents[2] / "docs/security.md").read_text()
        missing = {name for name in open_ if f"| `{name.rstrip('=')}` |" not in text.replace("\\|", "|")}
        assert open_ and not missing


class TestTheRootHelper:
    """What root does when the agent has ended, by the agent's exit code."""

    def stop(self, bench: Bench, code: Exit | str, **environment: str) -> tuple[list[str], str]:
        """The calls made, and what was said."""
        before = len(bench.calls)
        env = {
            "PATH": f"{bench.folder / 'bin'}:{os.environ['PATH']}",
            "CALLS": str(bench.calls_file),
            "HOME": "/var/lib/trainer",
            "EXIT_CODE": "exited",
            "EXIT_STATUS": str(int(code)) if isinstance(code, Exit) else code,
            "SERVICE_RESULT": "success" if code in (Exit.DONE, 75, 76) else "exit-code",
            **environment,
        }
        helper = bench.root / "opt/trainer/on-stop"
        done = subprocess.run([helper], env=env, capture_output=True, text=True, timeout=20)
        assert done.returncode == 0, "a failed stop would make systemd restart the agent"
        said = done.stdout.splitlines()
        assert len(said) <= 1 and not done.stderr, done.stdout + done.stderr
        return [call for call in bench.calls[before:] if not call.startswith("sleep")], "".join(said)

    @pytest.fixture(autouse=True)
    def a_node_that_was_not_restarted_yet(self, bench: Bench) -> None:
        (bench.root / "opt/trainer/restarted").unlink(missing_ok=True)

    def test_systemd_runs_it_as_root_and_no_fault_of_it_counts(
        self, bench: Bench, unit: dict[str, list[str]]
    ) -> None:
        assert unit["ExecStopPost"] == [f"-+{bench.root}/opt/trainer/on-stop"]

    @pytest.mark.parametrize("code", [Exit.DEVICE, Exit.RESET, Exit.PERFORMANCE])
    def test_a_bad_node_is_replaced_without_a_grace_period(self, bench: Bench, code: Exit) -> None:
        calls, said = self.stop(bench, code)
        assert calls == [
            "autoscaling set-instance-health --health-status Unhealthy --no-should-respect-grace-period "
            f"--region us-east-1 --instance-id {INSTANCE}"
        ]
        assert said == f"on-stop: exit {int(code)}: bad node, the group was asked for a replacement"

    def test_a_node_is_restarted_once_and_replaced_the_second_time(self, bench: Bench) -> None:
        assert self.stop(bench, Exit.REBOOT)[0] == ["systemctl --no-block reboot"]
        (call,), said = self.stop(bench, Exit.REBOOT)
        assert "set-instance-health" in call and "a second reboot was wanted" in said

    def test_after_its_run_a_node_is_released_for_good(self, bench: Bench) -> None:
        calls, said = self.stop(bench, Exit.DONE)
        me = f"--region us-east-1 --instance-id {INSTANCE}"
        assert calls == [
            f"autoscaling terminate-instance-in-auto-scaling-group --should-decrement-desired-capacity {me}",
            # Nothing is left to save: the group's terminating hook would only be five paid minutes.
            f"autoscaling complete-lifecycle-action --auto-scaling-group-name {AUTO_SCALING_GROUP} "
            f"--lifecycle-hook-name terminating --lifecycle-action-result CONTINUE {me}",
        ]
        assert said == "on-stop: exit 0: the run is over, this node is released"

    def test_where_the_minimum_size_needs_it_the_agent_is_started_again(self, bench: Bench) -> None:
        calls, said = self.stop(bench, Exit.DONE, REFUSE="terminate-instance-in-auto-scaling-group")
        assert [call for call in calls if call.startswith("systemctl")] == [
            "systemctl reset-failed trainer.service",
            "systemctl --no-block start trainer.service",
        ]
        assert "minimum size" in said and not [call for call in calls if "complete-lifecycle" in call]

    def test_a_call_that_fails_is_tried_three_times_and_its_fault_told(self, bench: Bench) -> None:
        calls, said = self.stop(bench, Exit.DEVICE, REFUSE="set-instance-health")
        assert len(calls) == 3
        assert "no replacement could be asked for: An error occurred (ValidationError)" in said

    def test_a_hook_that_nobody_waits_for_holds_the_stop_up_for_a_bounded_time(self, bench: Bench) -> None:
        calls, _ = self.stop(bench, Exit.DONE, REFUSE="complete-lifecycle-action")
        assert len([call for call in calls if "complete-lifecycle-action" in call]) == 15

    def test_every_other_code_is_left_alone(self, bench: Bench) -> None:
        acts_on = {Exit.DONE, Exit.DEVICE, Exit.REBOOT, Exit.RESET, Exit.PERFORMANCE}
        for code in set(Exit) - acts_on:
            assert self.stop(bench, code) == ([], f"on-stop: exit {int(code)}: nothing to do")

    def test_it_acts_on_no_code_after_which_systemd_starts_the_agent_again(
        self, bench: Bench, unit: dict[str, list[str]]
    ) -> None:
        restarted = {code for code in Exit if code != Exit.DONE} - not_restarted(unit)
        assert {Exit.S3, Exit.PEER_LOST, Exit.BUG} <= restarted
        assert all(self.stop(bench, code)[0] == [] for code in restarted)

    @pytest.mark.parametrize(
        ("code", "result"), [("killed", "signal"), ("killed", "timeout"), ("dumped", "core-dump")]
    )
    def test_an_end_that_was_not_the_agents_own_means_nothing(
        self, bench: Bench, code: str, result: str
    ) -> None:
        assert self.stop(bench, "10", EXIT_CODE=code, SERVICE_RESULT=result) == ([], "")
        assert self.stop(bench, Exit.DEVICE, SERVICE_RESULT=result) == ([], "")
        assert self.stop(bench, "TERM", EXIT_CODE=code, SERVICE_RESULT="success") == ([], "")

    def test_it_reads_nothing_that_the_agent_could_have_written(self, bench: Bench) -> None:
        """The unit's HOME is the agent's state folder, and AWS's client runs what its configuration there names."""
        homes = bench.calls_file.with_name("calls.homes")
        homes.write_text("")
        self.stop(bench, Exit.DEVICE)
        assert homes.read_text() == "/root\n"
        text = (bench.root / "opt/trainer/on-stop").read_text()
        assert "AWS_CONFIG_FILE=/dev/null AWS_SHARED_CREDENTIALS_FILE=/dev/null" in text
        assert "/var/lib/trainer" not in text

    def test_shellcheck_finds_no_fault(self, bench: Bench) -> None:
        found = Path(sysconfig.get_path("scripts")) / "shellcheck"
        command = [str(found) if found.exists() else "shellcheck", str(bench.root / "opt/trainer/on-stop")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout
