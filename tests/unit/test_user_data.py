"""User data: the real script is run, with `aws`, `curl` and the system's own tools replaced by recording
stand-ins.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from trainer.exit_codes import Exit

from components.bootstrap.user_data import MAX_BYTES, BootVariables, UserDataTooLong, render_user_data

BUCKET = "gputrain-test-artifacts-123456789012"
INSTANCE = "i-0123456789abcdef0"
AUTO_SCALING_GROUP = "gputrain-test-trainers"

# Copies objects from $BUCKETS, answers the failure count from $FAILURES, and writes down every call.
AWS = """#!/bin/bash
echo "$*" >>"$CALLS"
shift 4
case "$1 $2" in
  "s3 cp")
    source=$BUCKETS/${4#s3://}
    if [[ -n ${AWS_DOWN:-} ]]; then echo "Could not connect to the endpoint URL" >&2; exit 255; fi
    if [[ ! -e $source ]]; then
      echo "fatal error: An error occurred (404) when calling the HeadObject operation: no such key" >&2
      exit 1
    fi
    cp "$source" "$5" ;;
  "cloudwatch get-metric-statistics") echo "${FAILURES:-1.0}" ;;
esac
"""
CURL = """#!/bin/bash
[[ -n ${METADATA_DOWN:-} ]] && { echo "curl: (7) Failed to connect" >&2; exit 7; }
case "$*" in
  *"--request PUT"*"/latest/api/token") echo -n TOKEN ;;
  *"X-aws-ec2-metadata-token: TOKEN"*instance-id) echo -n i-0123456789abcdef0 ;;
  *) exit 22 ;;
esac
"""
RECORDER = '#!/bin/bash\necho "$(basename "$0") $*" >>"$CALLS"\n'


def variables(**changes: object) -> BootVariables:
    base = BootVariables(
        stack="test",
        group="trainers",
        region="us-east-1",
        auto_scaling_group=AUTO_SCALING_GROUP,
        document_uri=f"s3://{BUCKET}/groups/trainers/node.json",
        document_sha256="0" * 64,
        schema_version=1,
        interpreter="/opt/pytorch/bin/python3",
        aws_client="/opt/pytorch/bin/aws",
        launching_hook="launching",
        on_failure="replace",
        max_replacements=3,
        metric_namespace="GpuTraining",
        log_group="/gputrain-test/nodes",
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def minimal_release(folder: Path, wheel_hash: str | None = None, pin_hash: bool = True) -> bytes:
    """A release tar with one wheel that brings the command `trainer`."""
    wheel = folder / "trainer_stub-1.0-py3-none-any.whl"
    info = "trainer_stub-1.0.dist-info"
    files = {
        "trainer_stub.py": "import sys\n\n\ndef main() -> None:\n    print('trainer', *sys.argv[1:])\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: trainer-stub\nVersion: 1.0\nRequires-Dist: torch\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[console_scripts]\ntrainer = trainer_stub:main\n",
    }
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
        archive.writestr(f"{info}/RECORD", "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"]))
    pin = "trainer-stub==1.0"
    if pin_hash:
        pin += f" --hash=sha256:{wheel_hash or sha256(wheel.read_bytes())}"
    (folder / "requirements.txt").write_text(f"{pin}\n")
    path = folder / "release.tar"
    with tarfile.open(path, "w") as tar:
        tar.add(wheel, f"wheels/{wheel.name}")
        tar.add(folder / "requirements.txt", "requirements.txt")
    return path.read_bytes()


@dataclass
class Bench:
    """A node's root folder, its buckets, and the stand-ins on its PATH."""

    folder: Path

    def __post_init__(self) -> None:
        self.root = self.folder / "root"
        self.buckets = self.folder / "buckets"
        self.calls_file = self.folder / "calls"
        self.calls_file.touch()
        programs = self.folder / "bin"
        programs.mkdir()
        scripts = {"aws": AWS, "curl": CURL, "sleep": RECORDER, "systemctl": RECORDER, "useradd": RECORDER}
        # Every node in these tests is new: it has no user trainer yet.
        scripts["id"] = "#!/bin/bash\nexit 1\n"
        for name, text in scripts.items():
            (programs / name).write_text(text)
            (programs / name).chmod(stat.S_IRWXU)
        image = self.root / "opt/pytorch"
        (image / "bin").mkdir(parents=True)
        (image / "bin/python3").symlink_to(sys.executable)
        (image / "lib/python3/site-packages/torch").mkdir(parents=True)
        (image / "lib/python3/site-packages/torch/__init__.py").write_text("__version__ = 'of the image'\n")

    def put(self, key: str, data: bytes) -> None:
        path = self.buckets / BUCKET / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def run(self, boot: BootVariables, **environment: str) -> subprocess.CompletedProcess[str]:
        env = {
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "HOME": str(self.folder),
            "TRAINER_ROOT": str(self.root),
            "CALLS": str(self.calls_file),
            "BUCKETS": str(self.buckets),
            **environment,
        }
        return subprocess.run(
            ["bash", "-c", render_user_data(boot)], env=env, capture_output=True, text=True, timeout=120
        )

    @property
    def calls(self) -> list[str]:
        """The calls so far, without the two time limits that every one begins with."""
        lines = self.calls_file.read_text().splitlines()
        return [re.sub(r"^--cli-connect-timeout \d+ --cli-read-timeout \d+ ", "", line) for line in lines]

    def calls_of(self, words: str) -> list[str]:
        return [call for call in self.calls if call.startswith(words)]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture
