"""What all commands for an account share: which account, whose mistake it was, the exit codes, no traces."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError

from components.settings import load
from ops import account, command, connect, logs, pin_image, status
from ops.account import code_of, open_account, reason
from ops.doctor import __main__ as doctor
from ops.refusal import EXIT_FINDINGS, EXIT_INTERRUPTED, EXIT_NO_CREDENTIALS, EXIT_USAGE, Refused
from ops.stack_file import settings_of
from tests.unit.ops_kit import ACCOUNT, cloud, settings_with, write_minimal, write_stack
from tests.unit.stack_files import mapping_of

COMMANDS = {
    "doctor": doctor.main,
    "pin-image": pin_image.main,
    "status": status.main,
    "logs": logs.main,
    "connect": connect.main,
}


def refused(code: str, message: str = "") -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": message}}, "DescribeThings")


class Session:
    """boto3's, whose first call ends as the test says."""

    def __init__(self, outcome: Any) -> None:
        self._outcome = outcome

    def client(self, *_: Any, **__: Any) -> Session:
        return self

    def get_caller_identity(self) -> dict[str, str]:
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    def set_(outcome: Any) -> None:
        monkeypatch.setattr(account.boto3, "Session", lambda **_: Session(outcome))

    yield set_


class TestWhoAsks:
    def test_the_account_of_the_stack_is_opened(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with cloud(monkeypatch):
            opened = open_account(settings_with())
        assert (opened.id, opened.region) == (ACCOUNT, "us-east-1")

    def test_any_other_account_is_refused_by_name(self, answer: Any) -> None:
        answer({"Account": "999999999999", "Arn": "arn"})
        with pytest.raises(
            Refused, match=r"of account 999999999999, and stack 'dev' may touch 123456789012 only"
        ):
            open_account(settings_with())

    @pytest.mark.parametrize(
        ("outcome", "words", "code"),
        [
            (NoCredentialsError(), "no AWS credentials .*aws sso login", EXIT_NO_CREDENTIALS),
            (refused("ExpiredToken"), r"not valid any more \(ExpiredToken\)", EXIT_NO_CREDENTIALS),
            (refused("InvalidClientTokenId"), "not valid any more", EXIT_NO_CREDENTIALS),
            (EndpointConnectionError(endpoint_url="https://sts"), "cannot be reached", EXIT_FINDINGS),
        ],
        ids=["none", "expired", "unknown", "offline"],
    )
    def test_what_is_missing_is_said_with_its_own_code(
        self, answer: Any, outcome: Exception, words: str, code: int
    ) -> None:
        answer(outcome)
        with pytest.raises(Refused, match=words) as fault:
            open_account(settings_with())
        assert fault.value.code == code and "\n" not in str(fault.value)

    def test_the_local_stack_has_no_account(self) -> None:
        with pytest.raises(Refused, match="such as STACK=dev"):
            open_account(settings_with("local"))


class TestWithoutCredentials:
    """From an empty environment: one line, code 3, no trace."""

    @pytest.mark.parametrize("name", ["doctor", "pin-image", "status", "logs"])
    def test_every_command_says_so(self, name: str, answer: Any, capsys: pytest.CaptureFixture[str]) -> None:
        answer(NoCredentialsError())
        assert COMMANDS[name](["--stack", "dev"]) == EXIT_NO_CREDENTIALS
        told = capsys.readouterr()
        assert told.out == "" and told.err.startswith(f"make {name}: no AWS credentials")
        assert told.err.count("\n") == 1

    @pytest.mark.parametrize("name", COMMANDS)
    def test_a_stack_that_is_not_there_is_named_with_those_that_are(
        self, name: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert COMMANDS[name](["--stack", "prd"]) == EXIT_USAGE
        assert "STACK is one of dev, local, prod, staging (nearest match: prod)" in capsys.readouterr().err

    @pytest.mark.parametrize("name", COMMANDS)
    def test_an_example_is_no_stack_and_the_way_to_one_is_told(
        self, name: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert COMMANDS[name](["--stack", "examples/capacity-block"]) == EXIT_USAGE
        told = capsys.readouterr().err
        assert "copy examples/capacity-block.yaml to Pulumi.<name>.yaml" in told and told.count("\n") == 1


class TestTheStackFile:
    @pytest.mark.parametrize("stack", ["dev", "staging", "prod"])
    def test_says_what_the_engine_reads(self, stack: str) -> None:
        ours, engines = settings_of(stack), load(stack, mapping_of(stack))
        assert ours.model_dump(exclude={"monitoring"}) == engines.model_dump(exclude={"monitoring"})

    def test_on_is_a_word_and_a_day_is_text_as_in_yaml_1_2(self, tmp_path: Path) -> None:
        write_stack(
            tmp_path,
            "config:\n  gpu-training:region: us-east-1\n  gpu-training:allowedAccountIds: ['123456789012']\n"
            "  gpu-training:trainerVersion: 1.4\n"
            "  gpu-training:network: {availabilityZones: [us-east-1a]}\n  gpu-training:gpuGroups:\n"
            "    - {name: a, instanceTypes: [p5.48xlarge], maxNodes: 1, efa: on,\n"
            "       image: {profile: dlami-pytorch-ubuntu-24.04, ssmParameter: /a,\n"
            "               pinned: {amiId: ami-0123456789abcdef0, name: n, date: 2026-11-30}}}\n",
        )
        settings = settings_of("dev", tmp_path)
        pinned = settings.gpu_groups[0].image.pinned
        assert settings.gpu_groups[0].efa == "on" and settings.trainer_version == "1.4"
        assert pinned is not None and pinned.date == "2026-11-30"

    @pytest.mark.parametrize("text", ["config: [", "a: b\n", "- 1\n", ""])
    def test_one_that_is_none_is_one_line(self, tmp_path: Path, text: str) -> None:
        write_stack(tmp_path, text)
        with pytest.raises(Refused) as fault:
            settings_of("dev", tmp_path)
        assert "Pulumi.dev.yaml" in str(fault.value) and "\n" not in str(fault.value)

    def test_its_faults_are_told_all_at_once(self, tmp_path: Path) -> None:
        write_minimal(tmp_path, region="us-est-1", namePrefix="X")
        with pytest.raises(Refused, match=r"2 faults in the configuration of stack 'dev'"):
            settings_of("dev", tmp_path)


class TestWords:
    @pytest.mark.parametrize(
        ("error", "words"),
        [
            (
                refused(
                    "UnauthorizedOperation",
                    "You are not authorized. Encoded authorization failure message: aB3",
                ),
                "not allowed: You are not authorized",
            ),
            (refused("AccessDenied"), "not allowed to call DescribeThings"),
            (refused("Throttling", "Rate exceeded"), "Throttling: Rate exceeded"),
            (NotImplementedError("x"), "this API is not there"),
            (ValueError("two\nlines"), "two lines"),
            (KeyError(), "KeyError"),
        ],
    )
    def test_a_failure_is_one_line(self, error: Exception, words: str) -> None:
        assert reason(error) == words

    def test_only_aws_has_codes(self) -> None:
        assert (code_of(refused("A")), code_of(ValueError("A"))) == ("A", "")


@pytest.mark.parametrize(
    ("raised", "code"),
    [
        (refused("Throttling", "slow"), EXIT_FINDINGS),
        (KeyboardInterrupt(), EXIT_INTERRUPTED),
        (Refused("no"), EXIT_USAGE),
    ],
)
def test_a_command_ends_with_a_line_and_a_code(
    raised: BaseException, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    def body() -> int:
        raise raised

    assert command.guarded("doctor", body) == code
    assert capsys.readouterr().err.startswith("make doctor: ")
