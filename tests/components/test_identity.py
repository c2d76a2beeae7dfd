"""People of a stack and keys: what a researcher and an operator may do, how sessions are logged, what bounds roles.

Rows of the log of public reports are named where a test stands for one.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from components.identity.access import Access as AccessComponent
from components.identity.access import access_args
from components.identity.operators import operator_statements
from components.identity.researchers import researcher_statements
from components.identity.sessions import login_user, session_document
from components.names import stack_names
from components.settings import load
from components.storage.encryption_key import key_policy
from localcloud.provider.aws import place_of
from localcloud.provider.guard import Standing
from localcloud.provider.service import Fault
from tests.components.kit import ROOT, Recording, leaves, record, record_program, record_stack
from tests.iam_rights import Access, allows
from tests.unit.stack_files import mapping_of, minimal

CONFIG = {**minimal(), "datasets": [{"name": "shapes"}]}
NAMES = stack_names(load("test", CONFIG))
BUCKET = "arn:aws:s3:::gputrain-test-artifacts-123456789012"
DATA = "arn:aws:s3:::gputrain-test-data-shapes-123456789012"
HERE = "us-east-1:123456789012"
GROUP = f"arn:aws:autoscaling:{HERE}:autoScalingGroup:1-2:autoScalingGroupName/gputrain-test-trainers"
INSTANCE = f"arn:aws:ec2:{HERE}:instance/i-0123456789abcdef0"
KEY = f"arn:aws:kms:{HERE}:key/1234abcd-12ab-34cd-56ef-1234567890ab"
BOUNDARY = "arn:aws:iam::123456789012:policy/boundary"
POLICY = "aws:iam/policy:Policy"


def access(key: str | None = None, logs_key: str | None = None) -> Recording:
    args = access_args(load("test", CONFIG), key, logs_key)
    recording = record(lambda: AccessComponent("access", args))
    recording.assert_sound()
    return recording


class TestResearcher:
    def may(self, action: str, resource: str, **context: str) -> bool:
        return allows(researcher_statements(NAMES), Access(action, resource, context))

    def test_writes_a_run_s_configuration_and_a_manifest_only_where_there_is_none(self) -> None:
        for once in (f"{BUCKET}/runs/first/config.json", f"{DATA}/datasets/shapes/v1/manifest.json"):
            assert self.may("s3:PutObject", once, **{"s3:if-none-match": "*"})
            assert not self.may("s3:PutObject", once)
        assert self.may("s3:PutObject", f"{DATA}/datasets/shapes/v1/train-0.npz")

    @pytest.mark.parametrize(
        "key",
        [
            "cluster.json",
            "groups/trainers/node-abc.json",
            "releases/trainer/abc.tar",
            "runs/first/generation.json",
            "runs/first/checkpoints/step-1/state.pt",
        ],
    )
    def test_writes_nothing_that_the_program_or_nodes_write(self, key: str) -> None:
        assert not self.may("s3:PutObject", f"{BUCKET}/{key}", **{"s3:if-none-match": "*"})
        assert not self.may("s3:DeleteObject", f"{BUCKET}/{key}")

    def test_reads_runs_and_no_node_s_document(self) -> None:
        assert self.may("s3:GetObject", f"{BUCKET}/runs/first/checkpoints/step-1/state.pt")
        for key in (
            "groups/trainers/node-abc.json",
            "groups/trainers/selfcheck/i-1.json",
            "releases/trainer/a.tar",
        ):
            assert not self.may("s3:GetObject", f"{BUCKET}/{key}")

    def test_deletes_no_data_and_no_checkpoint(self) -> None:
        assert not self.may("s3:DeleteObject", f"{DATA}/datasets/shapes/v1/train-0.npz")
        assert not self.may("s3:DeleteObject", f"{BUCKET}/runs/first/config.json")

    def test_scales_this_stack_s_groups_alone(self) -> None:
        """`gputrain-test-eu` is another stack, whose groups' names begin with this one's."""
        tag = "autoscaling:ResourceTag/gpu-training:stack"
        assert self.may("autoscaling:SetDesiredCapacity", GROUP, **{tag: "gputrain-test"})
        assert not self.may("autoscaling:SetDesiredCapacity", GROUP, **{tag: "gputrain-test-eu"})
        assert not self.may("autoscaling:SetDesiredCapacity", GROUP)
        assert not self.may("autoscaling:UpdateAutoScalingGroup", GROUP, **{tag: "gputrain-test"})

    def test_has_no_other_service(self) -> None:
        actions = {action for statement in researcher_statements(NAMES) for action in statement["Action"]}
        assert {action.partition(":")[0] for action in actions} == {"s3", "autoscaling"}
        assert not [action for action in actions if "*" in action]

    def test_policy_has_one_length_for_any_number_of_groups_and_datasets(self) -> None:
        """IAM takes 6144 characters of a managed policy, without white space (IAM quotas, 2026)."""
        longest = stack_names(load("s" * 20, {**CONFIG, "namePrefix": "p" * 12}))
        text = json.dumps(researcher_statements(longest), separators=(",", ":"))
        assert len(text) < 3000

    def test_reads_under_the_stack_s_key_through_s3_only(self) -> None:
        statements = access(key=KEY).one(POLICY, "access-researcher").policy()
        via = {"kms:ViaService": "s3.us-east-1.amazonaws.com"}
        assert allows(statements, Access("kms:Decrypt", KEY, via))
        assert not allows(statements, Access("kms:Decrypt", KEY))
        without = access().one(POLICY, "access-researcher").policy()
        assert without == researcher_statements(NAMES)


class TestOperator:
    TAGGED: dict[str, str] = {  # noqa: RUF012 - read only
        "ssm:resourceTag/gpu-training:stack": "gputrain-test",
        "ssm:SessionDocumentAccessCheck": "true",
    }

    def may(self, action: str, resource: str, **context: str) -> bool:
        return allows(operator_statements(NAMES), Access(action, resource, context))

    def test_opens_sessions_on_nodes_of_this_stack(self) -> None:
        assert self.may("ssm:StartSession", INSTANCE, **self.TAGGED)
        other = {**self.TAGGED, "ssm:resourceTag/gpu-training:stack": "gputrain-prod"}
        assert not self.may("ssm:StartSession", INSTANCE, **other)
        assert not self.may("ssm:StartSession", INSTANCE)

    def test_opens_none_by_a_document_that_need_not_log(self) -> None:
        """The account's default document is used where none is named, unless the check asks for a right to it."""
        unchecked = {**self.TAGGED, "ssm:SessionDocumentAccessCheck": "false"}
        assert not self.may("ssm:StartSession", INSTANCE, **unchecked)
        documents = f"arn:aws:ssm:{HERE}:document"
        assert self.may("ssm:StartSession", f"{documents}/gputrain-test-session")
        assert not self.may("ssm:StartSession", f"{documents}/SSM-SessionManagerRunShell")
        owned_by_aws = "arn:aws:ssm:us-east-1::document"
        assert self.may("ssm:StartSession", f"{owned_by_aws}/AWS-StartPortForwardingSession")
        for name in ("AWS-StartSSHSession", "AWS-StartPortForwardingSessionToRemoteHost"):
            assert not self.may("ssm:StartSession", f"{owned_by_aws}/{name}")

    def test_ends_and_resumes_own_sessions_alone(self) -> None:
        session = f"arn:aws:ssm:{HERE}:session/ada-0123"
        own = {
            "aws:userid": "AROAEXAMPLE:ada",
            "ssm:resourceTag/aws:ssmmessages:session-id": "AROAEXAMPLE:ada",
        }
        for action in ("ssm:TerminateSession", "ssm:ResumeSession"):
            assert self.may(action, session, **own)
            assert not self.may(action, session, **{**own, "aws:userid": "AROAEXAMPLE:bob"})

    def test_reads_the_logs_of_this_stack(self) -> None:
        for group, may in {"/gputrain-test/nodes": True, "/gputrain-prod/nodes": False}.items():
            arn = f"arn:aws:logs:{HERE}:log-group:{group}:log-stream:trainers/i-1/agent"
            assert self.may("logs:FilterLogEvents", arn) == may

    def test_may_do_all_that_make_status_logs_and_connect_ask_and_no_more(self) -> None:
        """By the operations that their files name; sessions are opened by the AWS CLI, which connect.py becomes."""
        text = "".join(
            (ROOT / "ops" / f"{name}.py").read_text() for name in ("status", "fleet", "logs", "connect")
        )
        named = r"(?:get_paginator\(\"|\.(?!get_paginator))((?:describe|filter|get|list)_[a-z_]+)(?:\"\)|\()"
        asked = {"".join(word.title() for word in name.split("_")) for name in re.findall(named, text)}
        of_sessions = {
            *("StartSession", "ResumeSession", "TerminateSession", "OpenDataChannel"),
            "DescribeSessions",  # by hand: who is on a node
        }
        statements = operator_statements(NAMES)
        allowed = {action.partition(":")[2] for statement in statements for action in statement["Action"]}
        assert allowed - of_sessions == asked

    def test_changes_nothing(self) -> None:
        actions = {action for statement in operator_statements(NAMES) for action in statement["Action"]}
        looks = ("Describe", "Get", "Filter")
        sessions = {"StartSession", "ResumeSession", "TerminateSession", "OpenDataChannel"}
        assert all(a.partition(":")[2].startswith(looks) or a.partition(":")[2] in sessions for a in actions)