def ready(bench: Bench) -> BootVariables:
    """A bench on which everything that a node needs is in place."""
    return publish(bench, minimal_release(bench.folder))


def publish(bench: Bench, release: bytes, **changes: object) -> BootVariables:
    bench.put("releases/trainer/release.tar", release)
    document = {
        "schemaVersion": 1,
        "release": {
            "uri": f"s3://{BUCKET}/releases/trainer/release.tar",
            "sha256": sha256(release),
            "version": "1.0",
        },
        "torch": {"sitePackages": "/opt/pytorch/lib/python3/site-packages"},
        **changes,
    }
    text = json.dumps(document).encode()
    bench.put("groups/trainers/node.json", text)
    return variables(document_sha256=sha256(text))


class TestABootThatSucceeds:
    def test_it_installs_the_release_offline_and_hands_over_to_the_start_hook(
        self, bench: Bench, ready: BootVariables
    ) -> None:
        hook = bench.folder / "hook"
        hook.write_text('#!/bin/bash\nexec "$TRAINER_ROOT/opt/trainer/current/bin/trainer" agent\n')
        hook.chmod(stat.S_IRWXU)
        done = bench.run(ready, TRAINER_START_HOOK=str(hook))
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.splitlines()[-1] == "trainer agent"
        assert (bench.root / "etc/trainer/node.json").read_bytes() == (
            bench.buckets / BUCKET / "groups/trainers/node.json"
        ).read_bytes()
        assert all(line.startswith("bootstrap: ") for line in done.stdout.splitlines()[:-1])
        assert not bench.calls_of("cloudwatch") and not bench.calls_of("autoscaling")

    def test_the_environment_sees_the_images_torch_after_its_own_packages(
        self, bench: Bench, ready: BootVariables
    ) -> None:
        assert bench.run(ready, TRAINER_START_HOOK="true").returncode == 0
        python = bench.root / "opt/trainer/current/bin/python"
        code = "import sys, torch; print(torch.__version__); print(sys.path[-1])"
        lines = subprocess.run(
            [python, "-c", code], capture_output=True, text=True, check=True
        ).stdout.splitlines()
        assert lines == ["of the image", f"{bench.root}/opt/pytorch/lib/python3/site-packages"]

    def test_a_second_run_neither_fetches_nor_installs_the_release_again(
        self, bench: Bench, ready: BootVariables
    ) -> None:
        assert bench.run(ready, TRAINER_START_HOOK="true").returncode == 0
        installed = bench.root / "opt/trainer/current/bin/trainer"
        first = installed.stat().st_mtime_ns
        second = bench.run(ready, TRAINER_START_HOOK="true")
        assert second.returncode == 0 and "installed already" in second.stdout
        assert installed.stat().st_mtime_ns == first
        assert [call.split()[3] for call in bench.calls_of("s3 cp")] == [
            ready.document_uri,
            f"s3://{BUCKET}/releases/trainer/release.tar",
            ready.document_uri,
        ]

    def test_a_run_that_was_cut_short_is_begun_again(self, bench: Bench, ready: BootVariables) -> None:
        release = sha256((bench.buckets / BUCKET / "releases/trainer/release.tar").read_bytes())[:12]
        half = bench.root / "opt/trainer/releases" / release / "venv"
        half.mkdir(parents=True)
        (half / "leftover").touch()
        assert bench.run(ready, TRAINER_START_HOOK="true").returncode == 0
        assert not (half / "leftover").exists() and (half / "bin/trainer").exists()

    def test_the_images_own_aws_command_is_preferred(self, bench: Bench, ready: BootVariables) -> None:
        (bench.folder / "bin/aws").rename(bench.root / "opt/pytorch/bin/aws")
        assert bench.run(ready, TRAINER_START_HOOK="true").returncode == 0
        assert bench.calls_of("s3 cp")

    def test_torch_comes_from_a_second_artifact_where_the_image_has_none(self, bench: Bench) -> None:
        release = minimal_release(bench.folder)
        wheel_tar = release  # any tar of hashed wheels will do
        bench.put("releases/trainer/torch.tar", wheel_tar)
        artifact = {"uri": f"s3://{BUCKET}/releases/trainer/torch.tar", "sha256": sha256(wheel_tar)}
        boot = publish(bench, release, torch={"artifact": artifact})
        shutil.rmtree(bench.root / "opt/pytorch/lib")
        done = bench.run(boot, TRAINER_START_HOOK="true")
        assert done.returncode == 0, done.stdout + done.stderr
        assert len(bench.calls_of("s3 cp")) == 3


