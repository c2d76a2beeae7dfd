"""IAM and KMS. As of 2026-11: pulumi_aws 7.51.1, Terraform AWS provider 6."""

from __future__ import annotations

from .build import arn, row


def _iam(resource: str) -> str:
    return arn("iam", resource, region="")


KINDS = (
    row(
        "aws:iam/role:Role",
        "{name}",
        {"arn": _iam("role/{name}"), "createDate": "2026-01-01T00:00:00Z", "uniqueId": "AROA{hex17}"},
        replace="namePrefix path",
        name="name",
        regional=False,
        taggable=True,
        held="realised",
    ),
    row(
        "aws:iam/rolePolicy:RolePolicy",
        "{in[role]}:{name}",
        replace="namePrefix role",
        name="name",
        regional=False,
        held="realised",
    ),
    row(
        "aws:iam/policy:Policy",
        arn("iam", "policy/{name}", region=""),
        {"arn": "{id}", "attachmentCount": 0, "policyId": "ANPA{hex17}"},
        replace="namePrefix path description",
        name="name",
        regional=False,
        taggable=True,
        held="realised",
    ),
    row(
        "aws:iam/rolePolicyAttachment:RolePolicyAttachment",
        "{in[role]}-{hex17}",
        replace="role policyArn",
        regional=False,
        held="realised",
    ),
    row(
        "aws:iam/instanceProfile:InstanceProfile",
        "{name}",
        {
            "arn": _iam("instance-profile/{name}"),
            "createDate": "2026-01-01T00:00:00Z",
            "uniqueId": "AIPA{hex17}",
        },
        replace="namePrefix path",
        name="name",
        regional=False,
        taggable=True,
        held="realised",
    ),
    row(
        "aws:kms/key:Key",
        "{uuid}",
        {"arn": arn("kms", "key/{id}"), "keyId": "{id}"},
        filled={"policy": "", "keyUsage": "ENCRYPT_DECRYPT", "multiRegion": False},
        replace="customKeyStoreId customerMasterKeySpec keyUsage multiRegion xksKeyId",
        taggable=True,
        held="realised",
    ),
    row(
        "aws:kms/alias:Alias",
        "{name}",
        {"arn": arn("kms", "{name}"), "targetKeyArn": arn("kms", "key/{in[targetKeyId]}")},
        replace="namePrefix",
        name="name",
        auto_name="alias/{logical}-{hex7}",
        held="realised",
    ),
    row("aws:kms/keyPolicy:KeyPolicy", "{in[keyId]}", replace="keyId", held="realised"),
)
