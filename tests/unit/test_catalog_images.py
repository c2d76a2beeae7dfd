"""Which image serves which instance type, and why not."""

from __future__ import annotations

from datetime import date

import pytest

from components.catalog import (
    IMAGE_PROFILES,
    INSTANCE_TYPES,
    NAMES_WITHOUT_FACTS,
    image_profile,
    images_for,
    instance_type,
    why_unserved,
)

TYPES = list(INSTANCE_TYPES.values())


class TestImages:
    def test_a_type_has_an_image_or_a_reason_why_not(self) -> None:
        for type_ in TYPES:
            assert bool(images_for(type_)) == (why_unserved(type_) is None)

    def test_which_families_no_image_serves_and_why(self) -> None:
        unserved = {type_.family: why_unserved(type_) for type_ in TYPES if not images_for(type_)}
        assert unserved == {
            "g7": "no release notes of Deep Learning AMIs up to 2026-10-09 list g7",
            "p3": "no image profile has the proprietary NVIDIA driver",
            "p3dn": "no image profile has the proprietary NVIDIA driver",
        }

    @pytest.mark.parametrize("name", ["p6-b300.48xlarge", "g7e.48xlarge"])
    def test_only_the_base_image_serves_the_newest_and_brings_torch_as_an_artifact(self, name: str) -> None:
        assert images_for(instance_type(name)) == ["dlami-base-ubuntu-24.04"]
        assert image_profile("dlami-base-ubuntu-24.04").torch_is_artifact
        assert not image_profile("dlami-pytorch-ubuntu-24.04").torch_is_artifact

    @pytest.mark.parametrize("name", ["g5g.xlarge", "p6e-gb200.36xlarge"])
    def test_arm_types_have_the_arm_image_only(self, name: str) -> None:
        """pulumi-eks#738: an arm type needs an arm image, and no x86 one."""
        assert images_for(instance_type(name)) == ["dlami-base-arm64-ubuntu-24.04"]
        assert not image_profile("local").serves(instance_type(name))

    def test_fractional_gpus_need_an_image_with_the_grid_driver(self) -> None:
        assert all("pytorch" in name for name in images_for(instance_type("g6f.large")))

    def test_an_image_must_boot_as_the_type_does(self) -> None:
        pytorch, p4d = image_profile("dlami-pytorch-ubuntu-24.04"), instance_type("p4d.24xlarge")
        assert p4d.boot_modes == ("legacy-bios",) and pytorch.serves(p4d)
        uefi = pytorch.model_copy(update={"boot_modes": ("uefi",)})
        assert uefi.why_not(p4d) == "it boots by uefi, p4d.24xlarge by legacy-bios only"

    def test_the_local_image_promises_no_gpu_and_no_minor_version(self) -> None:
        local = image_profile("local")
        assert (local.accelerator, local.abi, local.drivers) == ("none", "host", ())
        assert all(local.serves(type_) for type_ in TYPES if type_.architecture == "x86_64")

    @pytest.mark.parametrize("name", [name for name in IMAGE_PROFILES if name != "local"])
    def test_an_image_of_aws_says_what_nobody_verified(self, name: str) -> None:
        profile = image_profile(name)
        assert profile.unverified and profile.drivers and profile.source
        assert date(2026, 1, 1) <= profile.as_of <= date(2026, 11, 30)
        assert set(profile.families) <= {*(type_.family for type_ in TYPES), *NAMES_WITHOUT_FACTS}
        amazon = "amazon-linux" in name
        assert profile.root_device_name == ("/dev/xvda" if amazon else "/dev/sda1")
        assert profile.nvme_owner == ("none" if amazon else "image")
