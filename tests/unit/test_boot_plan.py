"""What nodes boot with: the documents as the trainer reads them, the release's manifest, the size of user
data.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from trainer.contracts import keys
from trainer.contracts.cluster import Cluster, HourlyPrice
from trainer.contracts.node_document import SCHEMA_VERSION, NodeDocument

from components.bootstrap import node_document as rendering
from components.bootstrap.boot_plan import BootPlan, cluster_document_of, plan_boot
from components.bootstrap.release import Release, ReleaseError, ReleaseFile, read_releases
from components.bootstrap.user_data import MAX_BYTES
from components.catalog.prices import PRICES, Kind
from components.compute.plan import plan_group
from components.settings import Settings, load
from tests.unit.stack_files import mapping_of, minimal

SHA = "a1" * 32
TORCH_SHA = "b2" * 32
RELEASE = Release(
    version="1.2.3",
    trainer={abi: ReleaseFile(Path(f"{abi}.tar"), SHA) for abi in ("cp312", "host")},
    torch={"cp312": ReleaseFile(Path("torch.tar"), TORCH_SHA)},
)


def settings_with(**group: Any) -> Settings:
    config = minimal()
    config["datasets"] = [{"name": "shapes"}]
    config["gpuGroups"][0].update(group)
    return load("test", config)


def boot(settings: Settings, release: Release = RELEASE) -> BootPlan:
    return plan_boot(settings, plan_group(settings, settings.gpu_groups[0]), release)


class TestTheNodeDocument:
    def test_the_trainer_reads_it_and_would_write_the_very_same_bytes(self) -> None:
        text = boot(settings_with()).document
        assert NodeDocument.from_json(text).to_json() == text

    def test_it_says_where_the_node_is_and_what_the_type_promises(self) -> None:
        document = NodeDocument.from_json(
            boot(settings_with(instanceTypes=["p5.48xlarge"], zones=["us-east-1a"])).document
        )
        assert (document.stack, document.group, document.region) == ("test", "trainers", "us-east-1")
        assert document.auto_scaling_group == "gputrain-test-trainers"
        assert document.artifacts_bucket == "gputrain-test-artifacts-123456789012"
        assert document.datasets["shapes"].bucket == "gputrain-test-data-shapes-123456789012"
        promise = document.promise
        assert (promise.gpu_model, promise.gpu_count, promise.efa_count) == ("H100", 8, 32)
        assert promise.accelerator == "nvidia" and promise.gpu_memory_gib == pytest.approx(80.0, rel=0.01)

    def test_torch_is_the_images_or_a_second_artifact(self) -> None:
        with_torch = NodeDocument.from_json(boot(settings_with()).document)
        assert with_torch.torch.artifact is None
        assert with_torch.torch.site_packages == "/opt/pytorch/lib/python3.12/site-packages"
        image = {"profile": "dlami-base-ubuntu-24.04", "amiId": "ami-0123456789abcdef0"}
        plan = boot(settings_with(image=image))
        artifact = NodeDocument.from_json(plan.document).torch.artifact
        assert artifact is not None and artifact.sha256 == TORCH_SHA
        assert [file.sha256 for file in plan.release_files] == [SHA, TORCH_SHA]

    def test_self_check_settings_are_passed_on(self) -> None:
        config = minimal()
        config["selfCheck"] = {
            "level": "full",
            "floorsTflops": {"bf16": 600.0},
            "onFailure": "report",
            "maxReplacements": 5,
        }
        check = NodeDocument.from_json(boot(load("test", config)).document).self_check
        assert (check.level, check.on_failure, check.max_replacements) == ("full", "report", 5)
        assert check.floors_tflops == {"bf16": 600.0}

    def test_user_data_names_the_document_by_the_hash_of_its_bytes(self) -> None:
        plan = boot(settings_with())
        sha256 = hashlib.sha256(plan.document.encode()).hexdigest()
        assert plan.document_key == keys.node_document("trainers", sha256)
        assert f"DOCUMENT_SHA256='{sha256}'" in plan.user_data
        assert f"s3://gputrain-test-artifacts-123456789012/{plan.document_key}'" in plan.user_data

    def test_nothing_changes_from_one_rendering_to_the_next(self) -> None:
        assert boot(settings_with()) == boot(settings_with())


class TestNamesInS3:
    def test_they_are_spelt_as_the_trainer_spells_them(self) -> None:
        assert rendering.artifact_key(SHA) == keys.trainer_release(SHA)
        assert keys.cluster() == rendering.CLUSTER_KEY
        assert rendering.dataset_prefix("shapes") == "datasets/shapes/"

    def test_the_script_knows_the_trainers_schema(self) -> None:
        assert rendering.SCHEMA_VERSION == SCHEMA_VERSION

    def test_names_agree_with_the_documents_defaults(self) -> None:
        fields = NodeDocument.model_fields
        assert fields["metric_namespace"].default == rendering.METRIC_NAMESPACE
        assert fields["training_port"].default == rendering.TRAINING_PORT


def test_cluster_json_is_what_a_researchers_machine_reads() -> None:
    text = cluster_document_of(settings_with())
    cluster = Cluster.from_json(text)
    assert cluster.to_json() == text
    assert cluster.groups["trainers"].auto_scaling_group == "gputrain-test-trainers"
    assert cluster.groups["trainers"].max_nodes == 2
    assert cluster.datasets["shapes"].prefix == "datasets/shapes/"


class TestListPrices:
    SPOT: dict[str, Any] = {  # noqa: RUF012 - read only
        "instanceTypes": ["g6.xlarge", "g6.2xlarge"],
        "purchase": {"spotPercent": 100, "maxPriceUsdPerHour": 0.6},
    }

    def test_are_the_nodes_to_read_where_a_new_one_replaces_none_of_them(self) -> None:
        group = Cluster.from_json(cluster_document_of(settings_with(**self.SPOT))).groups["trainers"]
        assert group.prices.keys() == {"g6.xlarge", "g6.2xlarge"}
        # Spot costs no more than what the group pays at most.
        assert group.prices["g6.xlarge"] == HourlyPrice(
            on_demand_usd=0.8048, spot_low_usd=0.4104, spot_high_usd=0.6, as_of="2025-06-28"
        )

    def test_of_a_type_without_any_are_left_out(self) -> None:
        config = {**minimal(), "region": "us-west-2", "network": {"availabilityZones": ["us-west-2a"]}}
        config["gpuGroups"][0]["instanceTypes"] = ["g6e.48xlarge"]
        assert Cluster.from_json(cluster_document_of(load("test", config))).groups["trainers"].prices == {}

    @pytest.mark.parametrize("kind", ["on-demand", "spot"])
    def test_that_are_new_change_cluster_json_and_nothing_that_a_node_boots_with(
        self, kind: Kind, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        settings = settings_with(**self.SPOT)
        before, cluster = boot(settings), cluster_document_of(settings)
        row = kind, "g6.xlarge", "us-east-1"
        changes = {"low_usd": 0.3, "high_usd": 0.3}
        monkeypatch.setitem(PRICES, row, PRICES[row].model_copy(update=changes))
        assert boot(settings) == before
        assert cluster_document_of(settings) != cluster


@pytest.mark.parametrize("stack", ["local", "dev", "staging", "prod"])
def test_user_data_of_every_stack_is_below_ec2s_limit(stack: str) -> None:
    settings = load(stack, mapping_of(stack))
    for group in settings.gpu_groups:
        size = len(plan_boot(settings, plan_group(settings, group), RELEASE).user_data.encode())
        assert size <= MAX_BYTES, f"{group.name}: {size} bytes"


class TestTheRelease:
    @pytest.fixture
    def manifest(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.delenv("GPU_TRAINING_RELEASE", raising=False)
        path = tmp_path / "dist" / "release.json"
        path.parent.mkdir()
        (path.parent / "trainer.tar").touch()
        entry = {"file": "trainer.tar", "sha256": SHA, "bytes": 1}
        path.write_text(json.dumps({"version": "1.0", "artifacts": {"cp312": entry}, "inputsSha256": "0"}))
        return path

    def test_its_files_lie_beside_the_manifest(self, manifest: Path, tmp_path: Path) -> None:
        release = read_releases(tmp_path).choose(None)
        assert release.trainer_for("cp312") == ReleaseFile(manifest.parent / "trainer.tar", SHA)

    def test_another_manifest_can_be_named(
        self, manifest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("GPU_TRAINING_RELEASE", str(manifest))
        assert read_releases(tmp_path / "elsewhere").choose(None).version == "1.0"

    def test_a_missing_one_names_the_command_that_builds_it(self, tmp_path: Path) -> None:
        with pytest.raises(ReleaseError, match=r"release.json is missing: run 'make release'"):
            read_releases(tmp_path)

    @pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": "1", "artifacts": {"cp312": {}}}'])
    def test_a_broken_one_too(self, manifest: Path, tmp_path: Path, text: str) -> None:
        manifest.write_text(text)
        with pytest.raises(ReleaseError, match=r"no manifest of a trainer release .*make release"):
            read_releases(tmp_path)

    def test_one_whose_files_are_gone_too(self, manifest: Path, tmp_path: Path) -> None:
        (manifest.parent / "trainer.tar").unlink()
        with pytest.raises(ReleaseError, match=r"trainer\.tar .* is missing: run 'make release'"):
            read_releases(tmp_path)

    def test_an_interpreter_that_was_not_built_for(self, manifest: Path, tmp_path: Path) -> None:
        with pytest.raises(ReleaseError, match=r"no artifact for cp310 \(it has: cp312\)"):
            read_releases(tmp_path).choose(None).trainer_for("cp310")

    def test_an_image_without_torch_and_a_release_without_it(self, manifest: Path, tmp_path: Path) -> None:
        with pytest.raises(ReleaseError, match=r"'dlami-base' has no torch .* none for cp312"):
            read_releases(tmp_path).choose(None).torch_for("cp312", "dlami-base")
