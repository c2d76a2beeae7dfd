"""Topics, alarms, dashboards, log groups and parameters."""

from __future__ import annotations

from typing import Any

from ..values import Tree
from .call import Call, Gone, Made, Realiser, first


def _topic_attributes(call: Call) -> dict[str, str]:
    names = (
        ("displayName", "DisplayName"),
        ("kmsMasterKeyId", "KmsMasterKeyId"),
        ("policy", "Policy"),
        ("deliveryPolicy", "DeliveryPolicy"),
    )
    # Empty text is how SNS is told that there is none any more.
    return {
        api: str(call[key] or "")
        for key, api in names
        if call.changed(key) and (call[key] or call.old_inputs.get(key))
    }


def _topic_create(call: Call) -> Made:
    made = call.clients("sns").create_topic(
        Name=call.name, Attributes=_topic_attributes(call), Tags=call.tag_list()
    )
    return made["TopicArn"], {}


def _topic_update(call: Call) -> None:
    sns = call.clients("sns")
    for name, value in _topic_attributes(call).items():
        sns.set_topic_attributes(TopicArn=call.id, AttributeName=name, AttributeValue=value)
    changed, gone = call.tag_changes()
    if changed:
        sns.tag_resource(ResourceArn=call.id, Tags=changed)
    if gone:
        sns.untag_resource(ResourceArn=call.id, TagKeys=gone)


def _topic_read(call: Call) -> Any:
    return call.clients("sns").get_topic_attributes(TopicArn=call.id)


def _subscription_create(call: Call) -> Made:
    made = call.clients("sns").subscribe(
        TopicArn=call["topic"],
        Protocol=call["protocol"],
        Endpoint=call["endpoint"],
        ReturnSubscriptionArn=True,
    )
    return made["SubscriptionArn"], {}


def _topic_policy_put(call: Call) -> None:
    call.clients("sns").set_topic_attributes(
        TopicArn=call["arn"], AttributeName="Policy", AttributeValue=call["policy"]
    )


def _topic_policy_create(call: Call) -> Made:
    _topic_policy_put(call)
    return call["arn"], {}


def _alarm_put(call: Call) -> None:
    wanted = call.fit("cloudwatch", "PutMetricAlarm", {"name": None}, "metricQueries")
    if call["metricQueries"]:
        wanted["Metrics"] = [_metric_query(query) for query in call["metricQueries"]]
    cloudwatch = call.clients("cloudwatch")
    cloudwatch.put_metric_alarm(**wanted, AlarmName=call.name, Tags=call.tag_list())


def _metric_query(query: dict[str, Any]) -> dict[str, Any]:
    plain = (("id", "Id"), ("expression", "Expression"), ("label", "Label"), ("period", "Period"))
    wanted = {api: query[key] for key, api in plain if query.get(key) is not None}
    if query.get("returnData") is not None:
        wanted["ReturnData"] = bool(query["returnData"])
    if metric := query.get("metric"):
        dimensions = [
            {"Name": name, "Value": value} for name, value in (metric.get("dimensions") or {}).items()
        ]
        wanted["MetricStat"] = {
            "Metric": {
                "Namespace": metric["namespace"],
                "MetricName": metric["metricName"],
                "Dimensions": dimensions,
            },
            "Period": int(metric["period"]),
            "Stat": metric["stat"],
        }
    return wanted


def _alarm_create(call: Call) -> Made:
    _alarm_put(call)
    return call.name, {}


def _alarm_read(call: Call) -> Any:
    return first(call.clients("cloudwatch").describe_alarms(AlarmNames=[call.name])["MetricAlarms"])


def _dashboard_put(call: Call) -> None:
    call.clients("cloudwatch").put_dashboard(DashboardName=call.name, DashboardBody=call["dashboardBody"])


def _dashboard_create(call: Call) -> Made:
    _dashboard_put(call)
    return call.name, {}


def _log_group_create(call: Call) -> Made:
    key = {"kmsKeyId": call["kmsKeyId"]} if call["kmsKeyId"] else {}
    call.clients("logs").create_log_group(logGroupName=call.name, tags=call.tags, **key)
    _retention(call)
    return call.name, {}


def _retention(call: Call) -> None:
    if not call.changed("retentionInDays"):
        return
    logs = call.clients("logs")
    if call["retentionInDays"]:
        logs.put_retention_policy(logGroupName=call.name, retentionInDays=int(call["retentionInDays"]))
    else:
        logs.delete_retention_policy(logGroupName=call.name)


