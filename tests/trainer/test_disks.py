"""A node's disks: what is planned from what lsblk tells, what is mounted with which commands, and what a fault leaves.

The plan of one disk is carried out for real, on a loop device with XFS. A RAID0 was never put together here: the
machines that run these tests have no md driver.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trainer.contracts.lustre import LustreDocument
from trainer.contracts.node_document import NodeDocument, Scratch
from trainer.disks import scratch
from trainer.disks.mounts import plan_mounts
from trainer.disks.prepare import COMMAND_SECONDS, CommandFailed, Disks, Host
from trainer.disks.report import DisksReport, why_not_mounted
from trainer.disks.scratch import MODEL, plan_scratch, read_lsblk
from trainer.errors import StoreError

PATH = "/mnt/scratch"
EBS = "Amazon Elastic Block Store"
LUSTRE = LustreDocument(
    file_system_id="fs-1", dns_name="fs-1.fsx.us-east-1.amazonaws.com", mount_name="abcd1234"
)


def node_document(**changes: Any) -> NodeDocument:
    values: dict[str, Any] = {
        "stack": "test",
        "group": "trainers",
        "auto_scaling_group": "test-trainers",
        "region": "us-east-1",
        "artifacts_bucket": "artifacts",
        "release": {"uri": "s3://artifacts/release.tar", "sha256": "0" * 64, "version": "0"},
        "interpreter": "/opt/pytorch/bin/python3",
        "torch": {"site_packages": "/opt/pytorch"},
        "promise": {"instance_type": "p5.48xlarge", "accelerator": "nvidia", "gpu_count": 8},
        "launching_hook": "launching",
        "terminating_hook": "terminating",
        "log_group": "/test/nodes",
    }
    return NodeDocument.model_validate(values | changes)


def datasets(read: dict[str, tuple[str, str]]) -> dict[str, dict[str, str]]:
    """Locations of datasets, each with its read path and folder."""
    return {
        name: {"bucket": f"b-{name}", "prefix": f"datasets/{name}/", "read_path": read_path, "path": path}
        for name, (read_path, path) in read.items()
    }


def device(name: str, model: str | None = None, type: str = "disk", **more: Any) -> dict[str, Any]:
    row = {"name": f"/dev/{name}", "model": model, "type": type, "mountpoint": None}
    return {**row, "fstype": None, "label": None, "uuid": None, **more}


def root_disk(name: str = "nvme0n1") -> dict[str, Any]:
    return device(name, EBS, children=[device(f"{name}p1", type="part", mountpoint="/", fstype="ext4")])


def nvme(number: int, **more: Any) -> dict[str, Any]:
    # The kernel fills the model up with blanks on some releases.
    return device(f"nvme{number}n1", f"{MODEL}  ", **more)


def lsblk(*devices: dict[str, Any]) -> str:
    """As ``lsblk --json`` of util-linux 2.37 to 2.41 prints it."""
    return json.dumps({"blockdevices": list(devices)})


def plan(*devices: dict[str, Any], path: str = PATH) -> scratch.ScratchPlan:
    return plan_scratch(read_lsblk(lsblk(*devices)), path)


ARRAY = device("md127", type="raid0", fstype="xfs", label="trainer-nvme", uuid="aaaa-bbbb")


class TestThePlanOfScratchSpace:
    """Report B18: scylladb#6184, #8907, #2749, #3547, scylla-machine-image#111."""

    def test_an_instance_without_such_disks_works_on_its_root_disk(self) -> None:
        assert plan(root_disk()) == scratch.ScratchPlan("this instance has no instance-store disk", (), False)

    def test_one_disk_needs_no_array(self) -> None:
        assert plan(root_disk(), nvme(1)).commands == (
            ("mkfs.xfs", "-K", "-f", "-q", "-L", "trainer-nvme", "/dev/nvme1n1"),
            ("mount", "-o", "noatime,nosuid,nodev", "/dev/nvme1n1", PATH),
        )

    def test_eight_disks_become_one_array_whatever_number_the_root_disk_got(self) -> None:
        disks = [nvme(n) for n in (0, 1, 2, 4, 5, 6, 7, 8)]
        create, settle, make, mount = plan(*disks, root_disk("nvme3n1")).commands
        assert create == (
            *("mdadm", "--create", "/dev/md/trainer", "--force", "--run", "--level=0"),
            *("--name=trainer", "--homehost=any", "--raid-devices=8"),
            *(f"/dev/nvme{n}n1" for n in (0, 1, 2, 4, 5, 6, 7, 8)),
        )
        assert settle[0] == "udevadm" and make[-1] == mount[3] == "/dev/md/trainer"

    def test_a_second_ebs_volume_is_no_scratch_space_though_it_is_empty(self) -> None:
        assert not plan(root_disk(), device("nvme1n1", EBS)).usable

    def test_disks_that_the_image_uses_are_left_alone(self) -> None:
        """AWS's images join them to a volume of their own, which may not be mounted yet."""
        volume = device("mapper/vg.01-lv_ephemeral", type="lvm", fstype="ext4", mountpoint="/opt/dlami/nvme")
        for child in (volume, {**volume, "mountpoint": None}, device("nvme1n1p1", type="part")):
            found = plan(root_disk(), nvme(1, fstype="LVM2_member", children=[child]), nvme(2))
            assert found.commands == () and not found.usable and "left alone" in found.told

    def test_what_is_mounted_there_already_stays_as_it_is(self) -> None:
        mounted = {**ARRAY, "mountpoint": PATH}
        found = plan(root_disk(), nvme(1, children=[mounted]), nvme(2, children=[mounted]))
        assert found.commands == () and found.usable

    def test_after_a_reboot_the_array_is_found_whatever_its_name_is_now(self) -> None:
        member = {"fstype": "linux_raid_member", "children": [ARRAY]}
        found = plan(root_disk(), nvme(1, **member), nvme(2, **member))
        assert found.commands == (("mount", "-o", "noatime,nosuid,nodev", "UUID=aaaa-bbbb", PATH),)

    def test_after_a_stop_and_start_leftovers_of_an_array_are_cleared_first(self) -> None:
        """One disk is new and empty, so the kernel started nothing, or something that is not whole."""
        found = plan(root_disk(), nvme(1, fstype="linux_raid_member"), nvme(2))
        assert found.commands[0] == ("mdadm", "--zero-superblock", "--force", "/dev/nvme1n1")
        assert found.commands[1][1] == "--create"
        broken = device("md127", type="md")
        found = plan(root_disk(), nvme(1, fstype="linux_raid_member", children=[broken]), nvme(2))
        assert [command[1] for command in found.commands[:3]] == ["--stop", "--zero-superblock", "--create"]

    def test_an_array_that_lost_a_disk_is_made_anew(self) -> None:
        member = {"fstype": "linux_raid_member", "children": [ARRAY]}
        found = plan(root_disk(), nvme(1, **member), nvme(2, **member), nvme(3))
        assert found.commands[0] == ("mdadm", "--stop", "/dev/md127")
        assert "--raid-devices=3" in found.commands[3]

    def test_somebody_elses_file_system_on_the_disks_is_not_taken_for_ours(self) -> None:
        other = {**ARRAY, "label": "data"}
        member = {"fstype": "linux_raid_member", "children": [other]}
        assert plan(nvme(1, **member), nvme(2, **member)).commands[0][:2] == ("mdadm", "--stop")
        assert plan(nvme(1, fstype="xfs", label="data", uuid="x")).commands[0][0] == "mkfs.xfs"

    def test_what_is_no_list_of_devices_is_told(self) -> None:
        with pytest.raises(ValueError, match="lsblk told something else"):
            read_lsblk('{"blockdevices": [{"model": "x"}]}')

    @given(
        st.lists(
            st.sampled_from([MODEL, EBS, None, "Samsung SSD 980", "amazon ec2 nvme instance storage"]),
            max_size=10,
        ),
        st.integers(0, 10),
        st.sampled_from(["/", "/boot", "[SWAP]", "/data"]),
    )
    def test_no_disk_is_touched_that_is_another_one_or_in_use(
        self, models: list[str | None], used: int, mountpoint: str
    ) -> None:
        rows = [
            device(f"nvme{n}n1", model, mountpoint=mountpoint if n == used else None)
            for n, model in enumerate(models)
        ]
        words = {word for command in plan(root_disk("xvda"), *rows).commands for word in command}
        for row in rows:
            if row["model"] != MODEL or row["mountpoint"]:
                assert row["name"] not in words
        assert "/dev/xvda" not in words


