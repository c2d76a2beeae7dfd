"""What AWS refuses although the provider lets it pass, one subject a file; `aws_would_refuse` runs all of it."""

from . import (
    iam,
    interfaces,
    launch_template,
    lustre,
    monitoring,
    network,
    scaling,
    security_groups,
    storage,
    volumes,
)
from ._validator import Found, Inputs, NotKnown, Validator

VALIDATORS: tuple[Validator, ...] = (
    *launch_template.VALIDATORS,
    *interfaces.VALIDATORS,
    *volumes.VALIDATORS,
    *scaling.VALIDATORS,
    *security_groups.VALIDATORS,
    *network.VALIDATORS,
    *storage.VALIDATORS,
    *lustre.VALIDATORS,
    *iam.VALIDATORS,
    *monitoring.VALIDATORS,
)

__all__ = ["VALIDATORS", "Found", "Inputs", "NotKnown", "Validator"]