def _log_group_update(call: Call) -> None:
    logs = call.clients("logs")
    _retention(call)
    changed, gone = call.tag_changes()
    if changed:
        logs.tag_log_group(logGroupName=call.name, tags={tag["Key"]: tag["Value"] for tag in changed})
    if gone:
        logs.untag_log_group(logGroupName=call.name, tags=gone)


def _log_group_delete(call: Call) -> None:
    if not call.state("skipDestroy"):
        call.clients("logs").delete_log_group(logGroupName=call.name)


def _log_group_read(call: Call) -> Any:
    found = call.clients("logs").describe_log_groups(logGroupNamePrefix=call.name)["logGroups"]
    return first([group for group in found if group["logGroupName"] == call.name])


def _filter_put(call: Call) -> None:
    metric = dict(call["metricTransformation"])
    transformation = {
        "metricName": metric["name"],
        "metricNamespace": metric["namespace"],
        "metricValue": str(metric["value"]),
        **({"defaultValue": float(metric["defaultValue"])} if metric.get("defaultValue") is not None else {}),
        **{key: metric[key] for key in ("unit", "dimensions") if metric.get(key)},
    }
    call.clients("logs").put_metric_filter(
        logGroupName=call["logGroupName"],
        filterName=call.name,
        filterPattern=call["pattern"] or "",
        metricTransformations=[transformation],
    )


def _filter_create(call: Call) -> Made:
    _filter_put(call)
    return call.name, {}


def _filter_read(call: Call) -> Any:
    found = call.clients("logs").describe_metric_filters(
        logGroupName=call.state("logGroupName"), filterNamePrefix=call.name
    )
    return first(found["metricFilters"])


def _parameter_put(call: Call, **how: Any) -> dict[str, Tree]:
    value = call["insecureValue"] if call["value"] is None else call["value"]
    optional = (
        ("description", "Description"),
        ("keyId", "KeyId"),
        ("allowedPattern", "AllowedPattern"),
        ("tier", "Tier"),
    )
    wanted = {api: call[key] for key, api in optional if call[key]}
    made = call.clients("ssm").put_parameter(Name=call.name, Type=call["type"], Value=value, **wanted, **how)
    return {"version": made["Version"]}


def _parameter_create(call: Call) -> Made:
    overwrite = {"Overwrite": True} if call["overwrite"] else {"Tags": call.tag_list()}
    return call.name, _parameter_put(call, **overwrite)


def _parameter_read(call: Call) -> Any:
    found = call.clients("ssm").get_parameters(Names=[call.name])
    if found["InvalidParameters"]:
        raise Gone
    return found


REALISERS: dict[str, Realiser] = {
    "aws:sns/topic:Topic": Realiser(
        _topic_create,
        lambda call: call.clients("sns").delete_topic(TopicArn=call.id),
        _topic_read,
        _topic_update,
    ),
    "aws:sns/topicSubscription:TopicSubscription": Realiser(
        _subscription_create,
        lambda call: call.clients("sns").unsubscribe(SubscriptionArn=call.id),
        lambda call: call.clients("sns").get_subscription_attributes(SubscriptionArn=call.id),
    ),
    "aws:sns/topicPolicy:TopicPolicy": Realiser(
        _topic_policy_create,
        lambda call: None,  # a topic always has a policy; it goes with the topic
        _topic_read,
        _topic_policy_put,
    ),
    "aws:cloudwatch/metricAlarm:MetricAlarm": Realiser(
        _alarm_create,
        lambda call: call.clients("cloudwatch").delete_alarms(AlarmNames=[call.name]),
        _alarm_read,
        _alarm_put,
    ),
    "aws:cloudwatch/dashboard:Dashboard": Realiser(
        _dashboard_create,
        lambda call: call.clients("cloudwatch").delete_dashboards(DashboardNames=[call.name]),
        lambda call: call.clients("cloudwatch").get_dashboard(DashboardName=call.name),
        _dashboard_put,
    ),
    "aws:cloudwatch/logGroup:LogGroup": Realiser(
        _log_group_create, _log_group_delete, _log_group_read, _log_group_update
    ),
    "aws:cloudwatch/logMetricFilter:LogMetricFilter": Realiser(
        _filter_create,
        lambda call: call.clients("logs").delete_metric_filter(
            logGroupName=call.state("logGroupName"), filterName=call.name
        ),
        _filter_read,
        _filter_put,
    ),
    "aws:ssm/parameter:Parameter": Realiser(
        _parameter_create,
        lambda call: call.clients("ssm").delete_parameter(Name=call.name),
        _parameter_read,
        lambda call: _parameter_put(call, Overwrite=True),
    ),
}
