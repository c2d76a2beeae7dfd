"""The typed configuration of a stack; every fault is reported at once, with its path."""

from .engine_config import from_pulumi
from .faults import Fault, SettingsError
from .load import load
from .model import GpuGroupSettings, Settings

__all__ = ["Fault", "GpuGroupSettings", "Settings", "SettingsError", "from_pulumi", "load"]
