"""Which request meets which fault, how often, and what is no rule."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from localcloud.gateway import bodies
from localcloud.gateway.control import Rule, RuleFile, clear, injected, set_rules
from localcloud.gateway.rules import Asked, RuleBook, signed_service

PUT = Asked("10.42.1.7", "PUT", "/bucket/runs/r/latest?x-id=PutObject", "s3")


@pytest.mark.parametrize(
    ("given", "meets"),
    [
        ({}, True),
        ({"nodes": ("10.42.1.7", "10.42.1.8")}, True),
        ({"nodes": ("10.42.1.8",)}, False),
        ({"methods": ("GET", "PUT")}, True),
        ({"methods": ("GET",)}, False),
        ({"key": r"/latest\?"}, True),
        ({"key": r"^/latest"}, False),
    ],
)
def test_a_rule_matches_by_node_method_and_key(given: dict[str, Any], meets: bool) -> None:
    assert PUT.meets(Rule(kind="reset", **given)) is meets


def test_rules_match_s3_only_and_faults_of_bodies_only_what_has_one() -> None:
    assert not Asked("n", "POST", "/", "ec2").meets(Rule(kind="reset"))
    assert not Asked("n", "HEAD", "/b/k", "s3").meets(Rule(kind="corrupted"))
    assert Asked("n", "HEAD", "/b/k", "s3").meets(Rule(kind="slow-down"))


def test_the_first_rule_with_times_left_decides_and_skips_come_first() -> None:
    book = RuleBook(
        [Rule(kind="reset", skip=1, times=2), Rule(kind="slow-down", times=2), Rule(kind="outage")]
    )
    met = [rule.kind if rule else None for rule in (book.choose(PUT) for _ in range(6))]
    assert met == ["slow-down", "reset", "reset", "slow-down", None, None]


def test_a_rule_without_times_stays() -> None:
    book = RuleBook([Rule(kind="reset", times=None)])
    assert all(book.choose(PUT) for _ in range(50))


def test_an_outage_is_met_by_connections_of_its_nodes_only() -> None:
    book = RuleBook([Rule(kind="outage", nodes=("a",), times=None)])
    assert book.refuses("a") and not book.refuses("b")
    assert book.choose(Asked("a", "GET", "/", "s3")) is None


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"kind": "slowdown"}, "one of internal-error, slow-down"),
        ({"kind": "delay"}, "seconds"),
        ({"kind": "reset", "seconds": 1}, "seconds"),
        ({"kind": "slow"}, "bytes_per_second"),
        ({"kind": "reset", "times": 0}, "times"),
        ({"kind": "reset", "key": "("}, "no regular expression"),
        ({"kind": "outage", "key": "x"}, "whole nodes"),
    ],
)
def test_what_is_no_rule_is_refused_with_the_reason(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Rule(**given)


@pytest.mark.parametrize(
    ("authorization", "target", "service"),
    [
        (
            "AWS4-HMAC-SHA256 Credential=A/20260101/us-east-1/s3/aws4_request, SignedHeaders=host",
            "/b/k",
            "s3",
        ),
        ("AWS4-HMAC-SHA256 Credential=A/20260101/eu-west-1/ec2/aws4_request, SignedHeaders=host", "/", "ec2"),
        ("", "/b/k?X-Amz-Credential=A%2F20260101%2Fus-east-1%2Fs3%2Faws4_request", "s3"),
        ("", "/b/k", ""),
    ],
)
def test_the_service_is_the_signatures(authorization: str, target: str, service: str) -> None:
    assert signed_service(authorization, target) == service


# --- the files


def test_a_new_set_of_rules_counts_anew_and_what_was_injected_can_be_read(tmp_path: Path) -> None:
    found = RuleFile(tmp_path)
    for _ in range(2):
        set_rules(tmp_path, [Rule(kind="slow-down", nodes=("10.42.1.7",))])
        first, second = found.choose(PUT), found.choose(PUT)
        assert first == Rule(kind="slow-down", nodes=("10.42.1.7",))
        assert second is None
    set_rules(tmp_path, [Rule(kind="reset", times=None)])
    clear(tmp_path)
    assert found.choose(PUT) is None
    lines = injected(tmp_path)
    assert [(line["kind"], line["method"], line["key"], line["node"]) for line in lines] == [
        ("slow-down", "PUT", PUT.target, "10.42.1.7")
    ] * 2
    assert lines[0]["time"] <= lines[1]["time"]


def test_rules_of_an_earlier_gateway_are_not_for_the_next(tmp_path: Path) -> None:
    set_rules(tmp_path, [Rule(kind="reset", times=None)])
    assert RuleFile(tmp_path).choose(PUT) is None


def test_a_file_that_holds_no_rules_is_told_and_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = RuleFile(tmp_path)
    set_rules(tmp_path, [Rule(kind="reset", times=None)])
    assert found.choose(PUT)
    (tmp_path / "rules.json").write_text('[{"kind": "delay"}]')
    assert found.choose(PUT)
    assert "rules.json" in capsys.readouterr().err


# --- bodies


def pieces(*sizes: int) -> list[bytes]:
    return [bytes(size) for size in sizes]


@pytest.mark.parametrize("at", [0, 2, 3, 9])
def test_one_byte_is_corrupted_wherever_pieces_end(at: int) -> None:
    found = b"".join(bodies.corrupted(pieces(3, 0, 6, 1), at))
    assert [index for index, byte in enumerate(found) if byte] == [at]


@pytest.mark.parametrize(
    "sent", [[b"5\r\nhello\r\n0\r\n"], [b"5\r", b"\n", b"hello\r\n0\r\n"], [b"5\r\n", b"hello\r\n0\r\n"]]
)
def test_of_an_aws_chunked_body_the_first_byte_of_data_is_corrupted(sent: list[bytes]) -> None:
    assert b"".join(bodies.corrupted_data(sent)) == b"5\r\n\x97ello\r\n0\r\n"


def test_a_cut_body_ends_where_it_is_cut() -> None:
    found: list[bytes] = []
    with pytest.raises(bodies.BodyEnded):
        for piece in bodies.cut(pieces(3, 3), 4):
            found.append(piece)
    assert [len(piece) for piece in found] == [3, 1]


def test_a_slow_body_takes_its_time_and_stays_the_same() -> None:
    waits: list[float] = []
    found = list(bodies.slowed([b"x" * 95, b"y" * 5], 100, waits.append))
    assert b"".join(found) == b"x" * 95 + b"y" * 5
    assert sum(waits) == pytest.approx(1.0)
    assert max(waits) <= 0.1


def test_chunks_are_read_as_they_are_written_and_a_broken_off_body_is_told() -> None:
    coded = b"".join(bodies.chunked([b"ab", b"cde"]))
    assert b"".join(bodies.of_chunks(io.BytesIO(coded))) == b"abcde"
    for short in (coded[:5], coded[:8], b""):
        with pytest.raises(bodies.BodyEnded):
            list(bodies.of_chunks(io.BytesIO(short)))
    with pytest.raises(bodies.BodyEnded):
        list(bodies.of_length(io.BytesIO(b"abc"), 4))
