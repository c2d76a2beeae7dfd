"""The launch template's real user data on process nodes, with the image's real AWS client: the good way, and every
fault that a bootstrap can meet, through the abandoned launch to the suspended group and its alarm."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import os
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from trainer.contracts.node_document import NodeDocument

from components.bootstrap.user_data import BootVariables, render_user_data
from localcloud.aws.server import AwsServer
from localcloud.daemons import find_leavings
from localcloud.nodes.process import NODE_MARKER
from localcloud.processes import command_line, marked
from localcloud.toolchain import paths
from tests.local.cloud_kit import REGION, client, wait_until
from tests.local.node_kit import World

BUCKET = "artifacts"
STUB = Path(__file__).with_name("stub_agent.py")
ENTRY = """
import json, os, sys
def main():
    with open(sys.argv[sys.argv.index("--document") + 1]) as file:
        os.environ["GROUP"] = json.load(file)["autoScalingGroup"]
    sys.argv.insert(1, "serve")
    import stub_agent
    return stub_agent.main()
"""
LIMIT_SECONDS = 240.0  # a node calls the AWS client up to nine times, on however busy a machine


def wheel() -> bytes:
    """The stub as a wheel with the command `trainer`."""
    name = "trainer-0.0.1"
    files = {
        "stub_agent.py": STUB.read_text(),
        "stub_entry.py": ENTRY,
        f"{name}.dist-info/METADATA": "Metadata-Version: 2.1\nName: trainer\nVersion: 0.0.1\n",
        f"{name}.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{name}.dist-info/entry_points.txt": "[console_scripts]\ntrainer = stub_entry:main\n",
    }
    record = io.StringIO()
    rows = csv.writer(record, lineterminator="\n")
    for path, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        rows.writerow([path, f"sha256={digest}", len(text.encode())])
    rows.writerow([f"{name}.dist-info/RECORD", "", ""])
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, text in {**files, f"{name}.dist-info/RECORD": record.getvalue()}.items():
            archive.writestr(path, text)
    return buffer.getvalue()


def release() -> bytes:
    """A tar as `make release` builds it: wheels, and requirements with hashes."""
    built = wheel()
    requirements = f"trainer==0.0.1 --hash=sha256:{hashlib.sha256(built).hexdigest()}\n"
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in (
            ("wheels/trainer-0.0.1-py3-none-any.whl", built),
            ("requirements.txt", requirements.encode()),
        ):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


class Boots(World):
    """Groups whose user data is the program's own, each with its fault."""

    watched: list[Path]
    before: dict[str, tuple[int, int]]

    def prepare(self) -> None:
        self.s3 = client("s3", self.aws.endpoint)
        self.s3.create_bucket(Bucket=BUCKET)
        client("logs", self.aws.endpoint).create_log_group(logGroupName="/test/nodes")
        tar = release()
        self.release_sha256 = hashlib.sha256(tar).hexdigest()
        self.s3.put_object(Bucket=BUCKET, Key="releases/trainer/good.tar", Body=tar)

    def document(self, group: str, **changes: Any) -> str:
        content = {
            "schemaVersion": 1, "stack": "test", "group": group, "autoScalingGroup": group, "region": REGION,
            "artifactsBucket": BUCKET, "datasets": {}, "interpreter": "/opt/pytorch/bin/python3",
            "release": {
                "uri": f"s3://{BUCKET}/releases/trainer/good.tar", "sha256": self.release_sha256, "version": "0.0.1",
            },
            "torch": {"sitePackages": "/opt/pytorch/lib/python3/site-packages"},
            "promise": {"instanceType": "g6.xlarge", "accelerator": "none", "gpuCount": 0},
            "launchingHook": "launching", "terminatingHook": "terminating", "logGroup": "/test/nodes",
        }  # fmt: skip
        NodeDocument.model_validate(content)
        return json.dumps({**content, **changes})

    def boot(self, group: str, document: str, *, allowed: int = 0, key: str = "", line: str = "") -> None:
        """A group with this document; `key`: where its user data looks for it; `line`: put into the script."""
        digest = hashlib.sha256(document.encode()).hexdigest()
        self.s3.put_object(Bucket=BUCKET, Key=f"groups/{group}/node-{digest}.json", Body=document.encode())
        variables = BootVariables(
            stack="test", group=group, region=REGION, auto_scaling_group=group,
            document_uri=f"s3://{BUCKET}/{key or f'groups/{group}/node-{digest}.json'}", document_sha256=digest,
            schema_version=1, interpreter="/opt/pytorch/bin/python3", aws_client="/opt/pytorch/bin/aws",
            launching_hook="launching", terminating_hook="terminating", on_failure="replace", max_replacements=allowed,
            metric_namespace="GpuTraining", log_group="/test/nodes",
        )  # fmt: skip
        script = render_user_data(variables)
        self.group(group, script.replace("\n", f"\n{line}\n", 1), launching_seconds=600)
        for name in ("SelfCheckFailed", "LaunchesSuspended"):
            client("cloudwatch", self.aws.endpoint).put_metric_alarm(
                AlarmName=f"{group}-{name}", Namespace="GpuTraining", MetricName=name, Statistic="Sum", Period=300,
                Dimensions=[{"Name": "AutoScalingGroupName", "Value": group}], EvaluationPeriods=1, Threshold=0,
                ComparisonOperator="GreaterThanThreshold", TreatMissingData="notBreaching",
            )  # fmt: skip

    def suspended(self, group: str) -> bool:
        found = self.clusters[group].autoscaling.describe_auto_scaling_groups(AutoScalingGroupNames=[group])
        return "Launch" in [p["ProcessName"] for p in found["AutoScalingGroups"][0]["SuspendedProcesses"]]

    def failed(self, group: str) -> list[dict[str, Any]]:
        """The ended nodes of a group, oldest first."""
        records = [json.loads(path.read_text()) for path in self.site.nodes.glob("*/node.json")]
        mine = [r for r in records if r["group"] == group and r["state"] == "gone"]
        return sorted(mine, key=lambda r: r["bootedAt"])

    def end_of_launch(self, record: dict[str, Any]) -> str:
        """What the scaling activities say of a node's launch."""
        client = self.clusters[record["group"]].autoscaling
        found = client.describe_scaling_activities(AutoScalingGroupName=record["group"])["Activities"]
        launch = f"Launching a new EC2 instance: {record['instanceId']}"
        return next(activity["StatusMessage"] for activity in found if activity["Description"] == launch)

    def over(self, group: str) -> bool:
        return self.suspended(group) and self.states(group) == {} and self.failed(group) != []


