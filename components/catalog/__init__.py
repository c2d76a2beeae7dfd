"""Dated facts about AWS as data files, and the look-ups over them.

A fact lives in one JSON file beside this module with the date it was read and where. Nothing here decides
anything: the plans do.
"""

from .image_profiles import IMAGE_PROFILES, ImageProfile, image_profile
from .instance_types import INSTANCE_TYPES, REGIONS, InstanceType, NetworkInterface, instance_type
from .lookup import UnknownName, nearest
from .prices import Price, item_price, on_demand_price, spot_price

__all__ = [
    "IMAGE_PROFILES",
    "INSTANCE_TYPES",
    "REGIONS",
    "ImageProfile",
    "InstanceType",
    "NetworkInterface",
    "Price",
    "UnknownName",
    "image_profile",
    "instance_type",
    "item_price",
    "nearest",
    "on_demand_price",
    "spot_price",
]
