"""Roles, policies and instance profiles."""

from __future__ import annotations

from typing import Any

from botocore.exceptions import ClientError

from ..values import Tree
from .call import Call, Made, Realiser, first, is_gone


def _tags_of_role(call: Call) -> None:
    changed, gone = call.tag_changes()
    if changed:
        call.clients("iam").tag_role(RoleName=call.id, Tags=changed)
    if gone:
        call.clients("iam").untag_role(RoleName=call.id, TagKeys=gone)


def _role_create(call: Call) -> Made:
    wanted = call.fit(
        "iam",
        "CreateRole",
        {"assumeRolePolicy": "AssumeRolePolicyDocument", "name": None},
        *("forceDetachPolicies", "inlinePolicies", "managedPolicyArns", "namePrefix"),
    )
    made = call.clients("iam").create_role(**wanted, RoleName=call.name, Tags=call.tag_list())["Role"]
    _role_policies(call, call.name)
    return call.name, {"arn": made["Arn"], "uniqueId": made["RoleId"]}


def _role_policies(call: Call, role: str) -> None:
    iam = call.clients("iam")
    for policy in call["inlinePolicies"] or []:
        iam.put_role_policy(RoleName=role, PolicyName=policy["name"], PolicyDocument=policy["policy"])
    for arn in call["managedPolicyArns"] or []:
        _attach(call, role, arn)


def _attach(call: Call, role: str, arn: str) -> None:
    """Policies that AWS itself owns are kept as declared where the emulation has not loaded them."""
    try:
        call.clients("iam").attach_role_policy(RoleName=role, PolicyArn=arn)
    except ClientError as error:
        if not (is_gone(error) and ":iam::aws:policy/" in arn):
            raise


def _role_update(call: Call) -> None:
    iam = call.clients("iam")
    if call.changed("assumeRolePolicy"):
        iam.update_assume_role_policy(RoleName=call.id, PolicyDocument=call["assumeRolePolicy"])
    if call.changed("description", "maxSessionDuration"):
        session = {"MaxSessionDuration": call["maxSessionDuration"]} if call["maxSessionDuration"] else {}
        iam.update_role(RoleName=call.id, Description=call["description"] or "", **session)
    if call.changed("permissionsBoundary"):
        if call["permissionsBoundary"]:
            iam.put_role_permissions_boundary(
                RoleName=call.id, PermissionsBoundary=call["permissionsBoundary"]
            )
        else:
            iam.delete_role_permissions_boundary(RoleName=call.id)
    if call.changed("inlinePolicies", "managedPolicyArns"):
        _role_policies(call, call.id)
    _tags_of_role(call)


def _role_delete(call: Call) -> None:
    """Whatever still hangs on the role goes first, so that the engine's order does not matter."""
    iam = call.clients("iam")
    for profile in iam.list_instance_profiles_for_role(RoleName=call.id)["InstanceProfiles"]:
        iam.remove_role_from_instance_profile(
            InstanceProfileName=profile["InstanceProfileName"], RoleName=call.id
        )
    for policy in iam.list_role_policies(RoleName=call.id)["PolicyNames"]:
        iam.delete_role_policy(RoleName=call.id, PolicyName=policy)
    for policy in iam.list_attached_role_policies(RoleName=call.id)["AttachedPolicies"]:
        iam.detach_role_policy(RoleName=call.id, PolicyArn=policy["PolicyArn"])
    iam.delete_role(RoleName=call.id)


def _role_policy_put(call: Call) -> None:
    call.clients("iam").put_role_policy(
        RoleName=call["role"], PolicyName=call.name, PolicyDocument=call["policy"]
    )


def _role_policy_create(call: Call) -> Made:
    _role_policy_put(call)
    return f"{call['role']}:{call.name}", {}


def _policy_create(call: Call) -> Made:
    made = call.clients("iam").create_policy(
        PolicyName=call.name,
        Path=call["path"] or "/",
        PolicyDocument=call["policy"],
        Description=call["description"] or "",
        Tags=call.tag_list(),
    )["Policy"]
    return made["Arn"], {"policyId": made["PolicyId"]}