class TestTheMounts:
    def document(self, **reads: str) -> NodeDocument:
        return node_document(
            datasets=datasets({name: (read, f"/mnt/datasets/{name}") for name, read in reads.items()})
        )

    def test_copied_datasets_need_none(self) -> None:
        location = {"bucket": "b", "prefix": "datasets/a/"}
        assert plan_mounts(node_document(datasets={"a": location}), LUSTRE, PATH) == ()

    def test_a_bucket_is_mounted_read_only_below_its_prefix_with_a_cache_of_its_own_on_scratch(self) -> None:
        """Report E14 (ultralytics PR 12929): a bucket cannot rename, so a save through the mount fails. Nothing is ever
        written through it: checkpoints go by S3's own calls, their manifest last (test_checkpoint.py).
        """
        (mount,) = plan_mounts(self.document(corpus="mountpoint"), None, PATH)
        assert mount.command == (
            *("mount-s3", "--read-only", "--allow-other", "--metadata-ttl", "indefinite"),
            *("--prefix", "datasets/corpus/", "--region", "us-east-1"),
            *("--cache", "/mnt/scratch/mountpoint-cache/corpus"),
            *("b-corpus", "/mnt/datasets/corpus"),
        )

    def test_without_scratch_space_there_is_no_cache(self) -> None:
        (mount,) = plan_mounts(self.document(corpus="mountpoint"), None, None)
        assert "--cache" not in mount.command and mount.cache is None

    def test_the_file_system_is_mounted_once_for_all_its_datasets(self) -> None:
        """Report E6 (awsome-distributed-ai#632): the mount is one of the network; no line in fstab holds a boot up."""
        (mount,) = plan_mounts(self.document(a="lustre", b="lustre"), LUSTRE, None)
        assert mount.command == (
            *("mount", "-t", "lustre", "-o", "noatime,flock,_netdev,nosuid,nodev"),
            *("fs-1.fsx.us-east-1.amazonaws.com@tcp:/abcd1234", "/mnt/lustre"),
        )


