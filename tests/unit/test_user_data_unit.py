"""What the script leaves to systemd: the agent's unit and its root helper."""

import os
import subprocess

import pytest
from trainer.exit_codes import Exit

from components.bootstrap.user_data import BootVariables
from tests.unit.boot_bench import INSTANCE, Bench, minimal_release, publish


class TestTheUnit:
    """Without a start hook the agent becomes a systemd service of its own user."""

    @pytest.fixture(scope="class")
    def booted(self, tmp_path_factory: pytest.TempPathFactory) -> tuple[Bench, BootVariables, list[str]]:
        """A node after its boot, what it was told, and the calls that it made; all tests here share it."""
        bench = Bench(tmp_path_factory.mktemp("node"))
        boot = publish(bench, minimal_release(bench.folder))
        done = bench.run(boot)
        assert done.returncode == 0, done.stdout + done.stderr
        return bench, boot, bench.calls

    @pytest.fixture
    def bench(self, booted: tuple[Bench, BootVariables, list[str]]) -> Bench:
        return booted[0]

    @pytest.fixture
    def unit(self, bench: Bench) -> dict[str, str]:
        text = (bench.root / "etc/systemd/system/trainer.service").read_text()
        return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)

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
        self, bench: Bench, unit: dict[str, str]
    ) -> None:
        assert unit["ExecStart"] == (
            f"{bench.root}/opt/trainer/current/bin/trainer agent "
            f"--document {bench.root}/etc/trainer/node.json --state-dir {bench.root}/var/lib/trainer"
        )

    def test_the_agent_has_no_rights_beyond_its_state_folder(self, unit: dict[str, str]) -> None:
        assert unit["User"] == "trainer" and unit["StateDirectory"] == "trainer"
        assert (
            unit["NoNewPrivileges"] == "yes"
            and unit["ProtectSystem"] == "strict"
            and unit["ProtectHome"] == "yes"
        )
        assert unit["CapabilityBoundingSet"] == "" and "PrivateDevices" not in unit

    def test_only_what_a_restart_can_mend_is_restarted(self, unit: dict[str, str]) -> None:
        of_the_agent = {code for code in Exit if not code.name.startswith("BOOT_")}
        assert {Exit(int(code)) for code in unit["RestartPreventExitStatus"].split()} == of_the_agent - {
            Exit.DONE,
            Exit.S3,
            Exit.PEER_LOST,
            Exit.BUG,
        }
        assert unit["Restart"] == "on-failure" and unit["StartLimitBurst"] == "4"

    def test_the_stop_limit_leaves_the_agent_time_to_save(self, unit: dict[str, str]) -> None:
        assert unit["TimeoutStopSec"] == "110" and unit["KillMode"] == "mixed"

    def test_root_has_bad_nodes_replaced_and_leaves_the_others_alone(
        self, bench: Bench, unit: dict[str, str]
    ) -> None:
        replaced = {
            code for code in Exit if code != Exit.REBOOT and "Unhealthy" in " ".join(self.stop(bench, code))
        }
        assert replaced == {Exit.DEVICE, Exit.RESET, Exit.PERFORMANCE}
        assert all(not self.stop(bench, code) for code in set(Exit) - replaced - {Exit.REBOOT})

    def test_a_replacement_waits_for_no_grace_period(self, bench: Bench, unit: dict[str, str]) -> None:
        assert self.stop(bench, Exit.DEVICE) == [
            f"autoscaling set-instance-health --region us-east-1 --instance-id {INSTANCE} "
            "--health-status Unhealthy --no-should-respect-grace-period"
        ]

    def test_root_restarts_a_node_once_and_has_it_replaced_the_second_time(
        self, bench: Bench, unit: dict[str, str]
    ) -> None:
        assert self.stop(bench, Exit.REBOOT) == ["systemctl --no-block reboot"]
        assert "set-instance-health" in self.stop(bench, Exit.REBOOT)[0]

    def stop(self, bench: Bench, code: Exit) -> list[str]:
        before = len(bench.calls)
        env = {
            "PATH": f"{bench.folder / 'bin'}:{os.environ['PATH']}",
            "CALLS": str(bench.calls_file),
            "EXIT_STATUS": str(int(code)),
        }
        subprocess.run([bench.root / "opt/trainer/on-stop"], env=env, check=True, timeout=10)
        return bench.calls[before:]