class TestSessions:
    def test_are_written_to_the_stack_s_log_group_while_they_run(self) -> None:
        recording = access()
        document = recording.one("aws:ssm/document:Document")
        assert (document.inputs["documentType"], document.inputs["name"]) == (
            "Session",
            NAMES.session_document,
        )
        content = json.loads(document.inputs["content"])
        assert (content["schemaVersion"], content["sessionType"]) == ("1.0", "Standard_Stream")
        group = recording.one("aws:cloudwatch/logGroup:LogGroup").inputs
        assert content["inputs"]["cloudWatchLogGroupName"] == group["name"] == "/gputrain-test/sessions"
        assert content["inputs"]["cloudWatchStreamingEnabled"] is True
        assert group["retentionInDays"] == 30
        assert document.depends_on == {"access-sessions"}

    def test_are_refused_where_their_log_group_has_lost_its_key(self) -> None:
        recording = access(key=KEY, logs_key=KEY)
        assert recording.one("aws:cloudwatch/logGroup:LogGroup").inputs["kmsKeyId"] == KEY
        content = json.loads(recording.one("aws:ssm/document:Document").inputs["content"])
        assert content["inputs"]["cloudWatchEncryptionEnabled"] is True
        plain = json.loads(access().one("aws:ssm/document:Document").inputs["content"])
        assert plain["inputs"]["cloudWatchEncryptionEnabled"] is False

    def test_end_when_nobody_types(self) -> None:
        content = json.loads(session_document(NAMES, None, False))["inputs"]
        assert (
            1 <= int(content["idleSessionTimeout"]) <= 60 and 1 <= int(content["maxSessionDuration"]) <= 1440
        )

    @pytest.mark.parametrize(
        ("profiles", "user"),
        [
            (["dlami-pytorch-ubuntu-24.04"], "ubuntu"),
            (["dlami-pytorch-ubuntu-24.04", "dlami-base-ubuntu-24.04"], "ubuntu"),
            (["dlami-pytorch-al2023"], "ec2-user"),
            (["dlami-pytorch-ubuntu-24.04", "dlami-pytorch-al2023"], None),
            (["local"], None),
        ],
    )
    def test_are_of_the_images_own_user_and_never_of_root(
        self, profiles: list[str], user: str | None
    ) -> None:
        assert login_user(profiles) == user
        content = json.loads(session_document(NAMES, user, False))["inputs"]
        assert content["runAsEnabled"] == (user is not None) and content["runAsDefaultUser"] == (user or "")

    @pytest.mark.parametrize("stack", ["local", "dev", "staging", "prod"])
    def test_are_the_only_way_to_a_node(self, stack: str) -> None:
        """No key pair, no port 22, and instances that carry the tag by which operators reach them."""
        recording = record_stack(stack)
        for resource in recording.custom():
            assert "keyPair" not in resource.type
            for path, value in leaves(resource.inputs):
                assert "keyName" not in path, resource.name
                if path.rpartition(".")[2] in ("fromPort", "toPort") and "securityGroup" in resource.type:
                    assert value != 22, resource.name
        value = stack_names(load(stack, mapping_of(stack))).base_name
        for template in recording.of_type("aws:ec2/launchTemplate:LaunchTemplate"):
            of_instances = [
                t for t in template.inputs["tagSpecifications"] if t["resourceType"] == "instance"
            ]
            assert [t["tags"]["gpu-training:stack"] for t in of_instances] == [value]
        for group in recording.of_type("aws:autoscaling/group:Group"):
            assert {"key": "gpu-training:stack", "value": value} in [
                {"key": tag["key"], "value": tag["value"]} for tag in group.inputs["tags"]
            ]


