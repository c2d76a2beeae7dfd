"""Dated facts about AWS as data files, and the look-ups over them.

A fact lives in one JSON file beside this module with the date it was read and where. Nothing here decides
anything: the plans do.
"""

from .find import find_types
from .image_profiles import IMAGE_PROFILES, ImageProfile, image_profile, images_for, why_unserved
from .instance_types import (
    INSTANCE_TYPES,
    NAMES_WITHOUT_FACTS,
    REGIONS,
    InstanceType,
    NetworkInterface,
    instance_type,
)
from .lookup import UnknownName, nearest
from .nic_layouts import Layout, addresses_per_node, interfaces_of, layout_faults
from .prices import Price, item_price, on_demand_price, spot_price

__all__ = [
    "IMAGE_PROFILES",
    "INSTANCE_TYPES",
    "NAMES_WITHOUT_FACTS",
    "REGIONS",
    "ImageProfile",
    "InstanceType",
    "Layout",
    "NetworkInterface",
    "Price",
    "UnknownName",
    "addresses_per_node",
    "find_types",
    "image_profile",
    "images_for",
    "instance_type",
    "interfaces_of",
    "item_price",
    "layout_faults",
    "nearest",
    "on_demand_price",
    "spot_price",
    "why_unserved",
]