class TestABootThatFails:
    """Each fault has a code and a name of its own, is counted and logged, and the launch is abandoned."""

    def assert_failed(
        self, bench: Bench, done: subprocess.CompletedProcess[str], code: Exit, *words: str
    ) -> None:
        assert done.returncode == code, done.stdout + done.stderr
        (line,) = [line for line in done.stdout.splitlines() if "FAILED" in line]
        assert line.startswith(f"bootstrap: FAILED {int(code)} {code.name}: ")
        assert all(word in line for word in words), line
        (count,) = bench.calls_of("cloudwatch put-metric-data")
        assert "--metric-name SelfCheckFailed" in count
        assert "--dimensions AutoScalingGroupName=gputrain-test-trainers" in count

    def assert_abandoned(self, bench: Bench) -> None:
        (completion,) = bench.calls_of("autoscaling complete-lifecycle-action")
        assert f"--instance-id {INSTANCE} --lifecycle-action-result ABANDON" in completion
        assert "--lifecycle-hook-name launching" in completion
        (event,) = bench.calls_of("logs put-log-events")
        assert "FAILED" in event and f"--log-stream-name trainers/{INSTANCE}/bootstrap" in event

    def test_missing_document(self, bench: Bench) -> None:
        done = bench.run(variables())
        self.assert_failed(
            bench, done, Exit.BOOT_DOCUMENT_MISSING, variables().document_uri, "does not exist"
        )
        self.assert_abandoned(bench)
        assert not bench.calls_of("sleep"), "what does not exist is not asked for twice"

    def test_wrong_hash_of_the_document(self, bench: Bench, ready: BootVariables) -> None:
        done = bench.run(replace(ready, document_sha256="f" * 64))
        self.assert_failed(bench, done, Exit.BOOT_DOCUMENT_HASH, ready.document_sha256, "f" * 64)
        self.assert_abandoned(bench)
        assert not (bench.root / "etc/trainer/node.json").exists()

    def test_newer_schema_than_the_script_knows(self, bench: Bench) -> None:
        done = bench.run(publish(bench, b"", schemaVersion=2))
        self.assert_failed(bench, done, Exit.BOOT_DOCUMENT_SCHEMA, "version 2", "knows 1")
        self.assert_abandoned(bench)

    def test_missing_release(self, bench: Bench, ready: BootVariables) -> None:
        (bench.buckets / BUCKET / "releases/trainer/release.tar").unlink()
        done = bench.run(ready)
        self.assert_failed(bench, done, Exit.BOOT_RELEASE_MISSING, "release.tar does not exist")
        self.assert_abandoned(bench)

    def test_wrong_hash_of_the_release(self, bench: Bench, ready: BootVariables) -> None:
        bench.put("releases/trainer/release.tar", b"something else")
        done = bench.run(ready)
        self.assert_failed(bench, done, Exit.BOOT_RELEASE_HASH, sha256(b"something else"))
        self.assert_abandoned(bench)
        assert not (bench.root / "opt/trainer/current").exists()

    def test_a_wheel_that_is_not_what_the_lock_says(self, bench: Bench) -> None:
        done = bench.run(publish(bench, minimal_release(bench.folder, wheel_hash="1" * 64)))
        self.assert_failed(bench, done, Exit.BOOT_INSTALL, "pip")
        self.assert_abandoned(bench)

    def test_a_wheel_that_the_lock_pins_without_a_hash(self, bench: Bench) -> None:
        done = bench.run(publish(bench, minimal_release(bench.folder, pin_hash=False)))
        self.assert_failed(bench, done, Exit.BOOT_INSTALL, "pip")
        self.assert_abandoned(bench)

    def test_a_release_that_is_no_tar(self, bench: Bench) -> None:
        done = bench.run(publish(bench, b"no tar"))
        self.assert_failed(bench, done, Exit.BOOT_INSTALL, "tar")
        self.assert_abandoned(bench)

    def test_an_image_without_its_interpreter(self, bench: Bench, ready: BootVariables) -> None:
        (bench.root / "opt/pytorch/bin/python3").unlink()
        done = bench.run(ready)
        self.assert_failed(bench, done, Exit.BOOT_INSTALL, "/opt/pytorch/bin/python3")
        self.assert_abandoned(bench)

    def test_an_image_without_torch(self, bench: Bench, ready: BootVariables) -> None:
        shutil.rmtree(bench.root / "opt/pytorch/lib/python3/site-packages/torch")
        done = bench.run(ready)
        self.assert_failed(bench, done, Exit.BOOT_INSTALL, "no torch")
        self.assert_abandoned(bench)

    def test_an_agent_that_cannot_be_started(self, bench: Bench, ready: BootVariables) -> None:
        done = bench.run(ready, TRAINER_START_HOOK="/no/such/program")
        self.assert_failed(bench, done, Exit.BOOT_START, "/no/such/program")
        self.assert_abandoned(bench)

    def test_an_unreachable_bucket_is_asked_five_times(self, bench: Bench, ready: BootVariables) -> None:
        done = bench.run(ready, AWS_DOWN="1")
        self.assert_failed(bench, done, Exit.BOOT_UNREACHABLE, "Could not connect")
        self.assert_abandoned(bench)
        assert len(bench.calls_of("s3 cp")) == 5
        assert bench.calls_of("sleep") == ["sleep 1", "sleep 2", "sleep 4", "sleep 8"]

    def test_without_the_metadata_service_there_is_no_launch_to_answer_for(
        self, bench: Bench, ready: BootVariables
    ) -> None:
        done = bench.run(ready, METADATA_DOWN="1")
        self.assert_failed(bench, done, Exit.BOOT_UNREACHABLE, "from_metadata")
        assert not bench.calls_of("autoscaling")


