"""The pack as the engine meets it: a process that prints a port and answers over gRPC. No CLI is needed."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml
from google.protobuf import empty_pb2, struct_pb2
from pulumi.runtime.proto import analyzer_pb2, analyzer_pb2_grpc

from policies.rules import RULES

ROOT = Path(__file__).parents[2]
PACK = ROOT / "policies"
INGRESS_RULE = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"


@pytest.fixture(scope="module")
def analyzer() -> Iterator[analyzer_pb2_grpc.AnalyzerStub]:
    """Started as a language host starts it: the pack's folder is the working directory."""
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "pulumi.policy", "127.0.0.1:1", "."],
        cwd=PACK,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        assert port.isdigit(), f"the pack printed {port!r} in place of its port"
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield analyzer_pb2_grpc.AnalyzerStub(channel)
    finally:
        process.terminate()
        process.wait(timeout=10)


def properties(values: dict[str, Any]) -> struct_pb2.Struct:
    struct = struct_pb2.Struct()
    struct.update(values)
    return struct


def analyze(analyzer: Any, type_: str, values: dict[str, Any]) -> Any:
    urn = f"urn:pulumi:dev::gpu-training::{type_}::it"
    return analyzer.Analyze(
        analyzer_pb2.AnalyzeRequest(type=type_, urn=urn, name="it", properties=properties(values))
    )


def test_the_pack_serves_every_rule_mandatory_with_why_fix_and_severity(analyzer: Any) -> None:
    info = analyzer.GetAnalyzerInfo(empty_pb2.Empty())
    assert info.name == yaml.safe_load((PACK / "PulumiPolicy.yaml").read_text())["name"]
    served = {policy.name: policy for policy in info.policies}
    assert sorted(served) == sorted(rule.id for rule in RULES)
    for rule in RULES:
        policy = served[rule.id]
        assert policy.enforcementLevel == analyzer_pb2.MANDATORY
        assert (policy.description, policy.remediation_steps) == (rule.why, rule.fix)
        assert policy.severity != analyzer_pb2.POLICY_SEVERITY_UNSPECIFIED
        assert "exceptions" in policy.configSchema.properties


def test_a_violation_arrives_as_mandatory_and_an_unknown_as_an_advisory(analyzer: Any) -> None:
    open_to_all = analyze(analyzer, INGRESS_RULE, {"cidrIpv4": "0.0.0.0/0"})
    [diagnostic] = open_to_all.diagnostics
    assert diagnostic.policyName == "no-world-open-ingress"
    assert diagnostic.enforcementLevel == analyzer_pb2.MANDATORY

    not_known = analyze(analyzer, INGRESS_RULE, {"cidrIpv4": "04da6b54-80e4-46f7-96ec-b56ff0331ba9"})
    [diagnostic] = not_known.diagnostics
    assert diagnostic.enforcementLevel == analyzer_pb2.ADVISORY
    assert "unknown until the update: it: cidrIpv4" in diagnostic.message


def test_a_stack_rule_joins_over_the_dependencies_that_the_engine_sends(analyzer: Any) -> None:
    bucket = "urn:pulumi:dev::gpu-training::aws:s3/bucket:Bucket::data"
    kind = "aws:s3/bucketVersioning:BucketVersioning"
    unknown = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
    resources = [
        analyzer_pb2.AnalyzerResource(
            type="aws:s3/bucket:Bucket", urn=bucket, name="data", properties=properties({})
        ),
        analyzer_pb2.AnalyzerResource(
            type=kind,
            urn=f"urn:pulumi:dev::gpu-training::{kind}::data-versioning",
            name="data-versioning",
            properties=properties({"bucket": unknown, "versioningConfiguration": {"status": "Enabled"}}),
            propertyDependencies={"bucket": analyzer_pb2.AnalyzerPropertyDependencies(urns=[bucket])},
        ),
    ]
    answer = analyzer.AnalyzeStack(analyzer_pb2.AnalyzeStackRequest(resources=resources))
    messages = "\n".join(diagnostic.message for diagnostic in answer.diagnostics)
    assert {diagnostic.urn for diagnostic in answer.diagnostics} == {bucket}
    assert "no policy denies requests without TLS" in messages
    assert "versioning is not enabled" not in messages


def test_exceptions_come_from_the_packs_configuration(analyzer: Any) -> None:
    def configured(exceptions: list[dict[str, str]]) -> int:
        analyzer.Configure(
            analyzer_pb2.ConfigureAnalyzerRequest(
                policyConfig={
                    "no-world-open-ingress": analyzer_pb2.PolicyConfig(
                        enforcementLevel=analyzer_pb2.MANDATORY,
                        properties=properties({"exceptions": exceptions}),
                    )
                }
            )
        )
        return len(analyze(analyzer, INGRESS_RULE, {"cidrIpv4": "0.0.0.0/0"}).diagnostics)

    held = {"resource": "it", "reason": "TICKET-7: partner link", "expires": "2999-12-31"}
    assert configured([held]) == 0
    assert configured([]) == 1


def test_the_documents_table_is_the_rules_own_metadata() -> None:
    text = (ROOT / "docs" / "policies.md").read_text()
    rows = re.findall(r"^\| `([a-z0-9-]+)` \| (\w+) \| (\w+) \| (.+?) \| (.+?) \|$", text, flags=re.MULTILINE)
    assert rows == [(rule.id, rule.level.value, rule.severity.value, rule.why, rule.fix) for rule in RULES]


@pytest.mark.parametrize(
    ("dry_run", "level"), [(True, analyzer_pb2.ADVISORY), (False, analyzer_pb2.MANDATORY)]
)
def test_images_are_advised_about_at_preview_and_refused_at_the_update(
    analyzer: Any, dry_run: bool, level: int
) -> None:
    """The engine starts the pack anew for preview and update, and says which before it asks for the policies."""
    analyzer.ConfigureStack(
        analyzer_pb2.AnalyzerStackConfigureRequest(stack="prod", project="gpu-training", dry_run=dry_run)
    )
    info = analyzer.GetAnalyzerInfo(empty_pb2.Empty())
    assert {p.enforcementLevel for p in info.policies if p.name == "images-pinned"} == {level}
    request = analyzer_pb2.AnalyzeRequest(
        type="aws:ec2/launchTemplate:LaunchTemplate",
        urn="urn:pulumi:prod::gpu-training::aws:ec2/launchTemplate:LaunchTemplate::it",
        name="it",
        properties=properties({"imageId": "resolve:ssm:/gpu-training/images/pytorch"}),
    )
    found = {d.policyName: d.enforcementLevel for d in analyzer.Analyze(request).diagnostics}
    assert found["images-pinned"] == level
    assert found["encrypted-volumes"] == analyzer_pb2.MANDATORY
