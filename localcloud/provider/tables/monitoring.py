"""CloudWatch, CloudWatch Logs, SNS, SSM and Budgets.

As of 2026-11: pulumi_aws 7.51.1, Terraform AWS provider 6.
"""

from __future__ import annotations

from .build import arn, row

_TOPIC = arn("sns", "{name}")

KINDS = (
    row(
        "aws:sns/topic:Topic",
        _TOPIC,
        {"arn": "{id}", "beginningArchiveTime": "", "owner": "{account}"},
        filled={"policy": ""},
        replace="namePrefix fifoTopic",
        name="name",
        taggable=True,
        held="realised",
    ),
    row(
        "aws:sns/topicSubscription:TopicSubscription",
        "{in[topic]}:{uuid}",
        {
            "arn": "{id}",
            "confirmationWasAuthenticated": False,
            "ownerId": "{account}",
            "pendingConfirmation": True,
        },
        replace="endpoint protocol topic",
        held="realised",
    ),
    row(
        "aws:sns/topicPolicy:TopicPolicy", "{in[arn]}", {"owner": "{account}"}, replace="arn", held="realised"
    ),
    row(
        "aws:cloudwatch/metricAlarm:MetricAlarm",
        "{name}",
        {"arn": arn("cloudwatch", "alarm:{name}")},
        name="name",
        taggable=True,
        held="realised",
    ),
    row(
        "aws:cloudwatch/compositeAlarm:CompositeAlarm",
        "{name}",
        {"arn": arn("cloudwatch", "alarm:{name}")},
        name="alarmName",
        taggable=True,
    ),
    row(
        "aws:cloudwatch/dashboard:Dashboard",
        "{name}",
        {"dashboardArn": arn("cloudwatch", "dashboard/{name}", region="")},
        name="dashboardName",
        held="realised",
    ),
    row(
        "aws:cloudwatch/logGroup:LogGroup",
        "{name}",
        {"arn": arn("logs", "log-group:{name}")},
        filled={"logGroupClass": "STANDARD"},
        replace="namePrefix logGroupClass",
        name="name",
        taggable=True,
        held="realised",
    ),
    row(
        "aws:cloudwatch/logMetricFilter:LogMetricFilter",
        "{name}",
        replace="logGroupName",
        name="name",
        held="realised",
    ),
    row(
        "aws:ssm/parameter:Parameter",
        "{name}",
        {"hasValueWo": False, "version": 1},
        filled={"arn": arn("ssm", "parameter{name}"), "dataType": "text", "tier": "Standard"},
        name="name",
        moves={"version": frozenset({"tags"})},
        taggable=True,
        held="realised",
    ),
    row(
        "aws:ssm/document:Document",
        "{name}",
        {
            "createdDate": "2026-01-01T00:00:00Z",
            "defaultVersion": "1",
            "description": "",
            "documentVersion": "1",
            "hash": "{hex32}",
            "hashType": "Sha256",
            "latestVersion": "1",
            "owner": "{account}",
            "parameters": [],
            "platformTypes": ["Linux"],
            "schemaVersion": "1.0",
            "status": "Active",
            "arn": arn("ssm", "document/{name}"),
        },
        filled={"documentFormat": "JSON"},
        replace="documentType",
        name="name",
        taggable=True,
    ),
    row(
        "aws:budgets/budget:Budget",
        "{account}:{name}",
        {"arn": arn("budgets", "budget/{name}", region="")},
        filled={
            "accountId": "{account}",
            "timePeriodStart": "2026-01-01_00:00",
            "timePeriodEnd": "2087-06-15_00:00",
        },
        replace="namePrefix accountId",
        name="name",
        regional=False,
        taggable=True,
    ),
)