class TestTheCircuitBreaker:
    def test_it_rests_up_to_the_allowed_number_of_failures(self, bench: Bench) -> None:
        bench.run(variables(max_replacements=3), FAILURES="3.0")
        assert not bench.calls_of("autoscaling suspend-processes")

    def test_above_it_launches_are_suspended_counted_and_the_way_back_is_named(self, bench: Bench) -> None:
        done = bench.run(variables(max_replacements=3), FAILURES="4.0")
        assert bench.calls_of("autoscaling suspend-processes") == [
            f"autoscaling suspend-processes --auto-scaling-group-name {AUTO_SCALING_GROUP} --scaling-processes Launch"
        ]
        assert any("LaunchesSuspended" in call for call in bench.calls_of("cloudwatch put-metric-data"))
        assert "aws autoscaling resume-processes --region us-east-1" in done.stdout
        assert bench.calls_of("autoscaling complete-lifecycle-action"), "the launch is abandoned all the same"

    def test_the_failures_of_one_hour_of_this_group_are_summed(self, bench: Bench) -> None:
        bench.run(variables())
        (call,) = bench.calls_of("cloudwatch get-metric-statistics")
        assert (
            f"--metric-name SelfCheckFailed --dimensions Name=AutoScalingGroupName,Value={AUTO_SCALING_GROUP}"
            in call
        )
        assert "--statistics Sum" in call and "--query sum(Datapoints[].Sum)" in call

    @pytest.mark.parametrize("answer", ["None", ""])
    def test_no_answer_of_cloudwatch_is_not_a_number_of_failures(self, bench: Bench, answer: str) -> None:
        done = bench.run(variables(max_replacements=0), FAILURES=answer or " ")
        assert done.returncode == Exit.BOOT_DOCUMENT_MISSING
        assert not bench.calls_of("autoscaling suspend-processes")

    def test_on_failure_report_lets_the_node_join(self, bench: Bench) -> None:
        bench.run(variables(on_failure="report"))
        (completion,) = bench.calls_of("autoscaling complete-lifecycle-action")
        assert completion.endswith("--lifecycle-action-result CONTINUE")


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


class TestTheText:
    def test_bash_and_shellcheck_find_no_fault(self, tmp_path: Path) -> None:
        script = tmp_path / "user-data.sh"
        script.write_text(render_user_data(variables()))
        subprocess.run(["bash", "-n", script], check=True)
        found = Path(sysconfig.get_path("scripts")) / "shellcheck"
        done = subprocess.run(
            [found if found.exists() else "shellcheck", script], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout

    def test_no_value_is_taken_for_shell_code(self) -> None:
        hostile = "a b; touch /tmp/x; it's $(id) `id` \\"
        _, first, _ = render_user_data(variables(stack=hostile)).split("\n", 2)
        shown = subprocess.run(
            ["bash", "-c", f'{first}\nprintf %s "$STACK"'], capture_output=True, text=True
        ).stdout
        assert shown == hostile

    def test_above_ec2s_limit_it_is_refused_with_its_size(self) -> None:
        size = len(render_user_data(variables()).encode())
        longest = "x" * (len("trainers") + MAX_BYTES - size)
        assert len(render_user_data(variables(group=longest)).encode()) == MAX_BYTES
        with pytest.raises(UserDataTooLong, match=f"{MAX_BYTES + 1} bytes"):
            render_user_data(variables(group=longest + "x"))
