"""Metrics: one list, base units, and nothing exported that is not known."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from trainer.agent.events import Meter, Tail
from trainer.contracts.worker import WorkerEvent
from trainer.errors import ConfigurationError
from trainer.obs.cloudwatch import LogShipper
from trainer.obs.exporter import Exporter, NodeState
from trainer.obs.logs import configure, get_logger
from trainer.obs.metrics import METRICS, series_names
from trainer.report.progress import progress_of
from trainer.report.steps import Part

from tests.local.cloud_kit import wait_until

SOURCE = Path(__file__).resolve().parents[2] / "trainer" / "src"


def scrape(exporter: Exporter) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{exporter.port}/metrics", timeout=5) as answer:
        return answer.read().decode()


def test_the_list_keeps_prometheus_habits() -> None:
    names = [metric.name for metric in METRICS]
    assert len(names) == len(set(names))
    for metric in METRICS:
        assert re.fullmatch(r"trainer_[a-z0-9_]+", metric.name) and metric.help.endswith(".")
        assert (metric.kind == "counter") == metric.name.endswith("_total"), metric.name
        assert (metric.kind == "histogram") == bool(metric.buckets)
        assert not re.search(r"(percent|_ms$|_mib|_mhz|milli)", metric.name)
        if metric.name.startswith("trainer_gpu_") and metric.name != "trainer_gpu_xid_total":
            assert metric.labels[:2] == ("gpu", "uuid")
    assert {"trainer_step_seconds_bucket", "trainer_up", "trainer_gpu_xid_total"} <= series_names()
    assert "trainer_step_seconds" not in series_names()


def test_the_list_needs_neither_torch_nor_prometheus() -> None:
    code = "import sys, trainer.obs.metrics; print({'torch', 'prometheus_client'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "set()"


def test_a_scrape_has_what_was_set_and_nothing_else() -> None:
    state, asked = NodeState(), []
    exporter = Exporter(state, "127.0.0.1", 0, lambda: asked.append(1))
    try:
        assert "trainer_" not in scrape(exporter)  # absent, not zero
        state.set("trainer_up", 1)
        state.set("trainer_loss", 0.5)
        state.set("trainer_loss", None)  # not a number any more
        state.add("trainer_samples_total", 64)
        state.set("trainer_info", 1, version="1", torch="2")
        state.observe("trainer_step_seconds", 0.03)
        state.observe("trainer_step_seconds", 500.0)
        text = scrape(exporter)
        assert "trainer_up 1.0" in text and "trainer_loss" not in text
        assert "# TYPE trainer_samples_total counter" in text and "trainer_samples_total 64.0" in text
        assert 'trainer_info{torch="2",version="1"} 1.0' in text
        assert 'trainer_step_seconds_bucket{le="0.025"} 0.0' in text
        assert 'trainer_step_seconds_bucket{le="0.05"} 1.0' in text
        assert (
            'trainer_step_seconds_bucket{le="+Inf"} 2.0' in text and "trainer_step_seconds_count 2.0" in text
        )
        assert len(asked) == 2
    finally:
        exporter.close()


def test_every_metric_of_the_list_can_be_exported_under_its_own_name() -> None:
    state = NodeState()
    for metric in METRICS:
        labels = dict.fromkeys(metric.labels, "x")
        if metric.kind == "histogram":
            state.observe(metric.name, 1.0)
        else:
            state.set(metric.name, 1.0, **labels)
    exporter = Exporter(state, "127.0.0.1", 0)
    try:
        exported = set(re.findall(r"^(trainer_\w+)", scrape(exporter), re.MULTILINE))
    finally:
        exporter.close()
    assert exported == series_names()


def test_what_is_not_in_the_list_or_has_other_labels_is_refused() -> None:
    state = NodeState()
    with pytest.raises(KeyError):
        state.set("trainer_surprise", 1)
    with pytest.raises(KeyError, match="device"):
        state.set("trainer_selfcheck_matmul_tflops", 1, gpu="0")


def test_a_port_in_use_is_a_plain_fault() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(ConfigurationError, match="another agent"),
    ):
        Exporter(NodeState(), "127.0.0.1", taken.getsockname()[1])


class Logs:
    """CloudWatch Logs as the shipper uses it; `fault` is raised by the next calls."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.streams: list[str] = []
        self.fault: Exception | None = None
        self.refused = 0

    def create_log_stream(self, logGroupName: str, logStreamName: str) -> None:
        self.streams.append(f"{logGroupName} {logStreamName}")
        raise ClientError({"Error": {"Code": "ResourceAlreadyExistsException"}}, "CreateLogStream")

    def put_log_events(self, logEvents: list[dict[str, Any]], **_: str) -> None:
        if self.fault:
            self.refused += 1
            raise self.fault
        assert [event["timestamp"] for event in logEvents] == sorted(
            event["timestamp"] for event in logEvents
        )
        self.sent += [event["message"] for event in logEvents]


