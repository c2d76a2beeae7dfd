"""Answers to the AWS provider's look-ups that the program may use.

They are the same at preview and at `up`. The account is the emulation's in local mode and the provider's
first allowed account id at preview; image ids come from a hash of the question.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .kinds import Place, digest
from .values import Tree

Answer = Callable[[Mapping[str, Tree], Place], dict[str, Tree]]


def _caller_identity(args: Mapping[str, Tree], place: Place) -> dict[str, Tree]:
    arn = f"arn:{place.partition}:iam::{place.account}:user/stand-in"
    return {"accountId": place.account, "arn": arn, "id": place.account, "userId": "AIDASTANDIN"}


def _region(args: Mapping[str, Tree], place: Place) -> dict[str, Tree]:
    region = str(args.get("region") or place.region)
    return {
        "region": region,
        "name": region,
        "id": region,
        "endpoint": f"ec2.{region}.{place.dns}",
        "description": region,
    }


def _partition(args: Mapping[str, Tree], place: Place) -> dict[str, Tree]:
    reverse = ".".join(reversed(place.dns.split(".")))
    return {
        "partition": place.partition,
        "id": place.partition,
        "dnsSuffix": place.dns,
        "reverseDnsPrefix": reverse,
    }


def _availability_zones(args: Mapping[str, Tree], place: Place) -> dict[str, Tree]:
    names = [f"{place.region}{letter}" for letter in "abc"]
    return {
        "names": names,
        "zoneIds": [f"{place.region}-az{n}" for n in (1, 2, 3)],
        "groupNames": [place.region],
        "id": place.region,
    }


def _image(args: Mapping[str, Tree], place: Place) -> dict[str, Tree]:
    image = f"ami-{digest('ami', dict(args))[:17]}"
    return {"id": image, "imageId": image, "architecture": "x86_64", "rootDeviceName": "/dev/xvda"}


def _parameter(args: Mapping[str, Tree], place: Place) -> dict[str, Tree]:
    name = str(args.get("name"))
    value = f"ami-{digest('ssm', name)[:17]}"
    arn = f"arn:{place.partition}:ssm:{place.region}:{place.account}:parameter{name}"
    return {"name": name, "arn": arn, "value": value, "type": "String", "version": 1, "id": name}


AWS_INVOKES: dict[str, Answer] = {
    "aws:index/getCallerIdentity:getCallerIdentity": _caller_identity,
    "aws:index/getRegion:getRegion": _region,
    "aws:index/getPartition:getPartition": _partition,
    "aws:index/getAvailabilityZones:getAvailabilityZones": _availability_zones,
    "aws:ec2/getAmi:getAmi": _image,
    "aws:ssm/getParameter:getParameter": _parameter,
}
