from __future__ import annotations

import base64
from typing import Any

from . import Bad

TEMPLATE, GROUP = "aws:ec2/launchTemplate:LaunchTemplate", "aws:autoscaling/group:Group"
SCHEDULE, HOOK = "aws:autoscaling/schedule:Schedule", "aws:autoscaling/lifecycleHook:LifecycleHook"
VOLUME = "aws:ebs/volume:Volume"
BLOCK = {"marketType": "capacity-block"}
TARGET = {"capacityReservationTarget": {"capacityReservationId": "cr-0123456789abcdef0"}}


def template(validator: str, says: str, **inputs: Any) -> Bad:
    return Bad(validator, TEMPLATE, inputs, says)


def interfaces(
    validator: str, says: str, *places: tuple[int, int, str], type_: str = "", **first: Any
) -> Bad:
    """Interfaces by card, device and kind; `first` goes to each of them."""
    keys = ("networkCardIndex", "deviceIndex", "interfaceType")
    made = [{**dict(zip(keys, place, strict=True)), **first} for place in places]
    return Bad(
        validator, TEMPLATE, {"networkInterfaces": made, **({"instanceType": type_} if type_ else {})}, says
    )


def volume(validator: str, says: str, **ebs: Any) -> Bad:
    return template(validator, says, blockDeviceMappings=[{"deviceName": "/dev/sda1", "ebs": ebs}])


def group(validator: str, says: str, **inputs: Any) -> Bad:
    return Bad(validator, GROUP, inputs, says)


def distribution(validator: str, says: str, **inputs: Any) -> Bad:
    return group(validator, says, mixedInstancesPolicy={"instancesDistribution": inputs})


def schedule(validator: str, says: str, **inputs: Any) -> Bad:
    return Bad(validator, SCHEDULE, {"desiredCapacity": 0, "recurrence": "0 20 * * 1-5", **inputs}, says)


