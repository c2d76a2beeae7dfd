"""Secrets by name: in the workers' environment and nowhere else; a missing one ends the run by name, with code 2."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trainer.agent.secret_values import LEAST_REDACTED_CHARACTERS, Secrets, fetch_secrets
from trainer.errors import ConfigurationError, StoreError
from trainer.exit_codes import Exit

from localcloud.aws.server import AwsServer
from tests.local.cloud_kit import client
from tests.trainer.agent_kit import Cloud

CANARY = "hf_canary_7f3a9b1c"
KEY = "-----BEGIN KEY-----\nMIIEcanarycanary\nQQ==\n-----END KEY-----"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with AwsServer(tick_seconds=0.05) as aws:
        made = client("secretsmanager", aws.endpoint)
        made.create_secret(Name="research/token", SecretString=CANARY)
        made.create_secret(Name="research/key", SecretString=KEY)
        made.create_secret(Name="research/file", SecretString=f"{CANARY}\n")
        made.create_secret(Name="research/bytes", SecretBinary=b"\x00\x01")
        made.create_secret(Name="research/leaving", SecretString="soon gone")
        made.delete_secret(SecretId="research/leaving", RecoveryWindowInDays=7)
        yield aws.endpoint


@pytest.fixture
def make_cloud(make_cloud: Callable[[int], Cloud]) -> Callable[[dict[str, str]], Cloud]:
    """Clouds of one node that are told of these secrets."""

    def make(secrets: dict[str, str]) -> Cloud:
        made = make_cloud(1)
        made.secrets = secrets
        return made

    return make


def everything_stored(made: Cloud) -> bytes:
    """All objects of the bucket, one after the other."""
    listed = made.store.list_objects(made.bucket, "")
    return b"".join(found.body for entry in listed if (found := made.store.get(made.bucket, entry.key)))


def test_workers_have_the_value_and_no_log_and_no_document_has_it(
    make_cloud: Callable[[dict[str, str]], Cloud], capfd: pytest.CaptureFixture[str]
) -> None:
    """The worker prints its token, and fails with an error that quotes it."""
    made = make_cloud({"HF_TOKEN": "research/token"})
    agent = made.boot_all()[0]
    message = "401 for url https://x?token={HF_TOKEN}"
    code = int(Exit.OUT_OF_MEMORY)  # any fault that ends the run
    made.run("leaky", nodes=1, say="my token is {HF_TOKEN}", fail=1, code=code, message=message)
    assert made.result("leaky").message.endswith("401 for url https://x?token=[HF_TOKEN]")
    stored = everything_stored(made)
    assert b"my token is [HF_TOKEN]" in stored
    own_log = (agent.folder / "runs/leaky/gen-0001/worker.log").read_text()
    assert f"my token is {CANARY}" in own_log  # the value was there; this file stays on the node
    assert CANARY.encode() not in stored
    printed = capfd.readouterr()
    assert CANARY not in printed.out + printed.err
    handed_over = (agent.folder / "runs/leaky/gen-0001/worker.json").read_text()
    assert "research/token" in handed_over and CANARY not in handed_over


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("research/absent", "does not exist in us-east-1; create it: aws secretsmanager create-secret"),
        ("research/leaving", "marked for deletion; restore it: aws secretsmanager restore-secret"),
        ("research/bytes", "is no text"),
    ],
)
def test_a_secret_that_cannot_be_had_fails_the_run_by_name_and_replaces_nobody(
    make_cloud: Callable[[dict[str, str]], Cloud], name: str, why: str
) -> None:
    made = make_cloud({"HF_TOKEN": "research/token", "WANDB_API_KEY": name})
    before = sorted(made.states)
    made.boot_all()
    made.run("unfit", nodes=1)
    result = made.result("unfit")
    assert (result.status, result.exit_code) == ("failed", Exit.CONFIGURATION)
    assert f'secret "{name}" for WANDB_API_KEY' in result.message and why in result.message
    assert made.agents[0].code is None and sorted(made.states) == before


class TestFetch:
    def test_asks_for_nothing_where_nothing_is_named(
        self, make_cloud: Callable[[dict[str, str]], Cloud]
    ) -> None:
        assert dict(fetch_secrets(make_cloud({}).document()).values) == {}

    def test_takes_off_the_line_break_that_a_file_ends_with(
        self, make_cloud: Callable[[dict[str, str]], Cloud]
    ) -> None:
        found = fetch_secrets(make_cloud({"TOKEN": "research/file", "KEY": "research/key"}).document())
        assert dict(found.values) == {"TOKEN": CANARY, "KEY": KEY}

    def test_a_service_that_does_not_answer_may_do_so_later(
        self, make_cloud: Callable[[dict[str, str]], Cloud], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        document = make_cloud({"HF_TOKEN": "research/token"}).document()
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
        monkeypatch.setattr("trainer.agent.secret_values.TRIES", 1)
        with pytest.raises(StoreError, match='secret "research/token" for HF_TOKEN'):
            fetch_secrets(document)

    def test_a_refusal_says_who_must_let_it_in(
        self, make_cloud: Callable[[dict[str, str]], Cloud], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        document = make_cloud({"HF_TOKEN": "research/token"}).document()

        def refuse(self: object, operation: str, parameters: object) -> None:
            from botocore.exceptions import ClientError

            raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, operation)

        monkeypatch.setattr("botocore.client.BaseClient._make_api_call", refuse)
        with pytest.raises(ConfigurationError, match="may not be read by this node's role") as told:
            fetch_secrets(document)
        assert told.value.exit_code == Exit.CONFIGURATION


class TestRedaction:
    def test_takes_out_whole_values_and_the_lines_of_those_that_have_several(self) -> None:
        secrets = Secrets({"KEY": KEY, "TOKEN": CANARY})
        assert secrets.redact(f"a {CANARY} b {KEY} c") == "a [TOKEN] b [KEY] c"
        assert secrets.redact("MIIEcanarycanary") == "[KEY]"
        assert secrets.redact_bytes(f"x{CANARY}".encode() + b"\xff") == b"x[TOKEN]\xff"

    def test_finds_a_value_that_is_escaped_in_a_line_of_json(self) -> None:
        """As the run's events and the workers' own log lines hold what an error said."""
        value = 'pa"ss\\wörd'
        for line in (json.dumps({"message": f"no {value}"}), json.dumps([value], ensure_ascii=False)):
            shown = Secrets({"P": value}).redact(line)
            assert "[P]" in shown and "ss" not in shown.replace("message", "")

    def test_finds_the_texts_of_a_value_that_is_json(self) -> None:
        """As the console's key/value pairs, or a service account's file."""
        value = json.dumps(
            {"token": CANARY, "keys": [{"pem": KEY}], "port": 6006, "kind": "checkpoint"}, indent=2
        )
        secrets = Secrets({"ACCOUNT": value})
        assert secrets.redact(f"401 for {CANARY}, MIIEcanarycanary: checkpoint at 6006") == (
            "401 for [ACCOUNT], [ACCOUNT]: checkpoint at 6006"
        )
        assert CANARY not in secrets.redact(json.dumps(value)) + secrets.redact(value)

    def test_lets_short_values_be(self) -> None:
        assert Secrets({"RANKS": "2"}).redact("step 22") == "step 22"

    def test_one_value_inside_another_hides_neither(self) -> None:
        secrets = Secrets({"A": "abcdef", "B": "abcdefghij"})
        assert secrets.redact("abcdefghij abcdef") == "[B] [A]"

    def test_its_own_text_shows_no_value(self) -> None:
        assert CANARY not in repr(Secrets({"TOKEN": CANARY}))

    @given(
        st.dictionaries(
            st.sampled_from(["A", "B", "C"]), st.text("abcdefgh", min_size=LEAST_REDACTED_CHARACTERS)
        ),
        st.lists(st.text("abcdefgh ", max_size=12), max_size=4),
    )
    def test_no_value_is_left_in_any_text(self, values: dict[str, str], around: list[str]) -> None:
        text = " ".join([*around, *values.values(), *around])
        assert not [value for value in values.values() if value in Secrets(values).redact(text)]
