"""Alarms, topics and log groups that CloudWatch and SNS refuse, or that never fire."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .._judge import UNKNOWN, leaves, read
from ._validator import Found, Inputs, Validator, known, number

ALARM, LOG_GROUP, FILTER, SUBSCRIPTION = (
    "aws:cloudwatch/metricAlarm:MetricAlarm",
    "aws:cloudwatch/logGroup:LogGroup",
    "aws:cloudwatch/logMetricFilter:LogMetricFilter",
    "aws:sns/topicSubscription:TopicSubscription",
)
# CloudWatch PutRetentionPolicy (botocore logs model, 2026); 0 keeps for ever.
RETENTION_DAYS = (
    *(0, 1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731),
    *(1096, 1827, 2192, 2557, 2922, 3288, 3653),
)
SHORT_PERIODS = (10, 20, 30)  # seconds, of high-resolution metrics
MAX_WINDOW_SECONDS = 7 * 24 * 3600
DAY_SECONDS = 24 * 3600


def alarm_has_a_metric(inputs: Inputs) -> Iterator[Found]:
    """An alarm watches one metric of a namespace, or a query; without either it is refused at creation."""
    single, queries = read(inputs, "metricName"), read(inputs, "metricQueries")
    if single is UNKNOWN or queries is UNKNOWN:
        return
    if not single and not queries:
        yield "metricName: neither it nor metricQueries is given"
    if single and queries:
        yield "metricName: beside metricQueries"
    if single and read(inputs, "namespace") is None:
        yield "namespace: missing beside metricName"


def alarm_has_a_statistic(inputs: Inputs) -> Iterator[Found]:
    """One metric needs a statistic, or an extended one, and a period."""
    if not known(read(inputs, "metricName")):
        return
    if read(inputs, "statistic") is None and read(inputs, "extendedStatistic") is None:
        yield "statistic: missing"
    if read(inputs, "period") is None:
        yield "period: missing"


def alarm_queries_return_one_result(inputs: Inputs) -> Iterator[Found]:
    """Of all queries exactly one returns data, and each has its own id."""
    queries = [query for _, query in leaves(inputs, "metricQueries[*]") if query is not None]
    if not queries or UNKNOWN in queries:
        return
    returned = [read(query, "returnData") for query in queries]
    if UNKNOWN not in returned and len([one for one in returned if one in (True, "true")]) != 1:
        yield "metricQueries: not exactly one of them returns data"
    ids = [known(read(query, "id")) for query in queries]
    for place, id_ in enumerate(ids):
        if id_ is not None and id_ in ids[:place]:
            yield f"metricQueries[{place}].id: '{id_}' is there twice"
        elif id_ is not None and not re.fullmatch(r"[a-z][A-Za-z0-9_]*", str(id_)):
            yield f"metricQueries[{place}].id: '{id_}' does not begin with a small letter, or has other characters"


def alarm_looks_back_a_week_at_most(inputs: Inputs) -> Iterator[Found]:
    """Periods are 10, 20, 30 or a multiple of 60 s; all evaluation periods together a day, or a week where each is
    an hour or more (CloudWatch API, PutMetricAlarm).
    """
    paths = ("period", "metricQueries[*].metric.period", "metricQueries[*].period")
    periods = [(at, number(value)) for path in paths for at, value in leaves(inputs, path)]
    count = number(read(inputs, "evaluationPeriods"))
    for at, seconds in periods:
        if seconds is None:
            continue
        if seconds not in SHORT_PERIODS and (seconds <= 0 or seconds % 60 != 0):
            yield f"{at}: {seconds:g} s is neither 10, 20, 30 nor a multiple of 60"
        elif count is not None:
            most = MAX_WINDOW_SECONDS if seconds >= 3600 else DAY_SECONDS
            if seconds * count > most:
                yield f"{at}: {count:g} periods of {seconds:g} s look back further than {most} s"


def alarm_needs_no_more_points_than_it_looks_at(inputs: Inputs) -> Iterator[Found]:
    """`datapointsToAlarm` is at most `evaluationPeriods`: else the alarm never fires, and is refused."""
    points, periods = number(read(inputs, "datapointsToAlarm")), number(read(inputs, "evaluationPeriods"))
    if points is not None and periods is not None and points > periods:
        yield f"datapointsToAlarm: {points:g} of {periods:g}"


def log_retention_is_possible(inputs: Inputs) -> Iterator[Found]:
    """CloudWatch Logs keeps for these numbers of days only (PutRetentionPolicy)."""
    for at, days in leaves(inputs, "retentionInDays"):
        if number(days) is not None and number(days) not in RETENTION_DAYS:
            yield f"{at}: {number(days):g} is none of {', '.join(map(str, RETENTION_DAYS))}"


def log_group_name_has_the_form(inputs: Inputs) -> Iterator[Found]:
    """1 to 512 letters, digits and . - _ / # (CloudWatch Logs API), not beginning with aws/."""
    for at, name in leaves(inputs, "name"):
        if known(name) is None:
            continue
        if not re.fullmatch(r"[.\-_/#A-Za-z0-9]{1,512}", str(name)) or str(name).startswith("aws/"):
            yield f"{at}: '{name}' is no name of a log group"


def metric_filter_has_a_value(inputs: Inputs) -> Iterator[Found]:
    """A filter says what it counts: a number, or a field of the line; a default value excludes dimensions."""
    for at, change in leaves(inputs, "metricTransformation"):
        if change is UNKNOWN or change is None:
            continue
        value = known(read(change, "value"))
        if value is not None and number(value) is None and not str(value).startswith("$"):
            yield f"{at}.value: '{value}' is neither a number nor a field"
        if read(change, "defaultValue") is not None and known(read(change, "dimensions")):
            yield f"{at}.defaultValue: beside dimensions"


def subscription_address_is_of_the_protocol(inputs: Inputs) -> Iterator[Found]:
    """E-mail goes to an address, lambda and sqs to an ARN, https to an https URL (SNS API, Subscribe)."""
    protocol, endpoint = known(read(inputs, "protocol")), known(read(inputs, "endpoint"))
    if protocol is None or endpoint is None:
        return
    forms = {
        "email": r"[^@\s]+@[^@\s]+",
        "email-json": r"[^@\s]+@[^@\s]+",
        "lambda": r"arn:.+",
        "sqs": r"arn:.+",
        "https": r"https://.+",
    }
    form = forms.get(str(protocol))
    if form is not None and not re.fullmatch(form, str(endpoint)):
        yield f"endpoint: not an address of protocol {protocol}"


_ALARM = frozenset({ALARM})
VALIDATORS = (
    Validator(alarm_has_a_metric, _ALARM, "metric_name with namespace, or metric_queries"),
    Validator(alarm_has_a_statistic, _ALARM, "statistic and period"),
    Validator(alarm_queries_return_one_result, _ALARM, "return_data=True in one query of an own id"),
    Validator(alarm_looks_back_a_week_at_most, _ALARM, "periods of 60 s, fewer of them"),
    Validator(
        alarm_needs_no_more_points_than_it_looks_at, _ALARM, "datapoints_to_alarm <= evaluation_periods"
    ),
    Validator(log_retention_is_possible, frozenset({LOG_GROUP}), "one of the days that CloudWatch knows"),
    Validator(log_group_name_has_the_form, frozenset({LOG_GROUP}), "a name such as /stack/nodes"),
    Validator(metric_filter_has_a_value, frozenset({FILTER}), "value='1'"),
    Validator(
        subscription_address_is_of_the_protocol, frozenset({SUBSCRIPTION}), "an address of the protocol"
    ),
)
