"""KMS keys, their policies and aliases."""

from __future__ import annotations

from typing import Any

from ..values import Tree
from .call import Call, Gone, Made, Realiser, first


def _key_create(call: Call) -> Made:
    kms = call.clients("kms")
    policy = {"Policy": call["policy"]} if call["policy"] else {}
    made = kms.create_key(
        Description=call["description"] or "",
        KeyUsage=call["keyUsage"] or "ENCRYPT_DECRYPT",
        MultiRegion=bool(call["multiRegion"]),
        Tags=_tags(call.tags),
        **policy,
    )["KeyMetadata"]
    if call["enableKeyRotation"]:
        kms.enable_key_rotation(KeyId=made["KeyId"])
    return made["KeyId"], {"arn": made["Arn"]}


def _tags(tags: dict[str, str]) -> list[dict[str, str]]:
    return [{"TagKey": key, "TagValue": value} for key, value in sorted(tags.items())]


def _key_update(call: Call) -> None:
    kms = call.clients("kms")
    if call.changed("description"):
        kms.update_key_description(KeyId=call.id, Description=call["description"] or "")
    if call.changed("policy") and call["policy"]:
        kms.put_key_policy(KeyId=call.id, PolicyName="default", Policy=call["policy"])
    if call.changed("enableKeyRotation"):
        turn = kms.enable_key_rotation if call["enableKeyRotation"] else kms.disable_key_rotation
        turn(KeyId=call.id)
    changed, gone = call.tag_changes()
    if changed:
        kms.tag_resource(KeyId=call.id, Tags=_tags({tag["Key"]: tag["Value"] for tag in changed}))
    if gone:
        kms.untag_resource(KeyId=call.id, TagKeys=gone)


def _key_read(call: Call) -> Any:
    """A key that only waits for its deletion counts as gone, as AWS's provider has it."""
    metadata = call.clients("kms").describe_key(KeyId=call.id)["KeyMetadata"]
    if metadata["KeyState"] == "PendingDeletion":
        raise Gone
    return metadata


def _key_delete(call: Call) -> None:
    _key_read(call)
    days = int(call.state("deletionWindowInDays") or 30)
    call.clients("kms").schedule_key_deletion(KeyId=call.id, PendingWindowInDays=days)


def _alias_create(call: Call) -> Made:
    call.clients("kms").create_alias(AliasName=call.name, TargetKeyId=call["targetKeyId"])
    return call.name, _target(call)


def _target(call: Call) -> dict[str, Tree]:
    return {"targetKeyArn": call.clients("kms").describe_key(KeyId=call["targetKeyId"])["KeyMetadata"]["Arn"]}


def _alias_update(call: Call) -> dict[str, Tree]:
    call.clients("kms").update_alias(AliasName=call.name, TargetKeyId=call["targetKeyId"])
    return _target(call)


def _alias_read(call: Call) -> Any:
    aliases = call.clients("kms").list_aliases(Limit=1000)["Aliases"]
    return first([alias for alias in aliases if alias["AliasName"] == call.name])


def _policy_put(call: Call) -> None:
    call.clients("kms").put_key_policy(KeyId=call["keyId"], PolicyName="default", Policy=call["policy"])


def _policy_create(call: Call) -> Made:
    _policy_put(call)
    return call["keyId"], {}


REALISERS: dict[str, Realiser] = {
    "aws:kms/key:Key": Realiser(_key_create, _key_delete, _key_read, _key_update),
    "aws:kms/alias:Alias": Realiser(
        _alias_create,
        lambda call: call.clients("kms").delete_alias(AliasName=call.name),
        _alias_read,
        _alias_update,
    ),
    "aws:kms/keyPolicy:KeyPolicy": Realiser(
        _policy_create,
        lambda call: None,  # a key always has a policy; it goes with the key
        _key_read,
        _policy_put,
    ),
}
