"""What may pass through the VPC's endpoints. Pure: names in, policies out.

An endpoint's policy gives nobody a right; it bounds what rights can be used for through this endpoint. A
credential of another account that reaches a node can neither read nor write anything with it here.
"""

from __future__ import annotations

from typing import Any

from components.catalog.endpoint_services import ENDPOINT_SERVICES
from components.iam import partition, policy_document
from components.names import StackNames

MAX_ENDPOINT_POLICY = 20_480  # characters, VPC user guide (2026)

# AWS's own buckets that a node reads from. Sources: ECR and Amazon Linux 2023 user guides, "SSM Agent
# communications with AWS managed S3 buckets", EC2 user guide for the GRID driver (2026).
AWS_BUCKETS = (
    "prod-{region}-starport-layer-bucket",  # layers of container images
    "al2023-repos-{region}-de612dc2",  # packages of Amazon Linux
    "amazon-ssm-{region}",
    "amazon-ssm-packages-{region}",
    "aws-ssm-{region}",
    "aws-ssm-document-attachments-{region}",
    "patch-baseline-snapshot-{region}",
)
AWS_BUCKETS_LISTED = ("ec2-linux-nvidia-drivers",)  # copied as a folder, which lists it


def s3_policy(names: StackNames) -> str:
    """The stack's own buckets for this account's principals, and AWS's buckets for everyone to read.

    Package managers read AWS's buckets without a signature, so that no condition on the principal can hold.
    """
    arn = f"arn:{partition(names.region)}:s3:::"
    own = [names.artifacts_bucket, *names.dataset_buckets.values()]
    of_aws = [bucket.format(region=names.region) for bucket in AWS_BUCKETS] + [*AWS_BUCKETS_LISTED]
    return policy_document(
        [
            {
                **_for_everyone(
                    "s3:*", [part for bucket in own for part in (arn + bucket, f"{arn}{bucket}/*")]
                ),
                "Condition": {
                    "StringEquals": {
                        "aws:PrincipalAccount": [names.account_id],
                        "aws:ResourceAccount": [names.account_id],
                    }
                },
            },
            _for_everyone("s3:GetObject", [f"{arn}{bucket}/*" for bucket in of_aws]),
            _for_everyone("s3:ListBucket", [arn + bucket for bucket in AWS_BUCKETS_LISTED]),
        ]
    )


def interface_policy(service: str, account_id: str) -> str | None:
    """This account's principals and nobody else; None for the few services that take no policy."""
    if service in ENDPOINT_SERVICES.without_policies:
        return None
    own = {"StringEquals": {"aws:PrincipalAccount": [account_id]}}
    return policy_document([{**_for_everyone("*", ["*"]), "Condition": own}])


def _for_everyone(action: str, resources: list[str]) -> dict[str, Any]:
    return {"Effect": "Allow", "Principal": "*", "Action": action, "Resource": resources}
