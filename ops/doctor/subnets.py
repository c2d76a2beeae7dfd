"""Subnets to try launches in: the configured ones, else the stack's, else the account's default ones."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from components.names import stack_names
from components.settings import Settings
from ops.account import Account


@dataclass(frozen=True)
class Subnet:
    id: str
    words: str


class Subnets:
    """Asked once, by whichever check needs them first."""

    def __init__(self, account: Account, settings: Settings) -> None:
        self._account, self._settings = account, settings
        self._once = threading.Lock()
        self._found: dict[str, Subnet] | None = None

    def in_zone(self, zone: str) -> Subnet | None:
        """By the zone's name or id; raises what the calls raise."""
        with self._once:
            if self._found is None:
                self._found = self._ask()
        return self._found.get(zone)

    def _ask(self) -> dict[str, Subnet]:
        network = self._settings.network
        if network.existing is not None:
            return {
                zone: Subnet(subnet, f"{subnet} of the configuration")
                for zone, subnet in network.existing.subnet_ids.items()
            }
        ec2 = self._account.client("ec2")
        found: dict[str, Subnet] = {}
        tag = {"Name": "tag:gpu-training:stack", "Values": [stack_names(self._settings).base_name]}
        default = {"Name": "default-for-az", "Values": ["true"]}
        for filter_, words in ((default, "a default subnet"), (tag, "the stack's subnet")):
            for subnet in ec2.describe_subnets(Filters=[filter_])["Subnets"]:
                if words != "a default subnet" and subnet.get("MapPublicIpOnLaunch"):
                    continue  # nodes live in the private ones
                here = Subnet(subnet["SubnetId"], f"{words} {subnet['SubnetId']}")
                found[subnet["AvailabilityZone"]] = found[subnet["AvailabilityZoneId"]] = here
        return found
