"""The stand-in AWS provider. `python -m localcloud.provider.aws`"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from .guard import Standing
from .invokes import AWS_INVOKES
from .kinds import Place
from .service import Backend, Fault, Package
from .serving import main, sdk_version
from .tables import AWS
from .values import Tree

_NO_ACCOUNT = "0" * 12


def place_of(config: Mapping[str, Tree], standing: Standing) -> Place:
    """Region, tags and account: the emulation's account in local mode, else the first allowed one.

    Raises Fault where the emulation's account is not among the allowed ones, as the official provider does.
    """
    region = str(config.get("region") or os.environ.get("AWS_REGION") or "us-east-1")
    allowed = [str(account) for account in config.get("allowedAccountIds") or []]
    default_tags = (config.get("defaultTags") or {}).get("tags") or {}
    tags = {str(key): str(value) for key, value in default_tags.items()}
    account = allowed[0] if allowed else _NO_ACCOUNT
    if standing.endpoint:
        from .realise import Clients, isolate  # boto3 is needed, and its import paid for, in local mode only

        isolate()
        account = Clients(standing.endpoint, region).account()
        if allowed and account not in allowed:
            shown = ", ".join(allowed)
            raise Fault(f"the AWS emulation's account is {account}, and allowedAccountIds has {shown}")
    return Place(region=region, account=account, default_tags=tags)


def backend_of(place: Place, standing: Standing) -> Backend:
    from .realise import Realising

    assert standing.endpoint is not None
    return Realising(standing.endpoint, place)


PACKAGE = Package(
    name="aws",
    version=sdk_version("pulumi-aws"),
    kind_of=AWS.get,
    place_of=place_of,
    backend_of=backend_of,
    invokes=AWS_INVOKES,
)

if __name__ == "__main__":
    sys.exit(main(PACKAGE))
