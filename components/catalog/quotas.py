"""AWS's limits on how much of something an account may have, with their Service Quotas codes."""

from __future__ import annotations

from .lookup import Row, read_rows


class Quota(Row):
    """One quota.

    ``code`` is None where no document names one, and ``default`` where AWS documents none. What an account
    really has, only Service Quotas tells: AWS raises quotas by use and on request.
    """

    key: str
    service: str  # service code of Service Quotas
    code: str | None
    name: str  # as Service Quotas spells it
    unit: str
    default: int | None
    adjustable: bool  # False: no request raises it


QUOTAS: dict[str, Quota] = {row["key"]: Quota.model_validate(row) for row in read_rows("quotas.json")}


def quota_by_code(code: str) -> Quota:
    """The quota of a Service Quotas code; KeyError for one that the table lacks."""
    for quota in QUOTAS.values():
        if quota.code == code:
            return quota
    raise KeyError(code)
