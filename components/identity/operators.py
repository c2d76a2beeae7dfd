"""What an operator may do: look at the stack, read its logs, open logged sessions on its nodes. Pure.

Nothing here changes the stack. There is no key pair and no port 22: who may open a session is a matter of IAM alone.
"""

from __future__ import annotations

from typing import Any

from components.iam import allow, partition
from components.names import StackNames, stack_tag

# Owned by AWS, so without an account in its ARN. Ports of a node (Jupyter, TensorBoard) on the operator's own machine;
# of such sessions only their beginning and end are recorded, in CloudTrail.
PORT_FORWARDING = "AWS-StartPortForwardingSession"


def operator_statements(names: StackNames) -> list[dict[str, Any]]:
    """Sessions by the stack's own document and by port forwarding alone; the calls of ``make status|logs|connect``."""
    arn = f"arn:{partition(names.region)}"
    key, value = stack_tag(names.base_name)
    own_sessions = names.arn("ssm", "session/*")
    log_groups = names.arn("logs", f"log-group:/{names.base_name}/*")
    return [
        {
            **allow("ssm:StartSession", [names.arn("ec2", "instance/*")]),
            "Condition": {
                "StringEquals": {f"ssm:resourceTag/{key}": [value]},
                # Without this the account's default document, which need not log, would need no right of its own.
                "BoolIfExists": {"ssm:SessionDocumentAccessCheck": ["true"]},
            },
        },
        allow(
            "ssm:StartSession",
            [
                names.arn("ssm", f"document/{names.session_document}"),
                f"{arn}:ssm:{names.region}::document/{PORT_FORWARDING}",
            ],
        ),
        # A session is reached with the token that StartSession or ResumeSession gave to whoever opened it.
        allow("ssmmessages:OpenDataChannel", [own_sessions]),
        {
            **allow(["ssm:ResumeSession", "ssm:TerminateSession"], [own_sessions]),
            # The tag that Session Manager itself puts on a session: who opened it (Systems Manager user guide).
            "Condition": {"StringLike": {"ssm:resourceTag/aws:ssmmessages:session-id": ["${aws:userid}"]}},
        },
        # These know no resources, or are asked without one: service authorization references of EC2, Auto Scaling,
        # CloudWatch and Systems Manager.
        allow(
            [
                "autoscaling:DescribeAutoScalingGroups",
                "autoscaling:DescribeScalingActivities",
                "cloudwatch:DescribeAlarms",
                "ec2:DescribeInstances",
                "ssm:DescribeSessions",
            ],
            ["*"],
        ),
        allow(["logs:DescribeLogStreams", "logs:FilterLogEvents"], [log_groups]),
    ]