@dataclass
class FakeHost(Host):
    """Writes down what is done; `answers` are what a program says at its calls, the last one for ever."""

    mounted: set[str] = field(default_factory=set)
    programs: set[str] = field(default_factory=lambda: {"mount.lustre", "mount-s3"})
    answers: dict[str, list[str | CommandFailed]] = field(default_factory=dict)
    commands: list[tuple[str, ...]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    now: float = 0.0
    hangs: bool = False  # every mount takes all the time that it is given

    def is_mount(self, path: str) -> bool:
        return path in self.mounted

    def has(self, program: str) -> bool:
        return program in self.programs

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def clock(self) -> float:
        return self.now

    def log(self, line: str) -> None:
        self.lines.append(line)

    def run(self, command: tuple[str, ...], limit_seconds: float = COMMAND_SECONDS) -> str:
        self.commands.append(command)
        if self.hangs:
            self.now += limit_seconds
            raise CommandFailed(f"{command[0]} took longer than {limit_seconds:.0f} s")
        self.now += 1
        left = self.answers.get(command[0], [""])
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, CommandFailed):
            raise answer
        return answer

    @property
    def programs_run(self) -> list[str]:
        return [command[0] for command in self.commands]


@dataclass
class Node:
    """A node below a test's folder."""

    folder: Path
    host: FakeHost = field(default_factory=FakeHost)

    @property
    def scratch(self) -> Path:
        return self.folder / "scratch"

    def path(self, dataset: str) -> str:
        return str(self.folder / "datasets" / dataset)

    def prepare(
        self, owner: str | None = "node", lustre: Any = lambda key: LUSTRE, **reads: str
    ) -> DisksReport:
        document = node_document(
            datasets=datasets({name: (read, self.path(name)) for name, read in reads.items()}),
            scratch={"owner": owner, "path": str(self.scratch)} if owner else None,
            lustre_key="lustre.json" if "lustre" in reads.values() else None,
        )
        return Disks(document, lustre, (os.getuid(), os.getgid()), self.host).prepare()


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


