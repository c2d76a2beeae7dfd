"""`make preview`: every stack, by the real engine and with the policies, without credentials and without a trace."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from localcloud import preview
from localcloud.engine.events import Events
from localcloud.engine.pulumi import STANDINS, Engine
from localcloud.toolchain import ROOT, Failed, Paths

STACKS = ("dev", "local", "prod", "staging")

PROGRAM = """
import os
import pulumi

config = pulumi.Config("small")
if config.get("fails"):
    raise ValueError("the zone is not one of ours")
if config.get("waits"):
    import time
    print("waiting", os.getpid(), flush=True)
    time.sleep(600)
pulumi.export("kubeconfig", config.require("kubeconfig"))
pulumi.export("efa", config.require("efa"))
pulumi.export("credentials", ",".join(sorted(name for name in os.environ if name.startswith("AWS_"))))
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "Pulumi.yaml").write_text("name: small\nruntime: python\n")
    (folder / "__main__.py").write_text(PROGRAM)
    return folder


def stack_file(project: Path, stack: str, text: str) -> Path:
    path = project / f"Pulumi.{stack}.yaml"
    path.write_text(text)
    return path


def read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def eventually(happened: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 60.0
    while not happened() and time.monotonic() < deadline:
        time.sleep(0.05)
    return happened()


def processes_that_mention(text: str) -> list[str]:
    """Command lines and folders of running processes in which the text occurs."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            told = (process / "cmdline").read_text() + str((process / "cwd").readlink())
            found += [told] if text in told else []
    return found


def engine(tools: Paths, project: Path, stack: str, **options: object) -> Engine:
    work = project.parent / "work"
    return Engine(tools, stack, work, "preview", project=project, policy_pack=None, **options)  # pyright: ignore[reportArgumentType]


@pytest.fixture
def unchanged_tree() -> Iterator[None]:
    """Nothing that git sees or ignores at the top of the checkout is added or changed, apart from the built release."""

    def seen() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in ROOT.iterdir() if path.is_file()}

    before, folders = seen(), {path.name for path in ROOT.iterdir() if path.is_dir()}
    yield
    assert seen() == before
    assert {path.name for path in ROOT.iterdir() if path.is_dir()} - folders <= {"dist", "__pycache__"}


class TestOurStacks:
    def test_these_are_the_stacks(self):
        assert preview.stacks() == list(STACKS)

    @pytest.mark.parametrize("stack", STACKS)
    def test_it_previews_and_passes_the_policies(self, stack: str, tmp_path: Path, unchanged_tree: None):
        outcome = preview.run(stack, tmp_path, show=False)

        assert outcome.ok, outcome.text
        assert outcome.events.errors == ()
        assert [violation for violation in outcome.events.violations if violation.level == "mandatory"] == []
        assert set(outcome.events.changes) == {"create"}
        types = {step.type for step in outcome.events.steps}
        assert {
            "aws:ec2/launchTemplate:LaunchTemplate",
            "aws:autoscaling/group:Group",
            "aws:s3/bucket:Bucket",
        } <= types
        assert "stand-in aws provider" in outcome.text

    def test_prod_needs_no_key_although_its_secrets_are_encrypted_by_kms(self):
        """What the test above proves, provided that it is still so."""
        text = (ROOT / "Pulumi.prod.yaml").read_text()
        assert "secretsprovider: awskms://" in text
        assert "secure:" in text

    def test_the_command_prints_json_alone_and_a_summary_beside_it(self, unchanged_tree: None):
        done = subprocess.run(
            ["make", "--silent", "preview", "STACK=dev", "JSON=1"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=280,
        )
        assert done.returncode == 0, done.stderr
        digest = json.loads(done.stdout)
        assert f"preview dev: resources: {digest['changeSummary']['create']} create" in done.stderr
        assert "preview dev: hourlyCostUsd: " in done.stderr
        assert digest["cost"]["costTable"][0].startswith("cost of dev in us-east-1")
        assert "stand-in providers were used: nothing was asked of AWS" in done.stderr


class TestFaults:
    def test_a_fault_of_the_program_fails_the_preview_and_is_told(self, tools: Paths, project: Path):
        stack_file(project, "dev", "config:\n  small:fails: yes\n")
        outcome = engine(tools, project, "dev").preview()
        assert outcome.code != 0
        assert any("the zone is not one of ours" in error for error in outcome.events.errors)

    def test_a_stack_that_is_not_there_is_one_line(self, tools: Paths, project: Path):
        with pytest.raises(Failed, match=r"there is no stack prod: .*Pulumi\.prod\.yaml does not exist"):
            engine(tools, project, "prod").preview()

    def test_a_stack_file_that_is_no_yaml_is_one_line(self, tools: Paths, project: Path):
        stack_file(project, "dev", "config: [\n")
        with pytest.raises(Failed, match=r"Pulumi\.dev\.yaml is not YAML") as fault:
            engine(tools, project, "dev").preview()
        assert "\n" not in str(fault.value)

    def test_the_limit_ends_the_engine_and_the_program(self, tools: Paths, project: Path):
        stack_file(project, "dev", "config:\n  small:waits: yes\n")
        run = engine(tools, project, "dev", limit_seconds=20.0)
        with pytest.raises(Failed, match="`pulumi preview` did not end within 20 s"):
            run.preview()
        waiting = [line for line in run.log.read_text().splitlines() if "waiting" in line]
        pid = waiting[0].split()[-1]
        assert not Path(f"/proc/{pid}").exists()


class TestStackFiles:
    """The engine is given a copy; the committed file may be encrypted in any way."""

    @pytest.mark.parametrize(
        "secrets",
        [
            "secretsprovider: awskms://alias/nobody?region=us-east-1\nencryptedkey: AQICAHg=\n",
            "encryptionsalt: v1:c29tZXNhbHQ=:v1:eA==:eA==\n",
            "secretsprovider: passphrase\nencryptionsalt: v1:c29tZXNhbHQ=:v1:eA==:eA==\n",
        ],
        ids=["kms", "salt", "passphrase"],
    )
    def test_secrets_are_replaced_and_everything_else_is_what_it_was(
        self, tools: Paths, project: Path, secrets: str
    ):
        text = f"{secrets}config:\n  small:kubeconfig:\n    secure: v1:AbCdEf==\n\n  # a comment\n  small:efa: on\n"
        path = stack_file(project, "prod", text)
        outcome = engine(tools, project, "prod").preview()
        assert outcome.ok, outcome.text
        assert outcome.events.outputs["kubeconfig"] == "placeholder for an encrypted value"
        assert outcome.events.outputs["efa"] == "on"
        assert path.read_text() == text

    def test_no_credentials_reach_the_program(self, tools: Paths, project: Path):
        os.environ["AWS_SECRET_ACCESS_KEY"] = "mine"
        stack_file(project, "dev", "config:\n  small:kubeconfig: x\n  small:efa: x\n")
        outcome = engine(tools, project, "dev").preview()
        assert outcome.ok, outcome.text
        assert outcome.events.outputs["credentials"] == ""


class TestStandIns:
    def test_they_are_on_nobody_s_path(self, tools: Paths, project: Path):
        stack_file(project, "dev", "config:\n  small:kubeconfig: x\n  small:efa: x\n")
        run = engine(tools, project, "dev")
        assert run.preview().ok
        written = {path.name for path in (run.work / "plugins").iterdir()}
        assert {f"pulumi-resource-{name}" for name in STANDINS} <= written
        ours = [
            tools.python_program.parent,
            tools.python_workbench.parent,
            tools.python_image.parent,
            ROOT,
            ROOT / "bin",
        ]
        for name in written:
            assert shutil.which(name) is None
            assert not [folder for folder in (*ours, tools.pulumi.parent) if (folder / name).exists()]
        tracked = subprocess.run(
            ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout
        assert "pulumi-resource-" not in tracked
        assert "pulumi-language-" not in tracked

    def test_a_language_host_that_came_with_the_cli_is_not_replaced(
        self, tools: Paths, project: Path, tmp_path: Path
    ):
        from dataclasses import replace

        stack_file(project, "dev", "config: {}\n")
        run = engine(replace(tools, language_host=tmp_path / "pulumi-language-python"), project, "dev")
        with pytest.raises(Failed):  # this machine's CLI has none, so the engine cannot start the program
            if not run.preview().ok:
                raise Failed("no language host")
        assert not (run.work / "plugins" / "pulumi-language-python").exists()


def test_a_stack_s_life_and_a_lock_that_a_killed_run_left(tools: Paths, project: Path):
    stack_file(project, "dev", "config:\n  small:kubeconfig: x\n  small:efa: x\n")
    run = engine(tools, project, "dev")
    assert run.up().ok
    left = run.backend / ".pulumi" / "locks" / "organization" / "small" / "dev" / "left.json"
    left.parent.mkdir(parents=True, exist_ok=True)
    left.write_text("{}")
    again = run.up(expect_no_changes=True)
    assert again.ok, again.text
    assert again.events.changes == {"same": 1}
    assert run.outputs() == {"kubeconfig": "x", "efa": "x", "credentials": ""}
    assert [each["urn"] for each in run.stack_export()["deployment"]["resources"]] == [
        "urn:pulumi:dev::small::pulumi:pulumi:Stack::small-dev"
    ]
    assert run.destroy().ok
    assert "resources" not in run.stack_export()["deployment"]


def test_a_preview_that_is_killed_leaves_nothing_running(project: Path):
    stack_file(project, "dev", "config:\n  small:waits: yes\n")
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from localcloud.engine.pulumi import Engine\n"
        "from localcloud.toolchain import paths\n"
        "project, work = map(Path, sys.argv[1:])\n"
        "Engine(paths(), 'dev', work, 'preview', project=project, policy_pack=None).preview()\n"
    )
    work = project.parent / "work"
    run = subprocess.Popen([sys.executable, "-c", program, str(project), str(work)])
    assert eventually(lambda: "waiting" in read(work / "pulumi.log"))
    run.kill()
    run.wait()
    assert eventually(lambda: not processes_that_mention(str(project.parent)))


def test_outputs_of_a_stack_that_is_not_there_are_one_line(tools: Paths, project: Path):
    stack_file(project, "dev", "config: {}\n")
    with pytest.raises(Failed, match=r"`pulumi stack output` failed: error: .*dev"):
        engine(tools, project, "dev").outputs()


def test_the_summary_counts_what_a_reviewer_asks_for():
    events = Events(
        changes={"create": 2, "replace": 1},
        outputs={
            "hourlyCostUsd": {
                "totalLow": 1.5,
                "totalHigh": 2,
                "totalLowAtMaxNodes": 10.25,
                "totalHighAtMaxNodes": 20,
                "unknown": [],
            }
        },
    )
    assert preview.summary("dev", events, 4.04) == [
        "preview dev: resources: 2 create, 1 replace",
        "preview dev: policies: 0 mandatory and 0 advisory findings",
        "preview dev: hourlyCostUsd: 1.5 to 2 at creation, 10.25 to 20 with every group full",
        "preview dev: stand-in providers were used: nothing was asked of AWS, and the stack was taken as new",
        "preview dev: took 4.0 s",
    ]


def test_the_digest_for_programs_has_the_cost_in_it_and_a_fault_stays_as_it_is():
    events = Events(outputs={"costTable": ["a"], "monthlyCostUsd": {"totalLow": 1}, "dashboardUrl": "x"})
    found = json.loads(preview.digest('{"steps": []}', events))
    assert found == {"steps": [], "cost": {"monthlyCostUsd": {"totalLow": 1}, "costTable": ["a"]}}
    assert preview.digest("error: no", events) == "error: no"
