"""Machine nodes as the driver makes them: their network when the first one boots, the AWS emulation's end in it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from ..processes import end, identify
from .machine import NodeMachine
from .metadata import die_with_parent
from .network import CloudNetwork, Placement
from .site import Site


class Fleet:
    """Made in the driver's own mount namespace; everything it makes ends with the driver."""

    def __init__(self, site: Site, ec2: Any) -> None:
        self.site, self._ec2 = site, ec2
        self._network: CloudNetwork | None = None
        self._gateway: subprocess.Popen[bytes] | None = None

    def make_node(self, instance_id: str, address: str) -> NodeMachine:
        """`address`: the loopback address by which the host reaches the node's metrics."""
        place = self.placement(instance_id)
        return NodeMachine(self.site, self.network(place.vpc), instance_id, address, place)

    def placement(self, instance_id: str) -> Placement:
        """Where EC2 says that the instance is."""
        found = self._ec2.describe_instances(InstanceIds=[instance_id])["Reservations"][0]["Instances"][0]
        subnet = self._ec2.describe_subnets(SubnetIds=[found["SubnetId"]])["Subnets"][0]
        vpc = self._ec2.describe_vpcs(VpcIds=[subnet["VpcId"]])["Vpcs"][0]
        return Placement(found["PrivateIpAddress"], subnet["CidrBlock"], vpc["CidrBlock"])

    def network(self, vpc: str) -> CloudNetwork:
        """The first node's VPC; a stack has one."""
        if self._network is None:
            log = self.site.local / "log" / "resolver.log"
            log.parent.mkdir(parents=True, exist_ok=True)
            self._network = CloudNetwork(vpc, self.site.region, log)
            listener = self._network.open()
            self._start_gateway(listener.fileno())
            listener.close()  # the gateway has it now
        return self._network

    def _start_gateway(self, descriptor: int) -> None:
        folder = self.site.local / "gateway"
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "localcloud.gateway", "--upstream", self.site.endpoint]
        command += ["--state", str(folder), "--listen-fd", str(descriptor)]
        with (self.site.local / "log" / "gateway.log").open("ab") as output:
            self._gateway = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                pass_fds=[descriptor], start_new_session=True, preexec_fn=die_with_parent,
                cwd=Path(__file__).parents[2],
            )  # fmt: skip

    def close(self) -> None:
        if self._gateway is not None and (found := identify(self._gateway.pid)) is not None:
            end([found], grace_seconds=2)
            self._gateway.wait(timeout=5)
        if self._network is not None:
            self._network.close()
