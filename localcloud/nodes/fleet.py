"""Machine nodes as the driver makes them: their network when the first one boots, the AWS emulation's end in it."""

from __future__ import annotations

from typing import Any

from .front import Front
from .machine import NodeMachine
from .network import CloudNetwork, Placement
from .site import Site


class Fleet:
    """Made in the driver's own mount namespace; everything it makes ends with the driver."""

    def __init__(self, site: Site, ec2: Any) -> None:
        self.site, self._ec2 = site, ec2
        self._network: CloudNetwork | None = None
        self._front: Front | None = None

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
            self._front = Front(self.site, [listener.fileno()])
            listener.close()  # the gateway has it now
        return self._network

    def close(self) -> None:
        if self._front is not None:
            self._front.close()
        if self._network is not None:
            self._network.close()
