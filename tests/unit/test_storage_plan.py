"""What a file system is made of, and what nodes are told about where data lies on them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trainer.disks import mounts

from components.catalog import IMAGE_PROFILES, instance_type
from components.catalog.instance_types import InstanceStore
from components.settings import Settings, load
from components.storage.lustre_plan import MOUNT_POINT, LustrePlan, plan_lustre
from components.storage.node_storage import plan_node_scratch, read_paths
from tests.unit.stack_files import minimal

DLAMI = IMAGE_PROFILES["dlami-pytorch-ubuntu-24.04"]
PLAIN = DLAMI.model_copy(update={"nvme_owner": "none"})


def settings(datasets: list[dict[str, Any]], **lustre: Any) -> Settings:
    config = minimal()
    zone = config["network"]["availabilityZones"][0]
    config["datasets"] = datasets
    config["lustre"] = {"zone": zone, "capacityGib": 4800, **lustre}
    return load("test", config)


def plan(**lustre: Any) -> LustrePlan:
    found = plan_lustre(settings([{"name": "corpus", "readPath": "lustre"}], **lustre))
    assert found is not None
    return found


class TestTheFileSystem:
    @pytest.mark.parametrize(
        ("asked", "mbps_per_tib", "mbps"),
        [
            ({}, 125, 585.9375),  # 4800 GiB are 4.6875 TiB
            ({"throughputMbpsPerTib": 1000}, 1000, 4687.5),
            ({"throughputMbpsPerTib": 250, "capacityGib": 9600}, 250, 2343.75),
            ({"deployment": "SCRATCH_2"}, 200, 937.5),
        ],
    )
    def test_throughput_goes_with_the_capacity(
        self, asked: dict[str, Any], mbps_per_tib: int, mbps: float
    ) -> None:
        found = plan(**asked)
        assert (found.throughput_mbps_per_tib, found.throughput_mbps) == (mbps_per_tib, mbps)
        assert found.per_unit_storage_throughput == (mbps_per_tib if found.is_persistent else None)

    def test_a_stack_without_one_has_no_plan(self) -> None:
        assert plan_lustre(load("test", minimal())) is None

    @given(st.sets(st.from_regex(r"[a-z][a-z0-9-]{0,12}", fullmatch=True), max_size=8))
    def test_no_link_lies_within_another_whatever_the_datasets_are_called(self, names: set[str]) -> None:
        """FSx refuses overlapping paths, in the file system and in S3."""
        found = plan_lustre(settings([{"name": name, "readPath": "lustre"} for name in sorted(names)]))
        assert found is not None and len(found.links) == len(names)
        folders = [f"{link.file_system_path}/" for link in found.links]
        for paths in (folders, [link.data_repository_path for link in found.links]):
            assert not [(a, b) for a in paths for b in paths if a != b and a.startswith(b)]


class TestWhatNodesAreTold:
    def test_copied_datasets_have_no_folder_mounted_ones_have_one_each(self) -> None:
        found = read_paths(
            settings(
                [
                    {"name": "shapes"},
                    {"name": "corpus", "readPath": "lustre"},
                    {"name": "texts", "readPath": "mountpoint"},
                ]
            )
        )
        assert found == {
            "corpus": ("lustre", "/mnt/lustre/datasets/corpus"),
            "texts": ("mountpoint", "/mnt/datasets/texts"),
        }

    def test_program_and_node_agree_on_where_the_file_system_is_mounted(self) -> None:
        assert MOUNT_POINT == mounts.LUSTRE_PATH

    def test_the_instance_store_is_the_images_or_the_nodes(self) -> None:
        types = [instance_type("p5.48xlarge")]
        assert plan_node_scratch(DLAMI, types) == ("image", "/opt/dlami/nvme")
        assert plan_node_scratch(PLAIN, types) == ("node", "/mnt/scratch")

    @pytest.mark.parametrize("store", [None, InstanceStore(disks=0, gb_each=0)])
    def test_types_without_instance_store_have_none(self, store: InstanceStore | None) -> None:
        without = instance_type("p5.48xlarge").model_copy(update={"instance_store": store})
        assert plan_node_scratch(DLAMI, [without]) is None
        assert plan_node_scratch(DLAMI, [without, instance_type("p5.48xlarge")]) is not None

    def test_nodes_of_the_local_cloud_never_touch_the_disks_of_their_machine(self) -> None:
        assert plan_node_scratch(IMAGE_PROFILES["local"], [instance_type("p5.48xlarge")]) is None