def snapshot(folders: list[Path]) -> dict[str, tuple[int, int]]:
    """Path -> size and modification time, of everything below these folders and of their own listing."""
    found: dict[str, tuple[int, int]] = {}
    for folder in folders:
        for path in [folder, *folder.rglob("*")] if folder.exists() else []:
            status = path.lstat()
            found[str(path)] = (status.st_size, status.st_mtime_ns)
    return found


SYSTEM = [Path(path) for path in ("/etc/systemd/system", "/etc/trainer", "/opt/trainer", "/var/lib/trainer")]


@pytest.fixture(scope="module")
def boots(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Boots]:
    local = tmp_path_factory.mktemp("boots") / ".local"
    image = paths().image_dir
    with AwsServer(tick_seconds=0.1) as aws, pytest.MonkeyPatch.context() as patch:
        world = Boots(aws, local, image)
        # What the driver's own user would see change: home, temporary folder, the shared image, the system.
        folders = [tmp_path_factory.mktemp(name) for name in ("home", "tmp")]
        patch.setenv("HOME", str(folders[0]))
        patch.setenv("TMPDIR", str(folders[1]))
        world.watched = [*folders, image, *SYSTEM]
        world.before = snapshot(world.watched)
        try:
            world.prepare()
            good = world.document("good")
            wrong = {**json.loads(good)["release"], "sha256": "0" * 64}
            world.boot("good", good)
            world.boot("release-hash", world.document("release-hash", release=wrong), allowed=1)
            world.boot("document-missing", good, key="groups/nowhere/node.json")
            world.boot("schema-newer", world.document("schema-newer", schemaVersion=99))
            world.boot("unreachable", good, line="export AWS_ENDPOINT_URL_S3=http://127.0.0.1:9")
            faulty = [name for name in world.clusters if name != "good"]
            world.until(
                lambda: all(world.over(name) for name in faulty), "the failed boots' end", LIMIT_SECONDS
            )
            world.until(
                lambda: list(world.states("good").values()) == ["InService"], "the good boot", LIMIT_SECONDS
            )
            yield world
        finally:
            world.service.shut_down()
    assert find_leavings(local) == []