def _policy_update(call: Call) -> None:
    """IAM keeps five versions of a policy at most: the ones that are not the default go first."""
    iam = call.clients("iam")
    if not call.changed("policy"):
        return
    for version in iam.list_policy_versions(PolicyArn=call.id)["Versions"]:
        if not version["IsDefaultVersion"]:
            iam.delete_policy_version(PolicyArn=call.id, VersionId=version["VersionId"])
    iam.create_policy_version(PolicyArn=call.id, PolicyDocument=call["policy"], SetAsDefault=True)


def _policy_delete(call: Call) -> None:
    iam = call.clients("iam")
    for version in iam.list_policy_versions(PolicyArn=call.id)["Versions"]:
        if not version["IsDefaultVersion"]:
            iam.delete_policy_version(PolicyArn=call.id, VersionId=version["VersionId"])
    iam.delete_policy(PolicyArn=call.id)


def _attachment_create(call: Call) -> Made:
    _attach(call, call["role"], call["policyArn"])
    return f"{call['role']}-{call['policyArn']}", {}


def _attachment_read(call: Call) -> Any:
    role, arn = call.state("role"), call.state("policyArn")
    attached = call.clients("iam").list_attached_role_policies(RoleName=role)["AttachedPolicies"]
    return ":iam::aws:policy/" in arn or first([policy for policy in attached if policy["PolicyArn"] == arn])


def _profile_create(call: Call) -> Made:
    iam = call.clients("iam")
    made = iam.create_instance_profile(
        InstanceProfileName=call.name, Path=call["path"] or "/", Tags=call.tag_list()
    )["InstanceProfile"]
    if call["role"]:
        iam.add_role_to_instance_profile(InstanceProfileName=call.name, RoleName=call["role"])
    return call.name, {"arn": made["Arn"], "uniqueId": made["InstanceProfileId"]}


def _profile_roles(call: Call) -> list[Tree]:
    profile = call.clients("iam").get_instance_profile(InstanceProfileName=call.id)["InstanceProfile"]
    return [role["RoleName"] for role in profile["Roles"]]


def _profile_update(call: Call) -> None:
    iam = call.clients("iam")
    if call.changed("role"):
        for role in _profile_roles(call):
            iam.remove_role_from_instance_profile(InstanceProfileName=call.id, RoleName=role)
        if call["role"]:
            iam.add_role_to_instance_profile(InstanceProfileName=call.id, RoleName=call["role"])


def _profile_delete(call: Call) -> None:
    iam = call.clients("iam")
    for role in _profile_roles(call):
        iam.remove_role_from_instance_profile(InstanceProfileName=call.id, RoleName=role)
    iam.delete_instance_profile(InstanceProfileName=call.id)


REALISERS: dict[str, Realiser] = {
    "aws:iam/role:Role": Realiser(
        _role_create,
        _role_delete,
        lambda call: call.clients("iam").get_role(RoleName=call.id),
        _role_update,
    ),
    "aws:iam/rolePolicy:RolePolicy": Realiser(
        _role_policy_create,
        lambda call: call.clients("iam").delete_role_policy(
            RoleName=call.state("role"), PolicyName=call.name
        ),
        lambda call: call.clients("iam").get_role_policy(RoleName=call.state("role"), PolicyName=call.name),
        _role_policy_put,
    ),
    "aws:iam/policy:Policy": Realiser(
        _policy_create,
        _policy_delete,
        lambda call: call.clients("iam").get_policy(PolicyArn=call.id),
        _policy_update,
    ),
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": Realiser(
        _attachment_create,
        lambda call: call.clients("iam").detach_role_policy(
            RoleName=call.state("role"), PolicyArn=call.state("policyArn")
        ),
        _attachment_read,
    ),
    "aws:iam/instanceProfile:InstanceProfile": Realiser(
        _profile_create, _profile_delete, _profile_roles, _profile_update
    ),
}
