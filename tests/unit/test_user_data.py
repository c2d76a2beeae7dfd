"""User data: the real script is run, with `aws`, `curl` and the system's own tools replaced by recording
stand-ins.
"""

from __future__ import annotations

import shutil
import stat
import subprocess
import sysconfig
from dataclasses import replace
from pathlib import Path

import pytest
from trainer.exit_codes import Exit

from components.bootstrap.user_data import MAX_BYTES, BootVariables, UserDataTooLong, render_user_data
from components.settings.rules import MAX_BUCKET_NAME
from tests.unit.boot_bench import (
    AUTO_SCALING_GROUP,
    BUCKET,
    INSTANCE,
    Bench,
    minimal_release,
    publish,
    sha256,
    variables,
)


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

    def test_its_comments_stay_in_the_repository(self) -> None:
        lines = render_user_data(variables()).splitlines()
        assert lines[0] == "#!/bin/bash"
        assert [line for line in lines[1:] if line.lstrip().startswith("#")] == [
            "#!/bin/bash"
        ]  # the root helper's

    def test_one_kilobyte_is_left_with_the_longest_names_that_the_settings_admit(self) -> None:
        """Report B2 (github-aws-runners#3700 and others): user data above the limit fails at apply only."""
        base = "b" * (MAX_BUCKET_NAME - len("-access-logs-") - 12)
        group = "g" * 31
        longest = variables(
            stack=base,
            group=group,
            region="ap-southeast-99",
            auto_scaling_group=f"{base}-{group}",
            document_uri=f"s3://{'b' * MAX_BUCKET_NAME}/groups/{group}/node-{'0' * 64}.json",
            interpreter="/opt/" + "p" * 40 + "/bin/python3.12",
            max_replacements=100,
            log_group=f"/{base}/nodes",
        )
        assert len(render_user_data(longest).encode()) <= MAX_BYTES - 1024

    def test_above_ec2s_limit_it_is_refused_with_its_size(self) -> None:
        size = len(render_user_data(variables()).encode())
        longest = "x" * (len("trainers") + MAX_BYTES - size)
        assert len(render_user_data(variables(group=longest)).encode()) == MAX_BYTES
        with pytest.raises(UserDataTooLong, match=f"{MAX_BYTES + 1} bytes"):
            render_user_data(variables(group=longest + "x"))
