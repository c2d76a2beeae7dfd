"""What nodes are told about where data lies on them. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from components.catalog import InstanceType
from components.catalog.image_profiles import ImageProfile
from components.settings import Settings
from components.settings.storage_model import DatasetSettings

from .lustre_plan import node_folder

MOUNTPOINT_FOLDER = "/mnt/datasets"
NODE_SCRATCH_PATH = "/mnt/scratch"
IMAGE_SCRATCH_PATH = "/opt/dlami/nvme"  # of AWS's deep-learning images, whose own service makes it


def read_paths(settings: Settings) -> dict[str, tuple[str, str]]:
    """Read path and folder of each dataset that nodes read where it is mounted; copied ones are not in it."""
    return {
        dataset.name: (dataset.read_path, _folder(dataset))
        for dataset in settings.datasets
        if dataset.read_path != "sync"
    }


def _folder(dataset: DatasetSettings) -> str:
    if dataset.read_path == "lustre":
        return node_folder(dataset.name)
    return f"{MOUNTPOINT_FOLDER}/{dataset.name}"


def plan_node_scratch(profile: ImageProfile, types: Sequence[InstanceType]) -> tuple[str, str] | None:
    """Who makes a file system of the instance-store disks, and where it is mounted; None: nobody does.

    Where only some types of a group have such disks, the others' nodes say so and work on the root disk. Nodes of
    the local cloud see the disks of the machine they run on, which are not theirs.
    """
    stores = [type_.instance_store for type_ in types]
    if profile.accelerator == "none" or not any(store is not None and store.disks for store in stores):
        return None
    if profile.nvme_owner == "image":
        return "image", IMAGE_SCRATCH_PATH
    return "node", NODE_SCRATCH_PATH