class TestMetadata:
    @pytest.mark.parametrize("stack", ["local", "dev", "staging", "prod"])
    def test_is_one_hop_away_and_behind_tokens(self, stack: str) -> None:
        """B10 (buildkite elastic-ci-stack#857, cluster-api-provider-aws#4247): containers need a second hop. The
        agent and its workers run on the node itself, so one hop is right, and no container has the role by chance.
        B11 (aws-node-termination-handler#732, #668): the agent asks with tokens, see tests/trainer/test_imds.py.
        """
        templates = record_stack(stack).of_type("aws:ec2/launchTemplate:LaunchTemplate")
        assert templates
        for template in templates:
            options = template.inputs["metadataOptions"]
            assert options["httpTokens"] == "required" and options["httpPutResponseHopLimit"] == 1


class TestBoundary:
    def test_is_on_every_role_that_a_stack_may_have(self) -> None:
        budget = {"monthlyUsd": 1000.0, "emails": ["gpu-budget@example.com"], "stopAtPercent": 100}
        network = {**CONFIG["network"], "flowLogRetentionDays": 30}
        more = {"permissionBoundaryArn": BOUNDARY, "budget": budget, "network": network}
        roles = record_program("test", {**CONFIG, **more}).of_type("aws:iam/role:Role")
        assert len(roles) >= 3  # nodes, flow logs, what stops at the budget
        assert not [r.name for r in roles if r.inputs.get("permissionsBoundary") != BOUNDARY]

    @pytest.mark.parametrize("stack", ["local", "dev", "staging", "prod"])
    def test_no_user_and_no_group_of_people_is_made(self, stack: str) -> None:
        made = {resource.type for resource in record_stack(stack).custom()}
        assert not {t for t in made if t.startswith(("aws:iam/user", "aws:iam/group", "aws:iam/accessKey"))}


