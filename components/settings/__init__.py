"""The typed configuration of a stack; every fault is reported at once, with its path."""

from .engine_config import from_pulumi
from .faults import Fault, SettingsError
from .group_model import GpuGroupSettings
from .load import advice, load
from .model import Settings

__all__ = ["Fault", "GpuGroupSettings", "Settings", "SettingsError", "advice", "from_pulumi", "load"]