def test_log_lines_outlive_the_node_and_a_refusal_costs_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainer.obs.cloudwatch.FLUSH_SECONDS", 0.05)
    logs = Logs()
    shipper = LogShipper(logs, "/base/nodes", "gpu/i-1/agent")
    logs.fault = ClientError({"Error": {"Code": "AccessDeniedException"}}, "PutLogEvents")
    configure(shipper.write, instance="i-1")
    for step in range(250):
        get_logger().info("step", n=step)
    wait_until(lambda: "cannot be sent" in capsys.readouterr().err, "the refusal to be told")
    wait_until(lambda: logs.refused > 3, "further tries")
    assert logs.sent == []
    logs.fault = None
    get_logger().error("agent ended")
    shipper.close()  # sends what is left
    configure()
    assert len(logs.sent) == 251 and json.loads(logs.sent[-1])["event"] == "agent ended"
    assert logs.streams[0] == "/base/nodes gpu/i-1/agent"
    assert capsys.readouterr().err == ""  # told once


def events(*lines: str) -> list[WorkerEvent]:
    return [WorkerEvent.from_json(line) for line in lines]


def test_a_torn_line_waits_for_its_end(tmp_path: Path) -> None:
    path = tmp_path / "events-rank0.jsonl"
    tail = Tail(path)
    assert tail.read() == []
    path.write_text('{"kind": "started", "time": 1, "step": 0}\n{"kind": "st')
    assert [event.kind for event in tail.read()] == ["started"]
    with open(path, "a") as file:
        file.write('ep", "time": 2, "step": 1, "loss": null}\nnot JSON\n')
    assert [(event.kind, event.loss) for event in tail.read()] == [("step", None)]


def test_lost_steps_are_those_done_again_after_a_resume() -> None:
    state = NodeState()
    meter = Meter(state)
    for event in events(
        '{"kind": "started", "time": 1, "step": 0, "samples": 0, "totalSteps": 20}',
        *(
            f'{{"kind": "step", "time": 2, "step": {n}, "loss": 1.5, "samples": {8 * n}}}'
            for n in range(1, 8)
        ),
        '{"kind": "checkpoint", "time": 9, "step": 5, "seconds": 0.2}',
    ):
        meter.take(event)
    assert meter.progressed() and state.get("trainer_samples_total") == 56
    assert state.get("trainer_lost_steps_total") is None  # nothing was resumed yet
    meter.take(*events('{"kind": "started", "time": 10, "step": 5, "samples": 40, "totalSteps": 20}'))
    assert state.get("trainer_lost_steps_total") == 2 and not meter.progressed()
    assert state.get("trainer_checkpoint_duration_seconds") == 0.2 and meter.checkpoint_at == 9


def test_a_runs_losses_count_each_step_once_as_it_was_done_last() -> None:
    first, second = Part(1, "i-1"), Part(2, "i-1")
    first.take(f'{{"kind": "step", "time": 1, "step": {n}, "loss": {10 - n}}}'.encode() for n in range(1, 9))
    lines = (
        '{"kind": "started", "time": 2, "step": 5, "totalSteps": 20}',
        *(f'{{"kind": "step", "time": 3, "step": {n}, "loss": 1.0, "seconds": 0.1}}' for n in range(6, 21)),
        '{"kind": "eval", "time": 4, "step": 20, "evalLoss": 0.9, "evalAccuracy": 0.75}',
    )
    second.take(line.encode() for line in lines)
    progress = progress_of([first, second])
    assert (progress.step, progress.total_steps, progress.loss) == (20, 20, 1.0)
    assert progress.first_loss == 8.5 and progress.last_loss == 1.0  # steps 1 and 2; 19 and 20
    assert progress.eval_accuracy == 0.75 and progress.seconds_per_step == 0.1
    assert progress_of([]).first_loss is None
