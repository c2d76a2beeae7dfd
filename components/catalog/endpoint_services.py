"""AWS services that a VPC can reach through an interface endpoint with the service's own DNS name."""

from __future__ import annotations

from pathlib import Path

from .lookup import Row


class EndpointServices(Row):
    """Last parts of `com.amazonaws.<region>.<service>`; not every region has every one."""

    names: tuple[str, ...]
    without_policies: frozenset[str]  # AWS refuses an endpoint policy on these


ENDPOINT_SERVICES = EndpointServices.model_validate_json(
    (Path(__file__).parent / "endpoint_services.json").read_text("utf-8")
)
