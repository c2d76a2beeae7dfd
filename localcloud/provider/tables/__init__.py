"""The dated facts the stand-ins work from: one row a resource type, one file a field of AWS.

A type that no row describes is shown at preview with a warning and refused at `up`, so that nothing is
silently taken for created. To add one, write its row: the tests compare it with the SDK's own properties.
"""

from __future__ import annotations

from ..kinds import Kind
from . import compute, functions, identity, monitoring, network, storage
from .build import index

AWS: dict[str, Kind] = index(
    (*network.KINDS, *compute.KINDS, *identity.KINDS, *storage.KINDS, *monitoring.KINDS, *functions.KINDS)
)
