"""Launch templates that no node starts from."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator

from .._judge import UNKNOWN, leaves, read
from ._catalog import INSTANCE_TYPES, nearest
from ._validator import Found, Inputs, NotKnown, Validator, known, number

TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
GROUP = "aws:autoscaling/group:Group"
MAX_USER_DATA_BYTES = 16384
GPU_FAMILY = re.compile(r"(?:g\d|gr\d|p\d)[a-z0-9-]*\.[a-z0-9]+")
INSTANCE_TYPE = re.compile(r"[a-z][a-z0-9-]*\.(?:nano|micro|small|medium|large|metal(?:-\d+xl)?|\d*xlarge)")
RESERVATION = "capacityReservationSpecification"
MARKET_TYPES = ("spot", "capacity-block", "on-demand", "interruptible-capacity-reservation")


def groups_stand_in_the_interfaces(inputs: Inputs) -> Iterator[Found]:
    """`vpcSecurityGroupIds` beside `networkInterfaces`: RunInstances refuses the pair (pulumi-aws#2506)."""
    interfaces, groups = read(inputs, "networkInterfaces"), read(inputs, "vpcSecurityGroupIds")
    if interfaces is UNKNOWN or groups is UNKNOWN:
        return
    if interfaces and groups:
        yield "vpcSecurityGroupIds: beside networkInterfaces, which AWS refuses"


def instance_type_exists(inputs: Inputs) -> Iterator[Found]:
    """No instance type, or no GPU type of the catalog, is called that."""
    paths = ("instanceType", "mixedInstancesPolicy.launchTemplate.overrides[*].instanceType")
    for path in paths:
        for at, name in leaves(inputs, path):
            if name is UNKNOWN:
                yield NotKnown(at)
            elif name is not None and not _exists(str(name)):
                close = nearest(str(name), INSTANCE_TYPES)
                yield f"{at}: no instance type '{name}'" + (f" (nearest match: {close})" if close else "")


def _exists(name: str) -> bool:
    # Of families other than those with GPUs the catalog knows nothing, so only the form is judged.
    return name in INSTANCE_TYPES if GPU_FAMILY.fullmatch(name) else bool(INSTANCE_TYPE.fullmatch(name))


def user_data_is_base64(inputs: Inputs) -> Iterator[Found]:
    """The API takes base64 and nothing else; a node would run rubbish, or nothing."""
    for at, text in leaves(inputs, "userData"):
        if text is UNKNOWN:
            yield NotKnown(at)
        elif text is not None and _decoded(text) is None:
            yield f"{at}: is not base64"


def user_data_fits(inputs: Inputs) -> Iterator[Found]:
    """At most 16,384 bytes before base64 (EC2 user guide; github-aws-runners#3700 and others)."""
    for at, text in leaves(inputs, "userData"):
        raw = None if text is UNKNOWN or text is None else _decoded(text)
        if raw is not None and len(raw) > MAX_USER_DATA_BYTES:
            yield f"{at}: {len(raw)} bytes before base64, {MAX_USER_DATA_BYTES} are allowed"


def _decoded(text: object) -> bytes | None:
    try:
        return base64.b64decode(str(text), validate=True)
    except (binascii.Error, ValueError):
        return None


def reservation_has_preference_or_target(inputs: Inputs) -> Iterator[Found]:
    """A reservation preference beside a target: AWS takes one of the two (EC2 API)."""
    spec = read(inputs, RESERVATION)
    if spec is None or spec is UNKNOWN:
        return
    preference, target = (
        read(spec, "capacityReservationPreference"),
        read(spec, "capacityReservationTarget"),
    )
    if (
        known(preference) is not None
        and known(target) is not None
        and preference != "capacity-reservations-only"
    ):
        yield f"{RESERVATION}.capacityReservationPreference: '{preference}' beside a target"


def capacity_block_has_its_reservation(inputs: Inputs) -> Iterator[Found]:
    """Market type capacity-block without a reservation id (terraform-provider-aws#38579)."""
    if (
        known(next((v for _, v in leaves(inputs, "instanceMarketOptions.marketType")), None))
        != "capacity-block"
    ):
        return
    path = f"{RESERVATION}.capacityReservationTarget.capacityReservationId"
    for at, target in leaves(inputs, path):
        if target is UNKNOWN:
            yield NotKnown(at)
        elif not target:
            yield f"{path}: missing, and without it no block is used"


def capacity_block_has_no_placement_group(inputs: Inputs) -> Iterator[Found]:
    """A block brings its own closeness; with a group launches end in InsufficientInstanceCapacity."""
    if (
        known(next((v for _, v in leaves(inputs, "instanceMarketOptions.marketType")), None))
        != "capacity-block"
    ):
        return
    for key in ("groupName", "groupId"):
        for at, group in leaves(inputs, f"placement.{key}"):
            if group is not None:
                yield f"{at}: a placement group beside a capacity block"


def market_type_exists(inputs: Inputs) -> Iterator[Found]:
    """EC2 knows these market types only (botocore ec2 model, 2026)."""
    for at, market in leaves(inputs, "instanceMarketOptions.marketType"):
        if known(market) is not None and market not in MARKET_TYPES:
            yield f"{at}: '{market}' is none of {', '.join(MARKET_TYPES)}"


def market_type_and_its_options_agree(inputs: Inputs) -> Iterator[Found]:
    """`spotOptions` with another market type than spot, or a spot request that hibernates or stops in a group."""
    market = known(next((v for _, v in leaves(inputs, "instanceMarketOptions.marketType")), None))
    options = known(next((v for _, v in leaves(inputs, "instanceMarketOptions.spotOptions")), None))
    if market is not None and market != "spot" and options:
        yield f"instanceMarketOptions.spotOptions: beside market type {market}"
    if options and known(read(options, "spotInstanceType")) == "persistent":
        yield "instanceMarketOptions.spotOptions.spotInstanceType: an Auto Scaling group takes one-time requests only"


def image_id_has_the_form(inputs: Inputs) -> Iterator[Found]:
    """`ami-` and 8 or 17 hexadecimal digits, or `resolve:ssm:` and a parameter (EC2 API, ImageId)."""
    form = r"ami-(?:[0-9a-f]{8}|[0-9a-f]{17})|resolve:ssm:(?:arn:[^\s]+|/?[A-Za-z0-9_.\-/]+)(?::[A-Za-z0-9_.\-]+)?"
    for at, image in leaves(inputs, "imageId"):
        if image is UNKNOWN:
            yield NotKnown(at)
        elif image is not None and not re.fullmatch(form, str(image)):
            yield f"{at}: '{image}' is neither an image id nor resolve:ssm:<parameter>"


def metadata_hops_are_possible(inputs: Inputs) -> Iterator[Found]:
    """From 1 to 64 (EC2 API, InstanceMetadataOptionsRequest)."""
    for at, hops in leaves(inputs, "metadataOptions.httpPutResponseHopLimit"):
        value = number(hops)
        if value is not None and not 1 <= value <= 64:
            yield f"{at}: {value:g} is outside 1 to 64"


def block_devices_are_named_once(inputs: Inputs) -> Iterator[Found]:
    """Two mappings of one device: RunInstances refuses them."""
    seen: set[str] = set()
    for at, name in leaves(inputs, "blockDeviceMappings[*].deviceName"):
        if known(name) is not None:
            if name in seen:
                yield f"{at}: '{name}' is mapped twice"
            seen.add(name)


_TEMPLATE = frozenset({TEMPLATE})
VALIDATORS = (
    Validator(groups_stand_in_the_interfaces, _TEMPLATE, "name the security groups in each interface"),
    Validator(
        instance_type_exists,
        frozenset({TEMPLATE, GROUP, "aws:ec2/instance:Instance"}),
        "a type that EC2 has; `make catalog` shows those with GPUs",
    ),
    Validator(user_data_is_base64, _TEMPLATE, "base64 of the script"),
    Validator(user_data_fits, _TEMPLATE, "keep the script small and let it fetch the rest from S3"),
    Validator(reservation_has_preference_or_target, _TEMPLATE, "the target alone"),
    Validator(capacity_block_has_its_reservation, _TEMPLATE, "capacity_reservation_id of the block"),
    Validator(capacity_block_has_no_placement_group, _TEMPLATE, "no placement with capacity-block"),
    Validator(market_type_exists, _TEMPLATE, "a market type that EC2 knows"),
    Validator(market_type_and_its_options_agree, _TEMPLATE, "spot_options with market type spot, one-time"),
    Validator(image_id_has_the_form, _TEMPLATE, "an id such as ami-0123456789abcdef0"),
    Validator(metadata_hops_are_possible, _TEMPLATE, "1, or 2 where containers read credentials"),
    Validator(block_devices_are_named_once, _TEMPLATE, "one mapping a device"),
)
