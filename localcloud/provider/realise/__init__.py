"""The backend of local mode: what the local life needs is made in the AWS emulation, the rest stays declared.

One file a service, thin functions over boto3. Which kinds are made is the `held` column of the tables; a test
compares the two. Of a kind that is made, what the local life needs is sent; where a call is fitted from the
declaration as a whole (templates, groups, alarms, objects, endpoints), a property it has no place for is an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from botocore.exceptions import BotoCoreError, ClientError

from ..declared import Declared
from ..kinds import Maker, Place
from ..service import Fault
from ..values import Tree, reveal
from . import autoscaling, ec2_compute, ec2_gateways, ec2_network, ec2_security, iam, kms, monitoring, s3
from .call import Call, Clients, Gone, Realiser, is_gone, isolate

__all__ = ["REALISERS", "Clients", "Realising", "isolate"]

REALISERS: dict[str, Realiser] = {
    **ec2_network.REALISERS,
    **ec2_gateways.REALISERS,
    **ec2_security.REALISERS,
    **ec2_compute.REALISERS,
    **autoscaling.REALISERS,
    **iam.REALISERS,
    **kms.REALISERS,
    **s3.REALISERS,
    **monitoring.REALISERS,
}


class Realising:
    """Creates, updates and deletes in the AWS emulation; its errors become one line with the URN."""

    def __init__(self, endpoint: str, place: Place) -> None:
        self.endpoint = endpoint
        self.place = place
        self.clients = Clients(endpoint, place.region)
        self._declared = Declared()

    def create(self, maker: Maker) -> tuple[str, dict[str, Tree]]:
        realiser = REALISERS.get(maker.kind.type)
        if realiser is None:
            return self._declared.create(maker)
        with _one_line(maker.urn):
            identifier, real = realiser.create(self._call(maker))
        return identifier, maker.with_id(identifier).created(real)

    def update(
        self, maker: Maker, old: Mapping[str, Tree], old_inputs: Mapping[str, Tree]
    ) -> dict[str, Tree]:
        realiser = REALISERS.get(maker.kind.type)
        if realiser is None or realiser.update is None:
            return self._declared.update(maker, old, old_inputs)
        with _one_line(maker.urn):
            real = realiser.update(self._call(maker, old, old_inputs))
        return maker.updated(old, old_inputs, real or {})

    def delete(self, maker: Maker, outputs: Mapping[str, Tree]) -> None:
        realiser = REALISERS.get(maker.kind.type)
        if realiser is None:
            return
        try:
            with _one_line(maker.urn):
                realiser.delete(self._call(maker, outputs))
        except _AlreadyGone:
            return

    def exists(self, maker: Maker, outputs: Mapping[str, Tree]) -> bool:
        realiser = REALISERS.get(maker.kind.type)
        if realiser is None:
            return True
        try:
            with _one_line(maker.urn):
                realiser.read(self._call(maker, outputs))
        except _AlreadyGone:
            return False
        return True

    def _call(
        self,
        maker: Maker,
        outputs: Mapping[str, Tree] | None = None,
        old_inputs: Mapping[str, Tree] | None = None,
    ) -> Call:
        state = reveal(dict(outputs or {}))
        named = maker.kind.name and state.get(maker.kind.name)
        return Call(
            clients=self.clients,
            place=self.place,
            urn=maker.urn,
            name=str(named) if named else maker.name,
            inputs=reveal(dict(maker.inputs)),
            id=maker.id,
            old_inputs=reveal(dict(old_inputs or {})),
            outputs=state,
        )


class _AlreadyGone(Fault):
    """The emulation does not know the resource."""


@contextmanager
def _one_line(urn: str) -> Iterator[None]:
    """An error of the emulation as one line with the resource's URN."""
    try:
        yield
    except (ClientError, BotoCoreError, Gone, ValueError, OSError) as error:
        shown = f"{urn}: {error}" if str(error) else f"{urn}: not found in the AWS emulation"
        raise (_AlreadyGone(shown) if is_gone(error) else Fault(shown)) from error
