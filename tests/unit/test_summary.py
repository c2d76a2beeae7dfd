"""`make up` succeeds only if every promise of the summary holds; its JSON keeps to the schema."""

import io
import json
from dataclasses import replace

import jsonschema
import pytest
from rich.console import Console

from localcloud.summary import (
    SCHEMA_FILE,
    CheckpointSummary,
    LossSummary,
    NodeSelfCheck,
    NodeSummary,
    ScrapeSummary,
    Summary,
    faults,
    print_table,
)

NODES = [
    NodeSummary("i-0123456789abcdef0", "trainers", "on-demand", NodeSelfCheck("pass", 3.2, 0.11)),
    NodeSummary(
        "i-0123456789abcdef1",
        "trainers",
        "spot",
        NodeSelfCheck("info", 3.4, None),
        {"boot": 3.1, "data": None},
    ),
]
GOOD = Summary(
    stack="local",
    run="sample",
    nodes=NODES,
    loss=LossSummary(1.6, 0.4, 200),
    checkpoint=CheckpointSummary(200, "ab" * 32, True),
    scrape=ScrapeSummary(2, 2),
    seconds={"total": 61.5, "nodes": 14.0},
)


def test_a_stack_that_keeps_every_promise_has_no_fault():
    assert faults(GOOD, declared_nodes=2) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"nodes": NODES[:1]}, "1 of 2 declared nodes are in service"),
        (
            {"nodes": [NODES[0], replace(NODES[1], selfcheck=NodeSelfCheck("fail", 1.0, None))]},
            "node i-0123456789abcdef1: self-check verdict fail",
        ),
        (
            {"nodes": [NODES[0], replace(NODES[1], selfcheck=NodeSelfCheck("unknown", None, None))]},
            "self-check verdict unknown",
        ),
        (
            {"loss": LossSummary(1.0, 0.81, 200)},
            "mean loss went from 1.0000 (first tenth of 200 steps) to 0.8100",
        ),
        ({"loss": LossSummary(None, None, 0)}, "no finite training loss"),
        (
            {"checkpoint": CheckpointSummary(200, "ab" * 32, False)},
            "no checkpoint in the bucket could be verified",
        ),
        ({"scrape": ScrapeSummary(2, 1)}, "metrics of 1 of 2 declared nodes were scraped"),
    ],
)
def test_each_broken_promise_is_named(change, words):
    found = faults(replace(GOOD, **change), declared_nodes=2)
    assert len(found) == 1
    assert words in found[0]


def test_a_loss_of_exactly_four_fifths_is_enough():
    assert faults(replace(GOOD, loss=LossSummary(1.0, 0.8, 200)), declared_nodes=2) == []


def test_all_faults_come_at_once():
    broken = replace(
        GOOD, nodes=[], scrape=ScrapeSummary(2, 0), checkpoint=CheckpointSummary(None, None, False)
    )
    assert len(faults(broken, declared_nodes=2)) == 3


def test_the_json_keeps_to_the_schema_and_reads_back_equal():
    schema = json.loads(SCHEMA_FILE.read_text())
    jsonschema.validate(json.loads(GOOD.to_json()), schema)
    assert Summary.from_json(GOOD.to_json()) == GOOD


@pytest.mark.parametrize("unmeasured", [0, -1.0])
def test_the_schema_refuses_zero_for_a_matmul_that_was_not_measured(unmeasured):
    data = json.loads(GOOD.to_json())
    data["nodes"][0]["selfcheck"]["matmulTflops"] = unmeasured
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(data, json.loads(SCHEMA_FILE.read_text()))


def test_the_table_shows_nodes_loss_and_what_was_not_measured():
    console = Console(record=True, width=120, file=io.StringIO())
    print_table(GOOD, console)
    text = console.export_text()
    for words in (
        "i-0123456789abcdef0",
        "spot",
        "not measured",
        "1.6000 -> 0.4000 (25%)",
        "verified by hash",
        "2 of 2",
    ):
        assert words in text