class TestKey:
    def may(self, principal: str, action: str, **context: str) -> bool:
        statements = [
            {
                **statement,
                "Resource": [statement["Resource"]]
                if statement["Resource"] == "*"
                else statement["Resource"],
            }
            for statement in json.loads(key_policy(NAMES))["Statement"]
            if principal in [name for names in statement["Principal"].values() for name in names]
        ]
        return allows(statements, Access(action, KEY, context))

    def test_lets_auto_scaling_start_nodes_with_encrypted_volumes(self) -> None:
        role = "role/aws-service-role/autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling"
        linked = f"arn:aws:iam::123456789012:{role}"
        assert self.may(linked, "kms:GenerateDataKeyWithoutPlaintext")
        assert self.may(linked, "kms:CreateGrant", **{"kms:GrantIsForAWSResource": "true"})
        assert not self.may(linked, "kms:CreateGrant")
        assert not self.may(linked, "kms:ScheduleKeyDeletion")

    def test_lets_cloudwatch_logs_encrypt_this_stack_s_groups(self) -> None:
        for group, may in {"/gputrain-test/sessions": True, "/gputrain-prod/nodes": False}.items():
            context = {"kms:EncryptionContext:aws:logs:arn": f"arn:aws:logs:{HERE}:log-group:{group}"}
            assert self.may("logs.us-east-1.amazonaws.com", "kms:GenerateDataKey", **context) == may
        assert not self.may("logs.us-east-1.amazonaws.com", "kms:Decrypt")

    @pytest.mark.parametrize("service", ["cloudwatch.amazonaws.com", "budgets.amazonaws.com"])
    def test_lets_alarms_and_budgets_of_this_account_reach_encrypted_topics(self, service: str) -> None:
        for account, may in {"123456789012": True, "999999999999": False}.items():
            context = {"aws:SourceAccount": account}
            assert self.may(service, "kms:GenerateDataKey", **context) == may
            assert self.may(service, "kms:Decrypt", **context) == may
        assert not self.may(service, "kms:Encrypt", **{"aws:SourceAccount": "123456789012"})

    def test_of_somebody_else_encrypts_no_topic_and_no_log(self) -> None:
        """Its policy may not know SNS and CloudWatch: alarms would be dropped, log groups not made."""
        recording = record_program("test", {**CONFIG, "kms": {"mode": "existing", "keyArn": KEY}})
        for type_, key in (
            ("aws:sns/topic:Topic", "kmsMasterKeyId"),
            ("aws:cloudwatch/logGroup:LogGroup", "kmsKeyId"),
        ):
            assert recording.of_type(type_)
            assert not [r.name for r in recording.of_type(type_) if r.inputs.get(key) == KEY]


class TestAccount:
    def test_that_is_not_allowed_is_refused_when_the_provider_is_configured(self, monkeypatch: Any) -> None:
        """Before any resource: engines configure a provider first, and the official one asks STS there."""
        monkeypatch.setattr("localcloud.provider.realise.Clients.account", lambda self: "999999999999")
        config = {"region": "us-east-1", "allowedAccountIds": ["123456789012"]}
        with pytest.raises(Fault, match="account is 999999999999, and allowedAccountIds has 123456789012"):
            place_of(config, Standing(realises=True, endpoint="http://127.0.0.1:1"))

    @pytest.mark.parametrize("stack", ["local", "dev", "staging", "prod"])
    def test_is_told_to_the_one_provider_that_all_resources_have(self, stack: str) -> None:
        provider = record_stack(stack).one("pulumi:providers:aws")
        assert json.loads(provider.inputs["allowedAccountIds"]) == mapping_of(stack)["allowedAccountIds"]
        for resource in record_stack(stack).custom():
            if resource.type.startswith("aws:"):
                assert resource.request.provider.startswith(provider.urn), resource.name
