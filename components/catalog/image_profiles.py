"""Machine images as profiles: what user data and the agent may rely on, whatever the image's id is."""

from __future__ import annotations

from typing import Literal

from .instance_types import Architecture, BootMode, Driver, InstanceType
from .lookup import Row, UnknownName, read_rows


class ImageProfile(Row):
    """What an image provides.

    ``torch_site_packages`` is None where the image has no torch: it then comes as a hashed artifact of the
    trainer release. ``abi`` names the release artifact for the image's interpreter; ``host`` stands for the
    interpreter of the machine that runs the program (local cloud only). ``unverified`` names what no document
    confirmed.
    """

    name: str
    description: str
    root_device_name: str
    interpreter: str  # path of the Python that the trainer's own environment is made from
    abi: str
    torch_site_packages: str | None
    families: tuple[str, ...]  # that its release notes list; "*" is every family
    architecture: Architecture
    boot_modes: tuple[BootMode, ...]
    accelerator: Literal["nvidia", "none"]
    drivers: tuple[Driver, ...]  # NVIDIA kernel modules that it loads; none for an image without a GPU driver
    nvme_owner: Literal["image", "none"]  # image: it mounts the instance-store disks itself
    aws_client: str  # the aws command that user data may call
    ssm_parameter: str | None  # AWS's public parameter with the newest image id
    unverified: tuple[str, ...]

    @property
    def torch_is_artifact(self) -> bool:
        return self.torch_site_packages is None

    def serves(self, type_: InstanceType) -> bool:
        """True when the image boots on the type and has a driver for its GPUs."""
        return self.why_not(type_) is None

    def why_not(self, type_: InstanceType) -> str | None:
        """Why the image cannot be used on the type, most telling reason first; None when it can."""
        if self.architecture != type_.architecture:
            return f"it is {self.architecture}, {type_.name} is {type_.architecture}"
        if self.accelerator == "nvidia" and type_.driver not in self.drivers:
            return f"the {type_.gpu.model} of {type_.name} needs the {type_.driver} NVIDIA driver"
        if type_.boot_modes is not None and not set(self.boot_modes) & set(type_.boot_modes):
            return f"it boots by {self.boot_modes[0]}, {type_.name} by {type_.boot_modes[0]} only"
        if "*" not in self.families and type_.family not in self.families:
            return f"its release notes of {self.as_of} do not list {type_.family}"
        return None


IMAGE_PROFILES: dict[str, ImageProfile] = {
    row["name"]: ImageProfile.model_validate(row) for row in read_rows("image_profiles.json")
}


def image_profile(name: str) -> ImageProfile:
    """The row of an image profile; raises UnknownName with the nearest match."""
    try:
        return IMAGE_PROFILES[name]
    except KeyError:
        raise UnknownName("image profile", name, IMAGE_PROFILES) from None


def images_for(type_: InstanceType) -> list[str]:
    """The profiles of images with a GPU driver that serve the type."""
    return [p.name for p in IMAGE_PROFILES.values() if p.accelerator == "nvidia" and p.serves(type_)]


def why_unserved(type_: InstanceType) -> str | None:
    """Why no image with a GPU driver serves the type; None when one does."""
    if images_for(type_):
        return None
    images = [p for p in IMAGE_PROFILES.values() if p.accelerator == "nvidia"]
    if not any(type_.driver in image.drivers for image in images):
        return f"no image profile has the {type_.driver} NVIDIA driver"
    newest = max(image.as_of for image in images)
    return f"no release notes of Deep Learning AMIs up to {newest} list {type_.family}"
