"""Every limit of the agent in one place, and the factor by which a test bed shortens them."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass

from ..errors import ConfigurationError

FACTOR_VARIABLE = "TRAINER_TIME_FACTOR"


@dataclass(frozen=True)
class Pace:
    """All in seconds. What a stop may take (110/100/90/60) is no part of it: a save takes as long as it takes."""

    lease_seconds: float = 30.0  # a beat older than this: the member is lost
    apart_seconds: float = 10.0  # how long a member may not run what I run before I give it up
    # The same where its workers ended as planned: mine are saving or about to end as well.
    stopping_seconds: float = 100.0
    partition_seconds: float = 10.0  # how long a member that does not answer may stay in the world
    probe_timeout_seconds: float = 2.0
    settle_seconds: float = 10.0  # how long a small world runs at least before it stops to grow
    hang_floor_seconds: float = 120.0  # no step for so long, or ten times the median step, is a hang
    hang_first_step_seconds: float = 600.0  # until the first step: compiling, rendezvous, cold data
    hang_pause_seconds: float = 1800.0  # while saving or evaluating
    standby_seconds: float = 30.0  # of training, until torch is imported ahead for the next generation
    hang_dump_seconds: float = 2.0  # for hung workers to write their stacks

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Pace:
        """All limits times TRAINER_TIME_FACTOR (default 1; nodes on AWS have none). Raises ConfigurationError."""
        given = environment.get(FACTOR_VARIABLE, "1")
        try:
            factor = float(given)
        except ValueError:
            factor = 0.0
        if not 0 < factor < math.inf:
            raise ConfigurationError(f"{FACTOR_VARIABLE}={given}: must be a number above 0")
        return cls().times(factor)

    def times(self, factor: float) -> Pace:
        return Pace(**{field.name: getattr(self, field.name) * factor for field in dataclasses.fields(self)})
