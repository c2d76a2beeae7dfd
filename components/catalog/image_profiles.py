"""Machine images as profiles: what user data and the agent may rely on, whatever the image's id is."""

from __future__ import annotations

from typing import Literal

from .instance_types import InstanceType
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
    families: tuple[
        str, ...
    ]  # instance families the image boots on with a working driver; "*" is every family
    architecture: Literal["x86_64", "arm64"]
    accelerator: Literal["nvidia", "none"]
    nvme_owner: Literal["image", "none"]  # image: it mounts the instance-store disks itself
    aws_client: str  # the aws command that user data may call
    ssm_parameter: str | None  # AWS's public parameter with the newest image id
    unverified: tuple[str, ...]

    @property
    def torch_is_artifact(self) -> bool:
        return self.torch_site_packages is None

    def serves(self, type_: InstanceType) -> bool:
        """True when the image has the right architecture and a driver for the type's family."""
        return self.architecture == type_.architecture and (
            "*" in self.families or type_.family in self.families
        )


IMAGE_PROFILES: dict[str, ImageProfile] = {
    row["name"]: ImageProfile.model_validate(row) for row in read_rows("image_profiles.json")
}


def image_profile(name: str) -> ImageProfile:
    """The row of an image profile; raises UnknownName with the nearest match."""
    try:
        return IMAGE_PROFILES[name]
    except KeyError:
        raise UnknownName("image profile", name, IMAGE_PROFILES) from None
