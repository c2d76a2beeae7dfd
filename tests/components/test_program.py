"""The whole program with each committed stack file: what it declares, for whom, and what must never change by
itself.

A child that is renamed or moved is replaced, and with it a bucket, a network or a fleet: the URNs of every
stack are stored beside this file. Where a change is meant, write them anew with `UPDATE_URNS=1`, read the
difference, and add an alias for what must not be replaced.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pulumi
import pytest

from components.catalog.prices import PRICES, Kind
from components.names import stack_tags
from components.settings import load
from tests.components.kit import Recording, leaves, record_program, record_stack
from tests.unit.stack_files import mapping_of, minimal

STACKS = ("local", "dev", "staging", "prod")
URNS = Path(__file__).parent / "urns"
CANARY = "canary-3f1d"


def run_minimal(**changes: Any) -> Recording:
    return record_program("test", {**minimal(), **changes})


@pytest.mark.parametrize("stack", STACKS)
class TestEveryStackFile:
    def test_declares_a_sound_stack(self, stack: str) -> None:
        record_stack(stack).assert_sound()

    def test_looks_nothing_up(self, stack: str) -> None:
        assert not record_stack(stack).calls

    def test_keeps_the_urns_of_its_resources(self, stack: str) -> None:
        stored = URNS / f"{stack}.txt"
        found = record_stack(stack).urn_lines()
        if os.environ.get("UPDATE_URNS"):
            stored.write_text("\n".join(found) + "\n")
        assert found == stored.read_text().splitlines(), (
            "resources would be replaced: see this file's docstring"
        )

    def test_gives_every_resource_a_provider_of_the_program(self, stack: str) -> None:
        recording = record_stack(stack)
        ours = {p.urn for p in recording.resources if p.type.startswith("pulumi:providers:")}
        for resource in recording.custom():
            if resource.urn not in ours:
                urn, _, _ = resource.request.provider.rpartition("::")
                package = resource.type.partition(":")[0]
                assert urn in ours and f"pulumi:providers:{package}" in urn, resource.name

    def test_touches_its_own_accounts_and_region_only(self, stack: str) -> None:
        settings = load(stack, mapping_of(stack))
        provider = record_stack(stack).one("pulumi:providers:aws")
        assert provider.inputs["region"] == settings.region
        assert json.loads(provider.inputs["allowedAccountIds"]) == settings.allowed_account_ids

    def test_tags_each_resource_once(self, stack: str) -> None:
        """A key both among the provider's default tags and on a resource is a change for ever."""
        default = stack_tags(load(stack, mapping_of(stack)))
        provider = record_stack(stack).one("pulumi:providers:aws")
        assert json.loads(provider.inputs["defaultTags"])["tags"] == default
        for resource in record_stack(stack).custom():
            if isinstance(tags := resource.inputs.get("tags"), dict):  # an Auto Scaling group has a list
                assert not tags.keys() & default.keys(), resource.name

    def test_exports_few_stable_outputs(self, stack: str) -> None:
        assert record_stack(stack).outputs.keys() == {
            "artifactsBucket",
            "datasetBuckets",
            "groups",
            "alertsTopicArn",
            "dashboardUrl",
            "researcherPolicyArn",
            "operatorPolicyArn",
            "sessionDocument",
            "hourlyCostUsd",
            "monthlyCostUsd",
            "costTable",
        }

    def test_declares_its_groups_with_the_names_it_exports(self, stack: str) -> None:
        groups = record_stack(stack).of_type("aws:autoscaling/group:Group")
        names = {group.inputs["name"] for group in groups}
        assert names == set(record_stack(stack).outputs["groups"].values())

    def test_puts_what_is_read_at_boot_where_it_is_looked_for(self, stack: str) -> None:
        settings = load(stack, mapping_of(stack))
        objects = record_stack(stack).of_type("aws:s3/bucketObjectv2:BucketObjectv2")
        folders = sorted(o.inputs["key"].split("/")[0] for o in objects)
        releases = len({group.image.profile for group in settings.gpu_groups})
        assert folders.count("groups") == len(settings.gpu_groups) and "cluster.json" in folders
        assert folders.count("releases") == releases

    def test_holds_nothing_twice_in_one_bucket(self, stack: str) -> None:
        objects = record_stack(stack).of_type("aws:s3/bucketObjectv2:BucketObjectv2")
        places = [(o.inputs["bucket"], o.inputs["key"]) for o in objects]
        assert len(set(places)) == len(places)