PLAIN, SECOND = (0, 0, "interface"), (0, 1, "efa-only")
LAUNCH_TEMPLATES = [
    template(
        "groups-stand-in-the-interfaces",
        "vpcSecurityGroupIds: beside networkInterfaces",
        vpcSecurityGroupIds=["sg-1"],
        networkInterfaces=[{"deviceIndex": 0}],
    ),
    template("instance-type-exists", "no instance type 'p5.46xlarge'", instanceType="p5.46xlarge"),
    template("instance-type-exists", "no instance type 'm7i.huge'", instanceType="m7i.huge"),
    group(
        "instance-type-exists",
        "overrides[1].instanceType",
        mixedInstancesPolicy={
            "launchTemplate": {"overrides": [{"instanceType": "g6.xlarge"}, {"instanceType": "g6.xxlarge"}]}
        },
    ),
    template("user-data-is-base64", "userData: is not base64", userData="#!/bin/bash"),
    template(
        "user-data-fits",
        "16385 bytes before base64, 16384 are allowed",
        userData=base64.b64encode(b"#" * 16385).decode(),
    ),
    template(
        "reservation-has-preference-or-target",
        "'open' beside a target",
        capacityReservationSpecification={"capacityReservationPreference": "open", **TARGET},
    ),
    template("capacity-block-has-its-reservation", "no block is used", instanceMarketOptions=BLOCK),
    template(
        "capacity-block-has-no-placement-group",
        "placement.groupName: a placement group beside a capacity block",
        instanceMarketOptions=BLOCK,
        capacityReservationSpecification=TARGET,
        placement={"groupName": "near"},
    ),
    template("market-type-exists", "'block' is none of", instanceMarketOptions={"marketType": "block"}),
    template(
        "market-type-and-its-options-agree",
        "beside market type on-demand",
        instanceMarketOptions={"marketType": "on-demand", "spotOptions": {"maxPrice": "1.0"}},
    ),
    template(
        "market-type-and-its-options-agree",
        "one-time requests only",
        instanceMarketOptions={"marketType": "spot", "spotOptions": {"spotInstanceType": "persistent"}},
    ),
    template("image-id-has-the-form", "'ami-12'", imageId="ami-12"),
    template("image-id-has-the-form", "resolve:ssm:", imageId="/gpu-training/images/pytorch"),
    template("metadata-hops-are-possible", "65 is outside", metadataOptions={"httpPutResponseHopLimit": 65}),
    template(
        "block-devices-are-named-once",
        "'/dev/sda1' is mapped twice",
        blockDeviceMappings=[{"deviceName": "/dev/sda1"}, {"deviceName": "/dev/sda1"}],
    ),
]
INTERFACES = [
    interfaces("interface-type-exists", "'efa_only' is none of", PLAIN, (0, 1, "efa_only")),
    interfaces("interface-places-are-taken-once", "2 of them at card 0, device 0", PLAIN, PLAIN),
    interfaces("primary-interface-carries-addresses", "none at card 0, device 0", (1, 0, "interface")),
    interfaces("primary-interface-carries-addresses", "is efa-only", (0, 0, "efa-only")),
    interfaces(
        "one-interface-has-a-public-address",
        "networkInterfaces[0].associatePublicIpAddress: true, with 2 interfaces",
        PLAIN,
        SECOND,
        associatePublicIpAddress="true",
    ),
    template(
        "addresses-are-not-given-to-efa-only",
        "networkInterfaces[1].ipv4AddressCount: on an efa-only interface",
        networkInterfaces=[
            {"deviceIndex": 0},
            {"deviceIndex": 1, "interfaceType": "efa-only", "ipv4AddressCount": 1},
        ],
    ),
    interfaces("efas-are-one-a-card", "2 EFAs on card 0", (0, 0, "efa"), SECOND),
    interfaces(
        "cards-and-devices-are-of-the-type",
        "card 2 of p5.48xlarge takes 2 interfaces, so 2 is none of them",
        PLAIN,
        (2, 2, "efa-only"),
        type_="p5.48xlarge",
    ),
    interfaces(
        "cards-and-devices-are-of-the-type",
        "g6.12xlarge has cards 0 to 0, not 1",
        PLAIN,
        (1, 0, "interface"),
        type_="g6.12xlarge",
    ),
    interfaces(
        "efas-are-no-more-than-the-type-has", "1 EFAs, g6.xlarge has 0", PLAIN, SECOND, type_="g6.xlarge"
    ),
    interfaces(
        "efas-are-no-more-than-the-type-has",
        "networkInterfaces[1].networkCardIndex: card 0 of p6-b300.48xlarge carries no EFA",
        PLAIN,
        SECOND,
        type_="p6-b300.48xlarge",
    ),
    interfaces(
        "efas-are-no-more-than-the-type-has",
        "17 EFAs, p6-b300.48xlarge has 16",
        *[PLAIN, SECOND, *((card, 0, "efa-only") for card in range(1, 17))],
        type_="p6-b300.48xlarge",
    ),
]
VOLUMES = [
    volume("volume-type-exists", "'gp4' is none of", volumeType="gp4"),
    volume("volume-size-is-possible", "65537 GiB is outside", volumeType="gp3", volumeSize=65537),
    volume("volume-size-is-possible", "100 GiB is outside 125", volumeType="st1", volumeSize=100),
    Bad("volume-size-is-possible", VOLUME, {"type": "gp3", "size": 0}, "size: 0 GiB"),
    volume("volume-iops-are-possible", "2999 is outside", volumeType="gp3", volumeSize=100, iops=2999),
    volume(
        "volume-iops-are-possible", "at most 500 for each GiB", volumeType="gp3", volumeSize=30, iops=16000
    ),
    volume("volume-iops-are-possible", "gp2 has no IOPS to set", volumeType="gp2", volumeSize=30, iops=3000),
    volume(
        "volume-throughput-is-possible",
        "2001 MiB/s is outside",
        volumeType="gp3",
        volumeSize=200,
        throughput=2001,
    ),
    volume(
        "volume-throughput-is-possible",
        "1000 MiB/s needs 4000 IOPS",
        volumeType="gp3",
        volumeSize=200,
        throughput=1000,
    ),
    volume("volume-throughput-is-possible", "gp2 has none", volumeType="gp2", volumeSize=200, throughput=250),
]
GROUPS = [
    distribution("spot-strategy-exists", "'cheapest' is none of", spotAllocationStrategy="cheapest"),
    distribution("on-demand-strategy-exists", "'first' is none of", onDemandAllocationStrategy="first"),
    distribution(
        "spot-pools-belong-to-lowest-price",
        "beside strategy capacity-optimized",
        spotAllocationStrategy="capacity-optimized",
        spotInstancePools=2,
    ),
    group("group-sizes-are-ordered", "minSize: 5 is above maxSize 2", minSize=5, maxSize=2),
    group("group-sizes-are-ordered", "3 is above maxSize 2", minSize=0, maxSize=2, desiredCapacity=3),
    group("group-sizes-are-ordered", "0 is below minSize 1", minSize=1, maxSize=2, desiredCapacity=0),
    group(
        "overrides-are-few-and-different",
        "'g6.xlarge' is there twice",
        mixedInstancesPolicy={"launchTemplate": {"overrides": [{"instanceType": "g6.xlarge"}] * 2}},
    ),
    distribution("base-and-share-are-numbers-of-nodes", "-1 is negative", onDemandBaseCapacity=-1),
    distribution(
        "base-and-share-are-numbers-of-nodes", "101 is outside", onDemandPercentageAboveBaseCapacity=101
    ),
    distribution("spot-price-is-a-price", "'cheap' is no price", spotMaxPrice="cheap"),
    schedule("recurrence-is-cron-text", "'daily' has 1 fields", recurrence="daily"),
    schedule("recurrence-is-cron-text", "'60' in '60 * * * *'", recurrence="60 * * * *"),
    schedule("recurrence-is-cron-text", "'MOON' in", recurrence="0 8 * * MOON"),
    schedule("recurrence-is-cron-text", "'0' in '0 8 0 * *'", recurrence="0 8 0 * *"),
    Bad(
        "schedule-changes-something",
        SCHEDULE,
        {"recurrence": "0 8 * * *", "minSize": -1, "maxSize": -1, "desiredCapacity": -1},
        "neither it nor maxSize nor desiredCapacity",
    ),
    schedule(
        "schedule-changes-something", "desiredCapacity: 4 is above maxSize 2", desiredCapacity=4, maxSize=2
    ),
    Bad("schedule-has-a-time", SCHEDULE, {"desiredCapacity": 1}, "neither it nor a recurrence"),
    schedule("schedule-has-a-time", "'tomorrow' is no time", startTime="tomorrow"),
    schedule(
        "schedule-has-a-time",
        "endTime: not after startTime",
        startTime="2027-01-18T11:30:00Z",
        endTime="2027-01-11T11:30:00Z",
    ),
    schedule("time-zone-exists", "'Europe/Berlin2' is no IANA", timeZone="Europe/Berlin2"),
    Bad("hook-lasts-possible-seconds", HOOK, {"heartbeatTimeout": 7201}, "7201 s is outside"),
    group(
        "hook-lasts-possible-seconds",
        "initialLifecycleHooks[0]",
        initialLifecycleHooks=[{"heartbeatTimeout": 29}],
    ),
]
BAD = [*LAUNCH_TEMPLATES, *INTERFACES, *VOLUMES, *GROUPS]