class TestPreparing:
    def test_scratch_space_is_made_and_its_folder_is_the_agents_alone(self, node: Node) -> None:
        node.host.answers["lsblk"] = [lsblk(root_disk(), nvme(1))]
        report = node.prepare()
        assert node.host.programs_run == ["lsblk", "mkfs.xfs", "mount"]
        assert report.scratch == f"1 instance-store disk: a new file system, at {node.scratch}"
        assert (node.scratch / "trainer").stat().st_mode & 0o777 == 0o700

    @pytest.mark.parametrize("program", ["lsblk", "mkfs.xfs", "mount"])
    def test_a_fault_of_scratch_space_is_told_and_the_node_works_on_its_root_disk(
        self, node: Node, program: str
    ) -> None:
        """Report B18 (scylladb#2749): a node whose disks could not be put together did not start at all."""
        node.host.answers["lsblk"] = [lsblk(root_disk(), nvme(1))]
        node.host.answers[program] = [CommandFailed(f"{program} is not on the image")]
        report = node.prepare()
        assert report.scratch == f"FAILED: {program} is not on the image; working on the root disk"
        assert not report.failures and report.scratch in node.host.lines[0]

    def test_disks_that_the_image_owns_are_waited_for_and_not_looked_at(self, node: Node) -> None:
        node.host.mounted.add(str(node.scratch))
        assert node.prepare("image").scratch == f"made by the image, at {node.scratch}"
        assert node.host.commands == []

    def test_an_image_that_mounts_nothing_is_waited_for_one_minute(self, node: Node) -> None:
        report = node.prepare("image")
        assert "the image mounted nothing" in report.scratch and "root disk" in report.scratch
        assert 60 <= node.host.now <= 65

    def test_a_link_in_place_of_the_agents_folder_is_refused(self, node: Node, tmp_path: Path) -> None:
        node.host.mounted.add(str(node.scratch))
        node.scratch.mkdir()
        (tmp_path / "etc").mkdir(mode=0o755)
        (node.scratch / "trainer").symlink_to(tmp_path / "etc")
        assert "is a link" in node.prepare("image").scratch
        assert (tmp_path / "etc").stat().st_mode & 0o777 == 0o755

    def test_a_mount_that_fails_at_first_is_tried_again_with_growing_pauses(self, node: Node) -> None:
        """Reports E6 and E7 (awsome-distributed-ai#632, #678, #679, #680): network and names are late at boot, and
        nothing tried again.
        """
        late = CommandFailed("mount ended with 1: Can't parse NID 'fs-1@tcp'")
        node.host.answers["mount"] = [late, late, late, ""]
        assert node.prepare(None, a="lustre").failures == {}
        assert node.host.programs_run == ["mount"] * 4
        assert node.host.now == 4 + (1 + 2 + 4)

    def test_a_mount_that_never_comes_ends_within_the_launching_hooks_time(self, node: Node) -> None:
        node.host.answers["mount-s3"] = [CommandFailed("mount-s3 ended with 1: Forbidden")]
        report = node.prepare(None, **dict.fromkeys("abcdefgh", "mountpoint"))
        assert report.failures == {node.path(name): "mount-s3 ended with 1: Forbidden" for name in "abcdefgh"}
        assert node.host.now < 330, "the hook takes a node for lost after 900 s"

    def test_many_mounts_that_hang_end_before_the_unit_is_ended(self, node: Node) -> None:
        node.host.hangs = True
        report = node.prepare(None, **dict.fromkeys("abcdefgh", "mountpoint"))
        assert len(report.failures) == 8 and node.host.now < 400, "the unit is ended after 480 s"

    def test_one_mount_that_fails_keeps_no_other_from_being_made(self, node: Node) -> None:
        node.host.answers["mount"] = [CommandFailed("no server")]
        report = node.prepare(None, a="lustre", b="mountpoint")
        assert set(report.failures) == {"/mnt/lustre"} and node.host.programs_run[-1] == "mount-s3"

    def test_a_program_that_the_image_lacks_is_named_and_not_tried(self, node: Node) -> None:
        node.host.programs.clear()
        report = node.prepare(None, a="lustre", b="mountpoint")
        assert report.failures == {
            "/mnt/lustre": "the image has no Lustre client (mount.lustre)",
            node.path("b"): "the image has no Mountpoint for Amazon S3 (mount-s3)",
        }
        assert node.host.commands == []

    def test_what_is_mounted_already_is_not_mounted_twice(self, node: Node) -> None:
        node.host.mounted |= {"/mnt/lustre", node.path("b")}
        assert node.prepare(None, a="lustre", b="mountpoint").failures == {}
        assert node.host.commands == []

    def test_a_file_system_that_nobody_described_is_told(self, node: Node) -> None:
        def read(key: str) -> LustreDocument:
            raise StoreError(f"there is no s3://bucket/{key}")

        report = node.prepare(None, read, a="lustre")
        assert report.failures == {
            "/mnt/lustre": "lustre.json could not be read: there is no s3://bucket/lustre.json"
        }

    def test_a_cache_is_roots_alone_since_objects_lie_there_in_the_clear(self, node: Node) -> None:
        node.host.mounted.add(str(node.scratch))
        node.prepare("image", corpus="mountpoint")
        cache = node.scratch / "mountpoint-cache" / "corpus"
        assert cache.stat().st_mode & 0o777 == 0o700
        assert str(cache) in node.host.commands[0]


