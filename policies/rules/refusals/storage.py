"""Bucket names and lifecycles, keys by their ids, and tags."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from .._judge import UNKNOWN, leaves, read
from ._validator import Found, Inputs, Validator, known, number

BUCKET, LIFECYCLE, ENCRYPTION = (
    "aws:s3/bucket:Bucket",
    "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration",
    "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration",
)
RESERVED_PREFIXES = ("xn--", "sthree-", "amzn-s3-demo-")
RESERVED_SUFFIXES = ("-s3alias", "--ol-s3", ".mrap", "--x-s3", "--table-s3")
INFREQUENT = ("STANDARD_IA", "ONEZONE_IA")
# Where a key's ARN is needed: an id alone, or an alias, is refused.
KEY_ARN_PATHS = {
    "aws:cloudwatch/logGroup:LogGroup": "kmsKeyId",
    "aws:fsx/lustreFileSystem:LustreFileSystem": "kmsKeyId",
    "aws:ec2/defaultKmsKey:DefaultKmsKey": "keyArn",
    "aws:cloudtrail/trail:Trail": "kmsKeyId",
    "aws:ec2/launchTemplate:LaunchTemplate": "blockDeviceMappings[*].ebs.kmsKeyId",
}
# Every resource of the program that carries tags as a map.
TAGGED = frozenset(
    {
        *(BUCKET, "aws:kms/key:Key", "aws:iam/role:Role", "aws:iam/policy:Policy"),
        *("aws:iam/instanceProfile:InstanceProfile", "aws:sns/topic:Topic", "aws:sqs/queue:Queue"),
        *("aws:cloudwatch/logGroup:LogGroup", "aws:cloudwatch/metricAlarm:MetricAlarm"),
        *("aws:ec2/vpc:Vpc", "aws:ec2/subnet:Subnet", "aws:ec2/eip:Eip", "aws:ec2/natGateway:NatGateway"),
        *("aws:ec2/internetGateway:InternetGateway", "aws:ec2/routeTable:RouteTable"),
        *("aws:ec2/vpcEndpoint:VpcEndpoint", "aws:ec2/securityGroup:SecurityGroup"),
        *("aws:ec2/defaultSecurityGroup:DefaultSecurityGroup", "aws:ec2/flowLog:FlowLog"),
        *("aws:ec2/placementGroup:PlacementGroup", "aws:ec2/launchTemplate:LaunchTemplate"),
        *("aws:fsx/lustreFileSystem:LustreFileSystem", "aws:lambda/function:Function"),
        *("aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation", "aws:budgets/budget:Budget"),
        *("aws:ssm/document:Document", "aws:autoscaling/group:Group"),
    }
)
MAX_TAGS = 50
TAG_CHARACTERS = re.compile(r"[\w\s+\-=.:/@]*", re.UNICODE)


def bucket_name_has_the_form(inputs: Inputs) -> Iterator[Found]:
    """3 to 63 small letters, digits and hyphens, none of S3's own prefixes and suffixes (S3 user guide, bucket naming
    rules, 2026). Dots are refused too: they break TLS names and distributed checkpoints (s3-connector-for-pytorch#295).
    """
    for key in ("bucket", "bucketPrefix"):
        name = known(read(inputs, key))
        if name is None:
            continue
        longest = 63 if key == "bucket" else 37
        if "." in name:
            yield f"{key}: '{name}' has dots"
        elif not re.fullmatch(r"[a-z0-9][a-z0-9-]*", name) or (key == "bucket" and name.endswith("-")):
            yield f"{key}: '{name}' has other characters than small letters, digits and inner hyphens"
        if not (3 if key == "bucket" else 1) <= len(name) <= longest:
            yield f"{key}: '{name}' has {len(name)} characters"
        if name.startswith(RESERVED_PREFIXES) or name.endswith(RESERVED_SUFFIXES):
            yield f"{key}: '{name}' is of a form that S3 keeps to itself"


def lifecycle_days_are_in_order(inputs: Inputs) -> Iterator[Found]:
    """Infrequent access begins after 30 days, and an object expires after its last transition."""
    for at, rule in leaves(inputs, "rules[*]"):
        if rule is UNKNOWN or rule is None:
            continue
        moves = [
            (number(read(move, "days")), read(move, "storageClass"))
            for _, move in leaves(rule, "transitions[*]")
            if move is not UNKNOWN and move is not None
        ]
        for days, storage in moves:
            if days is not None and storage in INFREQUENT and days < 30:
                yield f"{at}.transitions: {storage} after {days:g} days, 30 is the least"
        [(_, expiry)] = leaves(rule, "expiration.days")
        days = [day for day, _ in moves if day is not None]
        end = number(expiry)
        if end is not None and days and end <= max(days):
            yield f"{at}.expiration.days: not after the transition of day {max(days):g}"


def lifecycle_rules_have_own_ids(inputs: Inputs) -> Iterator[Found]:
    """Each rule's id is there once, in at most 255 characters."""
    ids = Counter(str(id_) for _, id_ in leaves(inputs, "rules[*].id") if known(id_) is not None)
    for id_, count in ids.items():
        if count > 1:
            yield f"rules: id '{id_}' is there {count} times"
        if len(id_) > 255:
            yield f"rules: id '{id_[:20]}...' has {len(id_)} characters"


def encryption_names_a_key_for_kms_only(inputs: Inputs) -> Iterator[Found]:
    """A key with AES256: S3 refuses the pair."""
    for at, default in leaves(inputs, "rules[*].applyServerSideEncryptionByDefault"):
        if default is UNKNOWN or default is None:
            continue
        if known(read(default, "sseAlgorithm")) == "AES256" and read(default, "kmsMasterKeyId") is not None:
            yield f"{at}.kmsMasterKeyId: beside AES256"


def key_is_named_by_its_arn(inputs: Inputs) -> Iterator[Found]:
    """A KMS key's id or alias where the whole ARN is needed."""
    for at, key in leaves(inputs, KEY_ARN_PATHS[inputs.type]):
        if known(key) is not None and not str(key).startswith("arn:"):
            yield f"{at}: '{key}' is no ARN"


def tags_have_the_form(inputs: Inputs) -> Iterator[Found]:
    """At most 50; keys of 1 to 128 characters, values up to 256; letters, digits, spaces and + - = . : / @; not aws:
    (EC2 user guide, Tag your resources, 2026).
    """
    tags = read(inputs, "tags")
    if tags is None or tags is UNKNOWN:
        return
    if hasattr(tags, "items"):
        pairs = [(key, read(tags, key)) for key in tags]
    else:  # of an Auto Scaling group: a list of key, value and whether instances get it
        pairs = [
            (read(tag, "key"), read(tag, "value"))
            for _, tag in leaves(inputs, "tags[*]")
            if tag is not UNKNOWN
        ]
    if len(pairs) > MAX_TAGS:
        yield f"tags: {len(pairs)} of them, at most {MAX_TAGS}"
    for key, value in pairs:
        if known(key) is None:
            continue
        at = f'tags["{key}"]'
        if not 1 <= len(key) <= 128 or not TAG_CHARACTERS.fullmatch(key):
            yield f"{at}: no key of a tag"
        if key.lower().startswith("aws:"):
            yield f"{at}: the prefix aws: is AWS's own"
        text = known(value)
        if text is not None and (len(str(text)) > 256 or not TAG_CHARACTERS.fullmatch(str(text))):
            yield f"{at}: its value has other characters, or more than 256"


VALIDATORS = (
    Validator(bucket_name_has_the_form, frozenset({BUCKET}), "small letters, digits and hyphens"),
    Validator(lifecycle_days_are_in_order, frozenset({LIFECYCLE}), "later days"),
    Validator(lifecycle_rules_have_own_ids, frozenset({LIFECYCLE}), "an id for each rule"),
    Validator(encryption_names_a_key_for_kms_only, frozenset({ENCRYPTION}), "aws:kms, or no key"),
    Validator(key_is_named_by_its_arn, frozenset(KEY_ARN_PATHS), "the key's arn"),
    Validator(tags_have_the_form, TAGGED, "shorter and plainer tags"),
)
