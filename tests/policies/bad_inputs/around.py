from __future__ import annotations

import json
from typing import Any

from . import Bad

INGRESS = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
SECURITY_GROUP = "aws:ec2/securityGroup:SecurityGroup"
OLD_RULE = "aws:ec2/securityGroupRule:SecurityGroupRule"
VPC, SUBNET, ENDPOINT = "aws:ec2/vpc:Vpc", "aws:ec2/subnet:Subnet", "aws:ec2/vpcEndpoint:VpcEndpoint"
BUCKET, TOPIC = "aws:s3/bucket:Bucket", "aws:sns/topic:Topic"
LIFECYCLE = "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration"
ENCRYPTION = "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration"
LUSTRE = "aws:fsx/lustreFileSystem:LustreFileSystem"
ALARM, LOGS = "aws:cloudwatch/metricAlarm:MetricAlarm", "aws:cloudwatch/logGroup:LogGroup"
POLICY, ROLE, BUCKET_POLICY = (
    "aws:iam/policy:Policy",
    "aws:iam/role:Role",
    "aws:s3/bucketPolicy:BucketPolicy",
)


def ports(validator: str, says: str, type_: str = INGRESS, **inputs: Any) -> Bad:
    return Bad(validator, type_, inputs, says)


def lustre(validator: str, says: str, **inputs: Any) -> Bad:
    whole = {"deploymentType": "PERSISTENT_2", "storageCapacity": 1200, "perUnitStorageThroughput": 250}
    return Bad(validator, LUSTRE, {key: v for key, v in {**whole, **inputs}.items() if v is not None}, says)


def alarm(validator: str, says: str, **inputs: Any) -> Bad:
    whole = {
        "metricName": "NodeMissing",
        "namespace": "GpuTraining",
        "statistic": "Maximum",
        "period": 60,
        "evaluationPeriods": 5,
    }
    return Bad(validator, ALARM, {key: v for key, v in {**whole, **inputs}.items() if v is not None}, says)


def queries(validator: str, says: str, *given: dict[str, Any]) -> Bad:
    return Bad(validator, ALARM, {"metricQueries": list(given), "evaluationPeriods": 5}, says)


def statement(validator: str, says: str, type_: str = POLICY, key: str = "policy", /, **changes: Any) -> Bad:
    """A sound statement with some of its keys changed; None takes one away."""
    whole: dict[str, Any] = {"Effect": "Allow", "Action": ["s3:GetObject"], "Resource": ["*"]}
    if type_ == ROLE:
        whole = {
            "Effect": "Allow",
            "Action": ["sts:AssumeRole"],
            "Principal": {"Service": ["ec2.amazonaws.com"]},
        }
    if type_ == BUCKET_POLICY:
        whole["Principal"] = "*"
    made = {k: v for k, v in {**whole, **changes}.items() if v is not None}
    return document(validator, says, type_, key, Statement=[made])


def document(validator: str, says: str, type_: str = POLICY, key: str = "policy", /, **keys: Any) -> Bad:
    return Bad(validator, type_, {key: json.dumps({"Version": "2012-10-17", **keys})}, says)