class TestCommands:
    def test_what_hangs_is_given_up_also_where_no_signal_ends_it(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As a mount that waits in the kernel for a server (state D): it is not waited for."""
        killed: list[Any] = []
        monkeypatch.setattr(subprocess.Popen, "kill", lambda process: killed.append(process))
        try:
            with pytest.raises(CommandFailed, match="sleep took longer than 0 s"):
                Host().run(("sleep", "300"), limit_seconds=0.1)
            assert killed[0].poll() is None
        finally:
            monkeypatch.undo()
            for process in killed:
                process.kill()
                process.communicate()

    def test_the_last_line_that_it_said_is_told(self) -> None:
        with pytest.raises(CommandFailed, match=r"^sh ended with 3: no server$"):
            Host().run(("sh", "-c", "echo mounting; echo no server >&2; exit 3"))
        assert Host().run(("echo", "done")) == "done\n"


class TestTheReport:
    def test_it_says_why_a_folder_below_a_mount_is_not_there(self, tmp_path: Path) -> None:
        report = tmp_path / "report.json"
        assert "left no report" in why_not_mounted("/mnt/lustre/datasets/a", report)
        report.write_text(DisksReport(scratch="none", failures={"/mnt/lustre": "no server"}).to_json())
        assert why_not_mounted("/mnt/lustre/datasets/a", report) == "no server"
        assert "did not mount it" in why_not_mounted("/mnt/datasets/a", report)


@pytest.fixture
def loop_device(tmp_path: Path) -> Iterator[str]:
    """A disk of 320 MiB, somewhat above the least that mkfs.xfs makes."""
    image = tmp_path / "disk.img"
    with open(image, "wb") as file:
        file.truncate(320 << 20)
    found = subprocess.run(["losetup", "--find", "--show", image], capture_output=True, text=True)
    if found.returncode:
        pytest.fail(f"this test needs root and a loop device: {found.stderr}")
    name = found.stdout.strip()
    try:
        yield name
    finally:
        subprocess.run(["losetup", "--detach", name], check=True)


@pytest.mark.loop_disk
def test_one_disk_becomes_scratch_space_for_real_and_is_found_again(loop_device: str, tmp_path: Path) -> None:
    """mkfs.xfs, mount and the agent's folder on a loop device; only its model is made up."""
    target = tmp_path / "scratch"
    own, agent = Path(loop_device).name, (12345, 12345)
    document = node_document(scratch=Scratch(owner="node", path=str(target)))

    class LoopHost(Host):
        def __init__(self, **more: Any) -> None:
            self.row = nvme(1) | {"name": f"/dev/{own}"} | more

        def run(self, command: tuple[str, ...], limit_seconds: float = COMMAND_SECONDS) -> str:
            return lsblk(root_disk(), self.row) if command[0] == "lsblk" else super().run(command)

    def blkid(tag: str) -> str:
        command = ["blkid", "--probe", "--output", "value", "--match-tag", tag, loop_device]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    report = Disks(document, lambda key: LUSTRE, agent, LoopHost()).prepare()
    try:
        assert report.scratch == f"1 instance-store disk: a new file system, at {target}"
        kind, options = next(
            (line.split()[2], line.split()[3].split(","))
            for line in Path("/proc/mounts").read_text().splitlines()
            if line.split()[1] == str(target)
        )
        assert kind == "xfs" and {"noatime", "nosuid", "nodev"} <= set(options)
        folder = target / "trainer"
        assert (folder.stat().st_uid, folder.stat().st_gid) == agent
        (folder / "data").write_text("of before the reboot")
        uuid = blkid("UUID")
    finally:
        subprocess.run(["umount", target], check=False)
    assert blkid("LABEL") == scratch.LABEL
    found = LoopHost(fstype="xfs", label=scratch.LABEL, uuid=uuid)
    report = Disks(document, lambda key: LUSTRE, agent, found).prepare()
    try:
        assert "of before the reboot" in report.scratch
        assert (target / "trainer" / "data").read_text() == "of before the reboot"
    finally:
        subprocess.run(["umount", target], check=False)
