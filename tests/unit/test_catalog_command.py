"""`make catalog`: the table, the JSON, and the comparison with EC2."""

from __future__ import annotations

import json

import pytest
from moto import mock_aws

from ops import catalog

KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_SESSION_TOKEN")


@pytest.fixture
def no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: pytest.TempPathFactory) -> None:
    for key in KEYS:
        monkeypatch.delenv(key, raising=False)
    for file in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(file, f"{tmp_path}/absent")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def test_the_table_has_a_line_for_each_type_that_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert catalog.main(["--gpus", "8", "--gib", "80", "--efa", "--region", "us-west-2"]) == 0
    out = capsys.readouterr().out
    lines = [line.split() for line in out.splitlines()]
    rows = {line[0]: line[1:] for line in lines if line and line[0].endswith("xlarge")}
    assert list(rows) == [
        *("p4de.24xlarge", "g7e.48xlarge", "p5.48xlarge", "p5en.48xlarge", "p6-b200.48xlarge"),
        *("p6-b300.48xlarge", "p5e.48xlarge"),
    ]
    assert rows["p5.48xlarge"] == [
        *("8", "H100", "80", "192", "2048", "3200", "32", "30.4", "dsb", "55.04", "6.88", "12.69-16.13", "p")
    ]
    assert "113.93*" in rows["p6-b200.48xlarge"]  # us-east-1's
    assert rows["p5e.48xlarge"][-4:] == ["?", "?", "19.54", "p"]
    assert "as of 2025-12-31 and 2026-07-20" in out
    assert "p6-b300.48xlarge: not verified: the code of its spot quota" in out


def test_a_narrow_terminal_loses_no_column(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert catalog.main([]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0].split() == list(catalog.HEADINGS) and "…" not in out
    assert "  p3dn: no image profile has the proprietary NVIDIA driver" in out


def test_json_has_every_fact_with_prices_and_images(capsys: pytest.CaptureFixture[str]) -> None:
    assert catalog.main(["--gpus", "8", "--gib", "288", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["name"] == "p6-b300.48xlarge" and row["maxEfaInterfaces"] == 16
    assert row["onDemandPrice"]["asOf"] == "2026-07-20" and row["spotPrice"] is None
    assert row["images"] == ["dlami-base-ubuntu-24.04"]
    assert row["efaLayout"][0] == [0, 0, "interface"] and len(row["efaLayout"]) == 17


def test_what_nothing_fulfils_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert catalog.main(["--gpus", "9"]) == 1
    assert capsys.readouterr().err == "make catalog: no instance type of the catalog has all of that\n"


def test_a_region_that_is_none_is_told_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert catalog.main(["--region", "us-east1"]) == 2
    assert "(nearest match: us-east-1)" in capsys.readouterr().err


@pytest.mark.usefixtures("no_credentials")
def test_the_check_without_credentials_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert catalog.main(["--check"]) == 3
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("make catalog: CHECK=1 asks EC2 and there are no AWS credentials")
    assert err.count("\n") == 1


def test_the_check_with_a_profile_that_is_not_there_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobodys")
    assert catalog.main(["--check"]) == 3
    assert capsys.readouterr().err == (
        "make catalog: The config profile (nobodys) could not be found: set AWS_PROFILE to one that exists\n"
    )


@mock_aws
def test_the_check_tells_where_ec2_says_otherwise(capsys: pytest.CaptureFixture[str]) -> None:
    assert catalog.main(["--check", "--region", "us-west-2"]) == 0
    assert capsys.readouterr().out == "EC2 in us-west-2 says what the catalog says\n"
    assert catalog.main(["--check"]) == 1
    assert capsys.readouterr().out == (
        "p6e-gb200.36xlarge: EC2 does not list it, the catalog says that us-east-1 offers it\n"
    )
