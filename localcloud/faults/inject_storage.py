"""Faults of disks, and of what a node boots from."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable

from trainer.contracts import keys
from trainer.contracts.node_document import SCHEMA_VERSION
from trainer.exit_codes import Exit

from . import disks
from .inject_node import crash_node
from .node import LiveNode
from .scene import Scene

SMALL_MEBIBYTES = 8
SHM = "/dev/shm"  # noqa: S108 - a node's own, which is to be full


def disk_full(scene: Scene) -> None:
    _harm_checkpoint_disk(scene, disks.fill)


def disk_read_only(scene: Scene) -> None:
    _harm_checkpoint_disk(scene, disks.read_only)


def _harm_checkpoint_disk(scene: Scene, harm: Callable[[LiveNode, str], None]) -> None:
    """The leader's, since rank 0 writes; a small one in its place, so that the harm is the run's alone."""
    folder, leader = disks.checkpoints_folder(scene.run), scene.leader
    disks.mount_small(leader, folder, SMALL_MEBIBYTES)
    scene.undo.callback(disks.unmount, leader, folder)
    scene.mark()
    harm(leader, folder)


def shm_full(scene: Scene) -> None:
    node = scene.follower
    node.inside("mount", "-o", "remount,size=16m", SHM, mounts=True)
    scene.undo.callback(node.inside, "mount", "-o", "remount,size=50%", SHM, mounts=True)
    scene.undo.callback(disks.free, node, SHM)
    scene.mark()
    disks.fill(node, SHM)


def corrupt_release(scene: Scene) -> None:
    found = scene.facts.s3.list_objects_v2(Bucket=scene.facts.bucket, Prefix="releases/trainer/")["Contents"]
    _boot_from_corrupt(scene, [entry["Key"] for entry in found], Exit.BOOT_RELEASE_HASH)


def corrupt_document(scene: Scene) -> None:
    found = scene.facts.s3.list_objects_v2(Bucket=scene.facts.bucket, Prefix="groups/")["Contents"]
    documents = [entry["Key"] for entry in found if re.search(r"/node-[0-9a-f]{64}\.json$", entry["Key"])]
    _boot_from_corrupt(scene, documents, Exit.BOOT_DOCUMENT_HASH)


def _boot_from_corrupt(scene: Scene, objects: list[str], code: Exit) -> None:
    """A node's replacement meets them, says so by its code and is given up; with the right bytes the next one boots."""
    good = {key: scene.facts.get(key) or b"" for key in objects}
    for key, body in good.items():
        _put(scene, key, body[:-1] + bytes([body[-1] ^ 1]))
    try:
        crash_node(scene)
        scene.wait_stopped(code, 90)
    finally:
        for key, body in good.items():
            _put(scene, key, body)
    scene.healed()
    # The circuit breaker may have suspended launches by now, as it should: a person resumes them.
    scene.facts.autoscaling.resume_processes(AutoScalingGroupName=scene.group)


def newer_schema(scene: Scene) -> None:
    """A template that names a document of a later program: its nodes refuse, the old template's would not."""
    ec2 = scene.facts.ec2
    answer = scene.facts.autoscaling.describe_auto_scaling_groups(AutoScalingGroupNames=[scene.group])
    instance = answer["AutoScalingGroups"][0]["Instances"][0]
    template = instance["LaunchTemplate"]["LaunchTemplateId"]
    versions = ec2.describe_launch_template_versions(
        LaunchTemplateId=template, Versions=[instance["LaunchTemplate"]["Version"]]
    )
    data = dict(versions["LaunchTemplateVersions"][0]["LaunchTemplateData"])
    user_data = base64.b64decode(data["UserData"]).decode()
    uri = _value(user_data, "DOCUMENT_URI")
    key = uri.removeprefix(f"s3://{scene.facts.bucket}/")
    document = json.loads(scene.facts.get(key) or b"{}") | {"schemaVersion": SCHEMA_VERSION + 1}
    body = json.dumps(document).encode()
    sha256 = hashlib.sha256(body).hexdigest()
    newer = keys.node_document(document["group"], sha256)
    _put(scene, newer, body)
    user_data = user_data.replace(key, newer).replace(_value(user_data, "DOCUMENT_SHA256"), sha256)
    data["UserData"] = base64.b64encode(user_data.encode()).decode()
    made = ec2.create_launch_template_version(LaunchTemplateId=template, LaunchTemplateData=data)
    number = str(made["LaunchTemplateVersion"]["VersionNumber"])
    _use_version(scene, template, number)
    try:
        crash_node(scene)
        scene.wait_stopped(Exit.BOOT_DOCUMENT_SCHEMA, 90)
    finally:
        _use_version(scene, template, instance["LaunchTemplate"]["Version"])
    scene.healed()
    scene.facts.autoscaling.resume_processes(AutoScalingGroupName=scene.group)


def _use_version(scene: Scene, template: str, version: str) -> None:
    answer = scene.facts.autoscaling.describe_auto_scaling_groups(AutoScalingGroupNames=[scene.group])
    policy = answer["AutoScalingGroups"][0]["MixedInstancesPolicy"]
    specification = {"LaunchTemplateId": template, "Version": version}
    policy["LaunchTemplate"]["LaunchTemplateSpecification"] = specification
    scene.facts.autoscaling.update_auto_scaling_group(
        AutoScalingGroupName=scene.group, MixedInstancesPolicy=policy
    )


def _value(user_data: str, name: str) -> str:
    found = re.search(rf"^{name}=(['\"]?)(.+?)\1$", user_data, re.MULTILINE)
    if found is None:
        raise ValueError(f"user data sets no {name}")
    return found[2]


def _put(scene: Scene, key: str, body: bytes) -> None:
    scene.facts.s3.put_object(Bucket=scene.facts.bucket, Key=key, Body=body)