class TestRetention:
    def test_the_local_stack_leaves_nothing_behind_but_documents_in_a_bucket_that_goes(self) -> None:
        recording = record_stack("local")
        assert not any(r.request.protect for r in recording.resources)
        assert all(b.inputs["forceDestroy"] for b in recording.of_type("aws:s3/bucket:Bucket"))

    def test_production_protects_its_buckets_and_its_key(self) -> None:
        protected = {r.type for r in record_stack("prod").resources if r.request.protect}
        assert protected == {"aws:s3/bucket:Bucket", "aws:kms/key:Key"}
        assert all(b.request.protect for b in record_stack("prod").of_type("aws:s3/bucket:Bucket"))


class TestAnotherListPrice:
    @pytest.mark.parametrize("kind", ["on-demand", "spot"])
    def test_changes_cluster_json_alone_so_that_it_replaces_no_node(
        self, kind: Kind, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        group = {**minimal()["gpuGroups"][0], "rollout": "refresh", "purchase": {"spotPercent": 100}}
        before = run_minimal(gpuGroups=[group])
        row = kind, "g6.xlarge", "us-east-1"
        monkeypatch.setitem(PRICES, row, PRICES[row].model_copy(update={"low_usd": 0.3, "high_usd": 0.3}))
        after = run_minimal(gpuGroups=[group])
        old = {resource.urn: resource.inputs for resource in before.resources}
        assert old.keys() == {resource.urn for resource in after.resources}
        assert [r.name for r in after.resources if r.inputs != old[r.urn]] == ["cluster-cluster"]


class TestEncryption:
    def test_a_key_of_the_stacks_own_encrypts_buckets_volumes_logs_and_topics(self) -> None:
        recording = record_stack("prod")
        arn = "arn:aws:mock:us-east-1:123456789012:encryption-key"
        used = {
            resource.name
            for resource in recording.custom()
            for path, value in leaves(resource.inputs)
            if value == arn and path.endswith(("kmsMasterKeyId", "kmsKeyId"))
        }
        encryptions = {r.name for r in recording.custom() if "ServerSideEncryption" in r.type}
        encryptions -= {"access-logs-encryption"}  # log delivery takes no key
        kinds = (":LaunchTemplate", ":LogGroup", ":Topic")
        kept = {r.name for r in recording.custom() if r.type.endswith(kinds)}
        assert used == encryptions | kept

    def test_an_existing_key_is_used_and_not_made(self) -> None:
        arn = "arn:aws:kms:us-east-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"
        recording = run_minimal(kms={"mode": "existing", "keyArn": arn})
        assert not recording.of_type("aws:kms/key:Key")
        assert recording.one("aws:iam/rolePolicy:RolePolicy", "trainers-node-key").policy()[0][
            "Resource"
        ] == [arn]


class TestSecrets:
    MONITORING: dict[str, Any] = {"cluster": "existing", "kubeconfig": f"kubeconfig: {CANARY}"}  # noqa: RUF012

    def test_the_kubeconfig_is_secret_wherever_it_goes(self) -> None:
        recording = run_minimal(monitoring=self.MONITORING)
        seen = [
            (resource, path)
            for resource in recording.resources
            for path, value in leaves(resource.inputs)
            if CANARY in str(value)
        ]
        assert {resource.type for resource, _ in seen} == {"pulumi:providers:kubernetes"}
        assert all(any(path.startswith(secret) for secret in r.secrets) for r, path in seen)

    def test_no_secret_is_in_the_outputs(self) -> None:
        assert CANARY not in str(run_minimal(monitoring=self.MONITORING).outputs)


class TestFaults:
    """A person's mistake ends in one message, before any resource and without a trace."""

    def test_of_the_configuration(self) -> None:
        with pytest.raises(pulumi.RunError, match=r"gpu-training:gpuGroups\[0\]\.maxNodes"):
            groups = [{**minimal()["gpuGroups"][0], "maxNodes": 0}]
            run_minimal(gpuGroups=groups)

    def test_of_a_release_that_was_not_built(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("GPU_TRAINING_RELEASE", "/nowhere/release.json")
        with pytest.raises(pulumi.RunError, match="make release"):
            run_minimal()

    def test_of_an_image_whose_torch_was_not_built(self) -> None:
        image = {"profile": "dlami-base-ubuntu-24.04", "amiId": "ami-0123456789abcdef0"}
        with pytest.raises(pulumi.RunError, match=r"'dlami-base-ubuntu-24\.04' has no torch"):
            run_minimal(gpuGroups=[{**minimal()["gpuGroups"][0], "image": image}])