def test_the_good_way_goes_through_every_step_into_service(boots: Boots) -> None:
    (instance_id,) = boots.states("good")
    steps = [step["step"] for step in boots.record(instance_id)["steps"]]
    beginnings = ("identity", f"instance {instance_id}", "node document", "schema", "environment", "fetch",
                  "install trainer", "torch of the image", "start the agent", "agent started")  # fmt: skip
    assert len(steps) == len(beginnings)
    assert all(step.startswith(begin) for step, begin in zip(steps, beginnings, strict=True))
    root = boots.site.nodes / instance_id / "root"
    assert (root / "opt" / "trainer" / "current").resolve() == (
        root / "opt" / "trainer" / "releases" / boots.release_sha256[:12] / "venv"
    )


FAULTS = [
    ("release-hash", "55 BOOT_RELEASE_HASH", "has SHA-256"),
    (
        "document-missing",
        "51 BOOT_DOCUMENT_MISSING",
        "s3://artifacts/groups/nowhere/node.json does not exist",
    ),
    ("schema-newer", "53 BOOT_DOCUMENT_SCHEMA", "the document has schema version 99, this script knows 1"),
    ("unreachable", "50 BOOT_UNREACHABLE", "s3://artifacts/groups/unreachable/"),
]


@pytest.mark.parametrize(("group", "name", "text"), FAULTS)
def test_a_fault_has_a_named_exit_a_line_and_abandons_the_launch(
    boots: Boots, group: str, name: str, text: str
) -> None:
    for record in boots.failed(group):
        console = boots.console(record["instanceId"])
        assert record["bootFailure"].startswith(f"{name}: ")
        (line,) = [line for line in console.splitlines() if "bootstrap: FAILED" in line]
        assert f"FAILED {name}: " in line
        assert text in line
        assert "was abandoned: Lifecycle Action Completed with ABANDON Result" in boots.end_of_launch(record)


@pytest.mark.parametrize("group", [fault[0] for fault in FAULTS])
def test_the_fault_is_in_the_clouds_log_too(boots: Boots, group: str) -> None:
    logs = client("logs", boots.aws.endpoint)
    (record, *_) = boots.failed(group)
    events = logs.get_log_events(
        logGroupName="/test/nodes", logStreamName=f"{group}/{record['instanceId']}/bootstrap"
    )["events"]
    assert events[0]["message"].strip() == f"bootstrap: FAILED {record['bootFailure']}"


@pytest.mark.parametrize("group", [fault[0] for fault in FAULTS])
def test_too_many_failed_boots_suspend_the_launches_with_an_alarm(boots: Boots, group: str) -> None:
    said = "".join(boots.console(record["instanceId"]) for record in boots.failed(group))
    assert f"launches of {group} are suspended" in said
    assert f"resume-processes --region {REGION} --auto-scaling-group-name {group}" in said
    alarms = client("cloudwatch", boots.aws.endpoint)

    def ringing() -> set[str]:
        found = alarms.describe_alarms(AlarmNamePrefix=f"{group}-")["MetricAlarms"]
        return {alarm["AlarmName"] for alarm in found if alarm["StateValue"] == "ALARM"}

    wait_until(lambda: ringing() == {f"{group}-SelfCheckFailed", f"{group}-LaunchesSuspended"}, "both alarms")


def test_an_abandoned_node_is_replaced_until_the_limit_is_passed(boots: Boots) -> None:
    assert len(boots.failed("release-hash")) == 2, "one replacement was allowed"
    assert len(boots.failed("document-missing")) == 1, "none was allowed"


def test_nothing_outside_the_folder_changes(boots: Boots) -> None:
    after = snapshot(boots.watched)
    assert {path for path in {*boots.before, *after} if boots.before.get(path) != after.get(path)} == set()
    (instance_id,) = boots.states("good")
    for process in marked(NODE_MARKER, instance_id):
        for path in open_for_writing(process.pid):
            assert path.is_relative_to(boots.local), f"{command_line(process.pid)} writes {path}"


def open_for_writing(pid: int) -> list[Path]:
    """Regular files that a process holds open for writing."""
    found = []
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        flags = Path(f"/proc/{pid}/fdinfo/{descriptor.name}").read_text().splitlines()[1].split()[1]
        if int(flags, 8) & os.O_ACCMODE != os.O_RDONLY and descriptor.resolve().is_file():
            found.append(descriptor.resolve())
    return found
