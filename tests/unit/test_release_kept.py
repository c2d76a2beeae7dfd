"""Five releases are kept: which ones, what the program puts into the bucket, and how a stack is rolled back."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from trainer.contracts.cluster import Cluster
from trainer.contracts.node_document import NodeDocument

from components.bootstrap.boot_plan import cluster_document_of, plan_boot
from components.bootstrap.node_document import SCHEMA_VERSION
from components.bootstrap.release import (
    Release,
    ReleaseError,
    ReleaseFile,
    Releases,
    artifact_name,
    read_releases,
)
from components.compute.plan import plan_group
from components.settings import Settings, load
from localcloud import release, releases_kept
from tests.unit.stack_files import minimal

TODAY = date(2026, 11, 30)


def tar(name: str) -> ReleaseFile:
    return ReleaseFile(Path(f"{name}.tar"), name)


def kept(*versions: str, schema: int = SCHEMA_VERSION) -> Releases:
    return Releases(
        tuple(Release(v, {"cp312": tar(f"{v}-a"), "host": tar(f"{v}-h")}, {}, schema) for v in versions)
    )


class TestTheChoice:
    RELEASES = kept("0.2.0-bb", "0.1.0-ab", "0.1.0-aa")

    def test_without_a_wish_it_is_the_newest(self) -> None:
        assert self.RELEASES.choose(None).version == "0.2.0-bb"

    def test_a_build_is_chosen_by_its_whole_version_and_the_newest_build_by_the_number(self) -> None:
        assert self.RELEASES.choose("0.1.0-aa").version == "0.1.0-aa"
        assert self.RELEASES.choose("0.1.0").version == "0.1.0-ab"

    def test_one_that_is_not_kept_is_a_fault_that_lists_those_that_are(self) -> None:
        with pytest.raises(ReleaseError) as fault:
            self.RELEASES.choose("0.1.0-ac")
        assert str(fault.value) == (
            "gpu-training:trainerVersion: no release '0.1.0-ac' is kept; there are 0.2.0-bb, 0.1.0-ab, 0.1.0-aa "
            "(nearest match: 0.1.0-ab)"
        )

    @pytest.mark.parametrize("schema", [SCHEMA_VERSION - 1, SCHEMA_VERSION + 1])
    def test_one_that_cannot_read_todays_documents_is_refused_before_a_node_boots(self, schema: int) -> None:
        with pytest.raises(ReleaseError, match=rf"of schema {schema}, this program writes {SCHEMA_VERSION}"):
            kept("0.1.0-aa", schema=schema).choose("0.1.0")


class TestTheBucket:
    def test_holds_the_kept_releases_for_the_images_in_use_and_no_others(self) -> None:
        releases = kept("3", "2", "1")
        used = [releases.choose("2").trainer_for("cp312")]
        assert {file.sha256 for file in releases.files(used)} == {"3-a", "2-a", "1-a"}

    def test_names_each_tar_once(self) -> None:
        releases = kept("2", "1")
        used = [releases.kept[0].trainer_for("cp312")] * 2
        assert [file.sha256 for file in releases.files(used)] == ["2-a", "1-a"]

    def test_holds_torch_where_an_image_needs_it(self) -> None:
        both = Releases((Release("2", {"cp312": tar("2")}, {"cp312": tar("t")}), *kept("1").kept))
        used = [tar("2"), tar("t")]
        assert {file.sha256 for file in both.files(used)} == {"2", "t", "1-a"}


def test_tars_of_another_architecture_have_a_name_of_their_own() -> None:
    assert artifact_name("cp312", "x86_64") == "cp312"
    assert artifact_name("cp312", "arm64") == "cp312-arm64"
    assert release.Target.of("cp312-arm64").machine == "aarch64"


class TestTheManifest:
    def row(self, folder: Path, version: str) -> dict[str, Any]:
        (folder / f"trainer-{version}.tar").write_text(version)
        file = {"file": f"trainer-{version}.tar", "sha256": version, "bytes": len(version)}
        return {
            "version": version,
            "date": "2026-11-30",
            "artifacts": {"cp312": file},
            "inputsSha256": version,
        }

    def write(self, folder: Path, versions: list[str]) -> dict[str, Any]:
        manifest: dict[str, Any] = {}
        for version in versions:
            others = releases_kept.read(folder / "release.json")
            manifest = releases_kept.write(folder / "release.json", self.row(folder, version), others)
        return manifest

    def test_keeps_the_five_newest_and_removes_the_tars_of_older_ones(self, tmp_path: Path) -> None:
        manifest = self.write(tmp_path, list("1234567"))
        assert [manifest["version"], *(row["version"] for row in manifest["kept"])] == list("76543")
        assert sorted(path.name for path in tmp_path.glob("*.tar")) == [f"trainer-{n}.tar" for n in "34567"]

    def test_is_what_the_program_reads(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.write(tmp_path, ["1", "2"])
        monkeypatch.setenv("GPU_TRAINING_RELEASE", str(tmp_path / "release.json"))
        releases = read_releases(tmp_path)
        assert [one.version for one in releases.kept] == ["2", "1"]
        assert releases.choose("1").trainer_for("cp312").path == tmp_path / "trainer-1.tar"

    def test_a_release_that_is_built_anew_stays_one(self, tmp_path: Path) -> None:
        manifest = self.write(tmp_path, ["1", "2", "1"])
        assert [manifest["version"], *(row["version"] for row in manifest["kept"])] == ["1", "2"]

    def test_one_whose_tar_is_gone_is_no_longer_kept(self, tmp_path: Path) -> None:
        self.write(tmp_path, ["1", "2"])
        (tmp_path / "trainer-1.tar").unlink()
        assert [row["version"] for row in releases_kept.read(tmp_path / "release.json")] == ["2"]

    @pytest.mark.parametrize("text", ["", "[]", "{}", '{"artifacts": {"cp312": {}}}'])
    def test_a_broken_one_is_none(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "release.json").write_text(text)
        assert releases_kept.read(tmp_path / "release.json") == []


class TestBuilding:
    @pytest.fixture
    def bench(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """A trainer of three files and no dependencies."""
        package = tmp_path / "trainer" / "src" / "trainer" / "contracts"
        package.mkdir(parents=True)
        (package / "node_document.py").write_text("SCHEMA_VERSION = 1\n")
        (package.parent / "__init__.py").write_text("one = 1\n")
        (tmp_path / "trainer" / "pyproject.toml").write_text(
            '[project]\nname = "t"\nversion = "1.2.0"\ndescription = ""\nrequires-python = ">=3.10"\n'
            'license = "x"\ndependencies = []\n[project.scripts]\nt = "t:t"\n'
        )
        (tmp_path / "lock.txt").write_text("")
        monkeypatch.setattr(release, "download", lambda *_: [])
        return tmp_path

    def build(self, bench: Path, body: str, abis: tuple[str, ...] = ("cp312",)) -> dict[str, Any]:
        (bench / "trainer" / "src" / "trainer" / "__init__.py").write_text(body)
        return release.build(bench / "trainer", bench / "lock.txt", bench / "dist", abis, bench, TODAY)

    def test_a_release_is_named_by_number_and_source_and_says_its_day_and_schema(self, bench: Path) -> None:
        built = self.build(bench, "one = 1\n")
        assert built["version"].startswith("1.2.0-") and len(built["version"]) == len("1.2.0-") + 8
        assert (built["date"], built["nodeDocumentSchema"]) == ("2026-11-30", 1)

    def test_the_same_source_is_the_same_release_whatever_it_is_built_for(self, bench: Path) -> None:
        one = self.build(bench, "one = 1\n")
        two = self.build(bench, "one = 1\n", ("cp310", "cp312"))
        assert one["version"] == two["version"] and "kept" not in two

    def test_going_back_to_an_older_source_brings_back_its_very_tars(self, bench: Path) -> None:
        one = self.build(bench, "one = 1\n")
        self.build(bench, "two = 2\n")
        again = self.build(bench, "one = 1\n")
        assert again["artifacts"] == one["artifacts"] and len(again["kept"]) == 1

    def test_a_trainer_without_a_schema_is_refused(self, bench: Path) -> None:
        (bench / "trainer" / release.SCHEMA_FILE).write_text("")
        with pytest.raises(release.ReleaseError, match="names no SCHEMA_VERSION"):
            self.build(bench, "")


def with_later_keys(value: Any) -> Any:
    """A document as a later program would write it: one more key in every section, at every depth."""
    if isinstance(value, BaseModel):
        fields = type(value).model_fields.items()
        known = {field.alias or name: with_later_keys(getattr(value, name)) for name, field in fields}
        return {**known, "cameLater": {"deep": [1]}}
    if isinstance(value, dict):
        return {key: with_later_keys(item) for key, item in value.items()}
    return value


class TestAnOlderTrainer:
    """It has the models of its own time: keys that came later are unknown to it."""

    SETTINGS: Settings = load("test", {**minimal(), "datasets": [{"name": "shapes"}]})

    def test_reads_todays_node_document(self) -> None:
        release_ = Release("1", {"cp312": ReleaseFile(Path("1.tar"), "a1" * 32)}, {})
        plan = plan_group(self.SETTINGS, self.SETTINGS.gpu_groups[0])
        today = NodeDocument.from_json(plan_boot(self.SETTINGS, plan, release_).document)
        later = json.dumps(with_later_keys(today))
        assert later.count("cameLater") >= 5
        assert NodeDocument.from_json(later) == today

    def test_reads_todays_cluster_document(self) -> None:
        today = Cluster.from_json(cluster_document_of(self.SETTINGS))
        later = json.dumps(with_later_keys(today))
        assert later.count("cameLater") >= 3
        assert Cluster.from_json(later) == today