TRUST = (ROLE, "assumeRolePolicy")
FINE = {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}
NETWORK = [
    ports(
        "ports-are-in-order", "fromPort: 443 is above toPort 80", ipProtocol="tcp", fromPort=443, toPort=80
    ),
    ports(
        "ports-are-in-order",
        "ingress[0].fromPort: 9 is above",
        SECURITY_GROUP,
        ingress=[{"protocol": "tcp", "fromPort": 9, "toPort": 8}],
    ),
    ports("ports-exist", "toPort: 65536 is no port", ipProtocol="udp", fromPort=1, toPort=65536),
    ports(
        "ports-exist",
        "egress[0].toPort: 70000",
        SECURITY_GROUP,
        egress=[{"protocol": "tcp", "fromPort": 1, "toPort": 70000}],
    ),
    ports("ports-exist", "fromPort: -1", OLD_RULE, protocol="tcp", fromPort=-1, toPort=443),
    ports("tcp-and-udp-name-their-ports", "toPort: missing", ipProtocol="tcp", fromPort=443),
    ports("rule-descriptions-are-plain", "description: has characters", ipProtocol="-1", description="AWS's"),
    Bad("block-is-of-a-possible-size", VPC, {"cidrBlock": "10.0.0.0/12"}, "outside /16 to /28"),
    Bad("block-is-of-a-possible-size", SUBNET, {"cidrBlock": "10.0.0.0/29"}, "outside /16 to /28"),
    Bad("block-is-of-a-possible-size", SUBNET, {"cidrBlock": "10.0.0.1/24"}, "no IPv4 block"),
    Bad("private-names-need-dns", VPC, {"enableDnsSupport": False, "enableDnsHostnames": True}, "false"),
    Bad(
        "endpoint-is-of-its-type",
        ENDPOINT,
        {"serviceName": "com.amazonaws.us-east-1.ssm", "vpcEndpointType": "Gateway"},
        "com.amazonaws.us-east-1.ssm has no gateway endpoint",
    ),
    Bad(
        "endpoint-is-of-its-type",
        ENDPOINT,
        {"vpcEndpointType": "Interface", "routeTableIds": ["rtb-1"]},
        "routeTableIds: of an interface endpoint",
    ),
]
STORAGE = [
    Bad("bucket-name-has-the-form", BUCKET, {"bucket": "data.example"}, "has dots"),
    Bad("bucket-name-has-the-form", BUCKET, {"bucket": "Data"}, "other characters than small letters"),
    Bad("bucket-name-has-the-form", BUCKET, {"bucket": "d" * 64}, "has 64 characters"),
    Bad("bucket-name-has-the-form", BUCKET, {"bucket": "xn--data"}, "keeps to itself"),
    Bad(
        "lifecycle-days-are-in-order",
        LIFECYCLE,
        {"rules": [{"id": "a", "transitions": [{"days": 10, "storageClass": "STANDARD_IA"}]}]},
        "STANDARD_IA after 10 days, 30 is the least",
    ),
    Bad(
        "lifecycle-days-are-in-order",
        LIFECYCLE,
        {"rules": [{"transitions": [{"days": 40, "storageClass": "GLACIER"}], "expiration": {"days": 30}}]},
        "not after the transition of day 40",
    ),
    Bad(
        "lifecycle-rules-have-own-ids",
        LIFECYCLE,
        {"rules": [{"id": "a"}, {"id": "a"}]},
        "'a' is there 2 times",
    ),
    Bad(
        "encryption-names-a-key-for-kms-only",
        ENCRYPTION,
        {
            "rules": [
                {"applyServerSideEncryptionByDefault": {"sseAlgorithm": "AES256", "kmsMasterKeyId": "k"}}
            ]
        },
        "beside AES256",
    ),
    Bad("key-is-named-by-its-arn", LOGS, {"kmsKeyId": "alias/logs"}, "'alias/logs' is no ARN"),
    Bad("tags-have-the-form", TOPIC, {"tags": {"aws:owner": "me"}}, "the prefix aws: is AWS's own"),
    Bad("tags-have-the-form", TOPIC, {"tags": {"k" * 129: "v"}}, "no key of a tag"),
    Bad("tags-have-the-form", TOPIC, {"tags": {"team": "a;b"}}, "its value has other characters"),
    Bad("tags-have-the-form", TOPIC, {"tags": {f"k{n}": "v" for n in range(51)}}, "51 of them"),
    Bad(
        "tags-have-the-form",
        "aws:autoscaling/group:Group",
        {"tags": [{"key": "a*b", "value": "v", "propagateAtLaunch": True}]},
        "no key of a tag",
    ),
    lustre("lustre-links-buckets-by-associations", "importPath: not of PERSISTENT_2", importPath="s3://data"),
    lustre(
        "lustre-import-options-have-a-path",
        "autoImportPolicy: without importPath",
        deploymentType="SCRATCH_2",
        perUnitStorageThroughput=None,
        autoImportPolicy="NEW",
    ),
    lustre("lustre-capacity-is-of-the-deployment", "1500 GiB is no size of", storageCapacity=1500),
    lustre("lustre-capacity-is-of-the-deployment", "3600 GiB is no size of", storageCapacity=3600),
    lustre("lustre-throughput-is-of-the-deployment", "200 is none of", perUnitStorageThroughput=200),
    lustre("lustre-throughput-is-of-the-deployment", "missing", perUnitStorageThroughput=None),
    lustre("lustre-throughput-is-of-the-deployment", "SCRATCH_2 has none", deploymentType="SCRATCH_2"),
    lustre(
        "lustre-storage-type-is-of-the-deployment", "HDD is not of", storageType="HDD", storageCapacity=6000
    ),
    lustre(
        "lustre-scratch-has-no-key-and-no-backups",
        "automaticBackupRetentionDays: SCRATCH_2",
        deploymentType="SCRATCH_2",
        perUnitStorageThroughput=None,
        automaticBackupRetentionDays=7,
    ),
    lustre(
        "lustre-backups-exclude-a-linked-bucket",
        "beside importPath",
        deploymentType="PERSISTENT_1",
        perUnitStorageThroughput=50,
        importPath="s3://data",
        automaticBackupRetentionDays=7,
    ),
    lustre("lustre-efa-is-of-persistent-2-with-metadata", "metadataConfiguration: missing", efaEnabled=True),
    lustre("lustre-metadata-iops-are-possible", "2000 is no size", metadataConfiguration={"iops": 2000}),
    lustre("lustre-has-one-subnet", "2 of them", subnetIds=["subnet-1", "subnet-2"]),
    Bad(
        "association-names-a-bucket-and-a-folder",
        "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation",
        {"dataRepositoryPath": "data", "fileSystemPath": "/data"},
        "does not begin with s3://",
    ),
]
IDENTITY = [
    Bad("policy-is-a-document", POLICY, {"policy": "[]"}, "is no JSON object"),
    document("policy-is-a-document", "Version '2012-10-18'", Version="2012-10-18", Statement=[FINE]),
    document("policy-is-a-document", "Statement is no statement", Statement=[]),
    document("policy-is-a-document", "'Statements' is no key", Statement=[FINE], Statements=[]),
    document(
        "policy-fits", "6144 are allowed", Statement=[{**FINE, "Resource": [f"arn:aws:s3:::{'d' * 6200}"]}]
    ),
    statement("statement-keys-exist", "'Conditions' is no key", Conditions={}),
    statement("statement-effect-exists", "'Permit' is neither Allow nor Deny", Effect="Permit"),
    statement("statement-actions-have-the-form", "'GetObject' is no action", Action=["GetObject"]),
    statement("statement-actions-have-the-form", "exactly one of Action and NotAction", Action=None),
    statement("statement-resources-have-the-form", "'my-bucket' is neither", Resource=["my-bucket"]),
    statement("statement-resources-have-the-form", "exactly one of Resource", Resource=None),
    statement("statement-resources-have-the-form", "in a trust policy", *TRUST, Resource=["*"]),
    statement("statement-principals-are-where-they-belong", "names a principal", Principal="*"),
    statement(
        "statement-principals-are-where-they-belong", "names no principal", BUCKET_POLICY, Principal=None
    ),
    statement(
        "statement-principals-are-where-they-belong",
        "'ec2' is no service principal",
        *TRUST,
        Principal={"Service": ["ec2"]},
    ),
    statement(
        "statement-principals-are-where-they-belong",
        "'Services' is no kind",
        *TRUST,
        Principal={"Services": ["ec2.amazonaws.com"]},
    ),
    statement(
        "condition-operators-exist",
        "'StringEqual' is no condition",
        Condition={"StringEqual": {"s3:prefix": "a"}},
    ),
    statement(
        "condition-operators-exist", "'prefix' is no condition key", Condition={"StringLike": {"prefix": "a"}}
    ),
    statement("statement-ids-are-letters-and-digits", "'read data' has other", Sid="read data"),
    document(
        "statement-ids-are-letters-and-digits",
        "'Read' is there twice",
        Statement=[{**FINE, "Sid": "Read"}, {**FINE, "Sid": "Read"}],
    ),
]
MONITORING = [
    alarm("alarm-has-a-metric", "neither it nor metricQueries", metricName=None, namespace=None),
    alarm("alarm-has-a-metric", "namespace: missing", namespace=None),
    alarm("alarm-has-a-statistic", "statistic: missing", statistic=None),
    queries(
        "alarm-queries-return-one-result",
        "not exactly one of them returns data",
        {"id": "a", "metric": {"period": 60}, "returnData": True},
        {"id": "b", "expression": "a * 2", "returnData": True},
    ),
    queries("alarm-queries-return-one-result", "'A' does not begin", {"id": "A", "returnData": True}),
    alarm("alarm-looks-back-a-week-at-most", "45 s is neither", period=45),
    alarm("alarm-looks-back-a-week-at-most", "look back further", period=60, evaluationPeriods=1441),
    alarm("alarm-needs-no-more-points-than-it-looks-at", "6 of 5", datapointsToAlarm=6),
    Bad("log-retention-is-possible", LOGS, {"retentionInDays": 31}, "31 is none of"),
    Bad("log-group-name-has-the-form", LOGS, {"name": "/gpu training"}, "no name of a log group"),
    Bad(
        "metric-filter-has-a-value",
        "aws:cloudwatch/logMetricFilter:LogMetricFilter",
        {"metricTransformation": {"value": "one"}},
        "'one' is neither a number nor a field",
    ),
    Bad(
        "subscription-address-is-of-the-protocol",
        "aws:sns/topicSubscription:TopicSubscription",
        {"protocol": "email", "endpoint": "gpu-oncall"},
        "not an address of protocol email",
    ),
]
BAD = [*NETWORK, *STORAGE, *IDENTITY, *MONITORING]
