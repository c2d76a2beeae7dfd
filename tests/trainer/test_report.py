"""`trainer report`: one page that holds all of a run, opens offline, and stays small however long the run was."""

from __future__ import annotations

import datetime
import json
import math
import re
from array import array
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from trainer.agent.board import utc_now
from trainer.cli import main
from trainer.contracts import keys
from trainer.contracts.cluster import Cluster, GroupInfo
from trainer.contracts.cost import NodeUsage, RunUsage
from trainer.contracts.run import RunConfig, TrainingConfig
from trainer.contracts.worker import WorkerEvent
from trainer.exit_codes import Exit
from trainer.report.page import render
from trainer.report.record import Record, from_folder
from trainer.report.steps import COLUMNS, Part, Steps
from trainer.selfcheck.report import Finding, MatmulFigure
from trainer.selfcheck.report import conclude as concluded

from tests.trainer.kit import Bench, Ranks, run_config
from tests.trainer.run_kit import board, checkpoint, conclude, train

NOW = datetime.datetime(2026, 11, 30, 12, 0, tzinfo=datetime.timezone.utc)
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&"


class Page(HTMLParser):
    """What a browser would make of it: tags in order, attributes, headings, texts of tables, and whether all close."""

    VOID = frozenset({"meta", "br", "img", "link", "input", "hr"})

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.texts: list[str] = []
        self.headings: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == [], "a tag is left open"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("h2", "h3"):
            self.headings.append(data)
        elif self.open and self.open[-1] != "style":
            self.texts.append(data)

    @property
    def text(self) -> str:
        return "\n".join(self.texts)

    def charts(self) -> dict[str, str]:
        """Title -> the chart in words."""
        labels = [
            attributes["aria-label"] for tag, attributes in self.tags if tag == "svg" and "role" in attributes
        ]
        return dict(label.split(". ", 1) for label in labels if ". " in label)


def page_of(record: Record) -> Page:
    return Page(render(record, NOW))


def write_part(
    folder: Path, generation: int, lines: list[str], torn: str = "", instance: str = "i-1"
) -> None:
    target = folder / "logs" / f"gen-{generation:04d}" / instance / "events-000001.jsonl"
    target.parent.mkdir(parents=True)
    target.write_text("".join(f"{line}\n" for line in lines) + torn)


def event(kind: Any, time: float, **fields: Any) -> str:
    return WorkerEvent(kind=kind, time=time, **fields).to_line().strip()


def step(number: int, time: float, loss: float | None = 1.0, **fields: Any) -> str:
    told = {"seconds": 1.0, "data_wait_seconds": 0.25, "samples": 10 * number, "learning_rate": 0.1}
    return event("step", time, step=number, loss=loss, **{**told, **fields})


@pytest.fixture
def interrupted(tmp_path: Path) -> Path:
    """Generation 1 does 10 steps and is killed in the middle of a line; 2 goes on from 6, is stopped at 12; 3 ends."""
    first = [event("started", 100, step=0, samples=0, world_size=4, total_steps=20)]
    first += [step(n, 100 + n, loss=10.0 - n) for n in range(1, 7)]
    first += [
        event("checkpoint", 107, step=6, seconds=0.5, size_bytes=2048, sha256="ab" * 32, reason="periodic")
    ]
    first += [step(n, 101 + n, loss=99.0) for n in range(7, 11)]
    second = [event("started", 150, step=6, samples=60, world_size=2, total_steps=20)]
    second += [event("fallback", 151, step=8, message="manifest of step 8: wrong SHA-256")]
    second += [step(n, 150 + n, loss=10.0 - n) for n in range(7, 13)]
    second += [event("straggler", 163, step=12, slow_rank=1, ratio=1.75)]
    second += [event("stopped", 164, step=12, reason="notice", saved=True)]
    third = [event("started", 200, step=12, samples=120, world_size=4, total_steps=20)]
    third += [step(n, 200 + n, loss=0.5) for n in range(13, 21)]
    third += [event("eval", 222, step=20, eval_loss=0.75, eval_accuracy=0.875, seconds=1.5, best=True)]
    third += [event("finished", 223, step=20, epochs=2.0, first_loss=9.0, last_loss=0.5)]
    write_part(tmp_path, 1, first, torn='{"kind":"step","time":112,"st')
    write_part(tmp_path, 2, second, instance="i-2")
    write_part(tmp_path, 3, third)
    return tmp_path


# --- what it says


def test_the_page_has_every_part_in_order(interrupted: Path) -> None:
    page = page_of(from_folder(interrupted))
    assert page.headings == [
        "Learning",
        "Speed",
        "Generations and interruptions",
        "Where the time went",
        "Errors, unusable checkpoints, slow ranks",
        "Nodes and GPUs",
        "Checkpoints",
        "Cost",
        "Versions",
        "Configuration",
    ]
    assert list(page.charts()) == [
        "Loss",
        "Held-out accuracy",
        "Learning rate",
        "Samples a second, all ranks",
        "Time of a step",
        "Share of a step spent waiting for data",
    ]


def test_a_run_of_several_generations_is_told_as_it_was(interrupted: Path) -> None:
    page = page_of(from_folder(interrupted))
    assert "2\n4 steps lost" in page.text.replace(
        "recoveries\n", ""
    )  # two recoveries; 7 to 10 were done twice
    assert "no word: killed, or still running" in page.text and "stopped (notice), saved" in page.text
    assert "manifest of step 8: wrong SHA-256" in page.text
    assert "rank 1 takes 1.75 times as long as the median rank" in page.text
    assert page.charts()["Loss"].startswith(
        "training: from 9 to 0.5, lowest -2, highest 9; held-out: from 0.75"
    )
    assert page.charts()["Samples a second, all ranks"] == "samples: from 10 to 10, lowest 10, highest 10"
    assert page.charts()["Share of a step spent waiting for data"].startswith("data wait: from 25 % to 25 %")
    assert "20\nof 20" in page.text and "87.5 %" in page.text
    assert "between generations 1 min 15 s" in page.text.replace("\n", "")


def test_steps_done_again_count_as_their_last_time(interrupted: Path) -> None:
    assert "highest 9;" in page_of(from_folder(interrupted)).charts()["Loss"], (
        "the 99 of the lost steps is gone"
    )


def test_what_was_never_told_is_not_drawn_and_not_zero(tmp_path: Path) -> None:
    lines = [event("started", 1, step=0)]
    lines += [event("step", n, step=n, loss=None if n == 2 else 1.0) for n in (1, 2, 3)]
    write_part(tmp_path, 1, lines)
    page = page_of(from_folder(tmp_path))
    assert list(page.charts()) == ["Loss"]
    assert page.charts()["Loss"] == "training: from 1 to 1, lowest 1, highest 1"
    assert "MFU" not in page.text and "USD" not in page.text and "a second" not in page.text


def test_a_run_that_has_not_begun_has_a_page_too() -> None:
    page = page_of(Record("waiting", None, []))
    assert "no result yet" in page.text and "Generations and interruptions" not in page.headings


# --- where it is read from


def test_a_run_in_s3_with_all_its_documents(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    groups = {"gpu": GroupInfo(auto_scaling_group="test-gpu", max_nodes=2)}
    cluster = Cluster(stack="t", region="r", artifacts_bucket=bench.bucket, groups=groups, datasets={})
    bench.store.put(bench.bucket, keys.cluster(), cluster.to_json().encode())
    config = RunConfig(
        name="demo",
        groups=["gpu"],
        nodes=2,
        training=TrainingConfig(dataset="numbers@v1"),
        created_at=utc_now(),
    )
    bench.store.put(bench.bucket, keys.run_config("demo"), config.to_json().encode())
    train(bench, "demo", 12)
    pointer = checkpoint(bench, "demo", 10, b"weights")
    bench.store.put(bench.bucket, keys.latest("demo"), pointer.to_json().encode())
    usage = NodeUsage(instance_type="g5.xlarge", life_cycle="spot", seconds=7200, usd_per_hour_low=0.5,
                      usd_per_hour_high=0.75, prices_as_of="2026-07-20")  # fmt: skip
    board(bench).put_usage("demo", RunUsage(nodes={"i-1": usage}))
    for id_, verdict in (("i-1", "pass"), ("i-2", "warning")):
        finding = Finding(check="clocks", verdict=verdict, message="sw_thermal on GPU 0", cause="hot air")  # type: ignore[arg-type]
        figure = MatmulFigure(device="cuda:0", name="NVIDIA A10G", dtype="bf16", n=8192, repeats=9, tflops_median=66.1,
                              tflops_min=65.0, tflops_max=67.0, spread_ratio=0.03, error=1e-3, tolerance=1e-2,
                              repeatable=id_ == "i-1", floor_tflops=48)  # fmt: skip
        report = concluded([finding], [figure], level="quick", seconds=31, started_at=utc_now(),
                           versions={"driver": "580.95"}, instance_id=id_)  # fmt: skip
        board(bench).put_text(keys.run_selfcheck("demo", id_), report.to_json())
    monkeypatch.setenv("TRAINER_ARTIFACTS_BUCKET", bench.bucket)
    monkeypatch.chdir(tmp_path)
    assert main(["report", "demo"]) == 0
    assert "report-demo.html" in capsys.readouterr().out
    page = Page((tmp_path / "report-demo.html").read_text())
    assert "USD 1.00 to 1.50" in page.text and "g5.xlarge" in page.text
    assert "66.1" in page.text and "NVIDIA A10G" in page.text and "NO" in page.text
    assert "sw_thermal on GPU 0; cause: hot air" in page.text and "driver 580.95" in page.text
    assert "trainer 1, torch 2" in page.text and '"dataset": "numbers@v1"' in page.text
    conclude(bench, "demo")
    assert main(["report", "demo", "--to", "done.html"]) == 0
    assert "finished" in Page((tmp_path / "done.html").read_text()).text
    assert sorted(path.name for path in tmp_path.glob("*.html*")) == ["done.html", "report-demo.html"]


def test_a_real_run_of_this_machine(trained: Bench, tmp_path: Path) -> None:
    ranks = Ranks(trained, run_config("real", steps=6, eval_every_steps=3), generation=1, world=1)
    assert ranks.wait() == [0]
    target = tmp_path / "real.html"
    assert main(["report", str(ranks.gen_dir.parent), "--to", str(target)]) == 0
    page = Page(target.read_text())
    assert {"Loss", "Held-out accuracy", "Time of a step"} <= set(page.charts())
    assert "6\nof 6" in page.text and "finished" in page.text and "numbers@v1" in page.text


@pytest.mark.parametrize(("last", "state"), [
    (event("stopped", 5, step=1, reason="sigterm", saved=True), "stopped"),
    (event("finished", 5, step=1, epochs=1.0), "finished"),
    (step(2, 5), "no result yet"),
])  # fmt: skip
def test_a_run_without_a_result_is_what_its_last_event_says(last: str, state: str, tmp_path: Path) -> None:
    write_part(tmp_path, 1, [event("started", 1, step=0), step(1, 2), last])
    config = run_config("local-one")
    (tmp_path / "run.json").write_text(config.to_json())
    page = page_of(from_folder(tmp_path))
    assert page.texts[page.texts.index("local-one ") + 1] == state
    assert config.training.dataset in page.text


@pytest.mark.parametrize(("which", "words"), [("nobody", "there is no run nobody"), (".", "holds no run")])
def test_a_run_that_is_not_there_is_a_plain_fault(
    which: str,
    words: str,
    bench: Bench,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["report", which, "--artifacts-bucket", bench.bucket]) == Exit.CONFIGURATION
    assert words in capsys.readouterr().err and not list(tmp_path.glob("*.html*"))


def test_a_folder_of_several_runs_is_not_one_run_and_a_name_without_a_bucket_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("TRAINER_ARTIFACTS_BUCKET", raising=False)
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two"):
        for generation in (1, 2):
            write_part(tmp_path / "runs" / name, generation, [step(generation, 1)])
    assert main(["report", "runs"]) == main(["report", "three"]) == Exit.CONFIGURATION
    several, missing = capsys.readouterr().err.splitlines()
    assert "runs holds several runs (one, two)" in several
    assert "three is no folder of a run on this machine" in missing and "--artifacts-bucket" in missing
    assert main(["report", "runs/two"]) == 0


def test_perplexity_is_drawn_where_it_was_told(tmp_path: Path) -> None:
    lines = [event("eval", 2.0 + n, step=n, eval_loss=3.0 - n, eval_perplexity=9.0 / n) for n in (1, 2, 3)]
    write_part(tmp_path, 1, [step(1, 1), *lines])
    charts = page_of(from_folder(tmp_path)).charts()
    assert charts["Held-out perplexity"] == "perplexity: from 9 to 3, lowest 3, highest 9"
    assert "Held-out accuracy" not in charts


def test_a_place_that_cannot_be_written_is_told(
    interrupted: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = interrupted / "no" / "such" / "report.html"
    assert main(["report", str(interrupted), "--to", str(target)]) == Exit.CONFIGURATION
    assert "--to" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["", "."])
def test_a_folder_is_a_place_too(
    interrupted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path / "out")
    assert main(["report", str(interrupted), *(["--to", name] if name else [])]) == 0
    assert len([*(tmp_path / "out").iterdir()]) == 1
    assert [*(tmp_path / "out").glob("report-*.html")]


# --- what it never does


def test_nothing_is_fetched_and_nothing_runs(interrupted: Path) -> None:
    text = render(from_folder(interrupted), NOW)
    page = Page(text)
    assert not re.search(r"https?:|//[a-z]", text), "an address, even of a namespace"
    assert not re.search(r"url\(|@import", text)
    tags = {tag for tag, _ in page.tags}
    assert not tags & {
        "script",
        "link",
        "img",
        "iframe",
        "object",
        "embed",
        "base",
        "form",
        "a",
        "use",
        "image",
    }
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    assert not {"src", "href", "xlink:href"} & {name for _, attributes in page.tags for name in attributes}
    policies = [attributes["content"] for tag, attributes in page.tags if "http-equiv" in attributes]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'"]


def test_what_a_run_says_is_text_and_never_markup(tmp_path: Path) -> None:
    lines = [event("started", 1, step=0), step(1, 2), event("error", 3, code=2, message=HOSTILE)]
    lines += [event("checkpoint", 4, step=1, seconds=1, size_bytes=1, sha256=HOSTILE, reason=HOSTILE)]
    write_part(tmp_path, 1, lines, instance="i-<b>")
    (tmp_path / "config.json").write_text(
        RunConfig(
            name="run",
            groups=["g"],
            nodes=1,
            training=TrainingConfig(dataset="numbers@v1", model=HOSTILE),
            created_at="now",
        ).to_json()
    )
    text = render(from_folder(tmp_path), NOW)
    page = Page(text)
    assert "<script" not in text and "<img" not in text and "<b>" not in text
    assert page.text.count(HOSTILE) >= 3


def test_a_million_steps_are_a_small_page() -> None:
    count = 1_000_000
    steps = Steps(array("q", range(1, count + 1)), {name: array("d", [math.nan]) * count for name in COLUMNS})
    for name in ("loss", "seconds", "data_wait_seconds", "learning_rate", "grad_norm"):
        steps.columns[name] = array("d", ((number * 7919 % 1000 + 1) / 1000 for number in range(1000))) * 1000
    steps.columns["samples"] = array("d", range(64, 64 * count + 1, 64))
    saves = [WorkerEvent(kind="checkpoint", time=n, step=n, seconds=1.0) for n in range(0, count, 100)]
    evals = [WorkerEvent(kind="eval", time=n, step=n, eval_loss=1.0 / (n + 1)) for n in range(0, count, 50)]
    part = Part(1, "i-1", steps, [*saves, *evals], 0.0, float(count), 1.0, 0.5)
    others = [Part(n, "i-1", Steps(), [], float(count + n), float(count + n + 1)) for n in range(2, 500)]
    text = render(Record("long", None, [part, *others]), NOW)
    assert len(text.encode()) < 1_000_000, "the limit is 2 MB"
    assert "1000000" in Page(text).text


def test_lines_of_a_newer_release_or_of_nobody_are_left_out(tmp_path: Path) -> None:
    lines = [event("started", 1, step=0), "[]", "null", '{"kind":"step","time":"x","step":1}', "not JSON", ""]
    lines += ['{"kind":"step","time":2,"step":"two"}', '{"kind":"new","time":3,"what":1}', step(1, 4)]
    lines += [json.dumps({"kind": "step", "time": 5, "step": 2, "loss": "no number", "seconds": True})]
    for value in ("1e400", "9" * 400, "NaN", "Infinity", "-1e307", "1e307"):
        lines += [f'{{"kind":"step","time":6,"step":3,"loss":{value},"seconds":{value},"gradNorm":{value}}}']
        lines += [f'{{"kind":"eval","time":{value},"step":3,"evalLoss":1}}']
        lines += [f'{{"kind":"eval","time":7,"step":3,"evalLoss":{value}}}']
        lines += [f'{{"kind":"step","time":8,"step":{"9" * 40},"loss":1}}', "[" * 100_000]
    lines += ['{"kind":"note","time":9,"message":"\\ud800"}']
    write_part(tmp_path, 1, lines)
    (tmp_path / "latest").mkdir()  # anybody's folder, such as a link to a checkpoint
    page = page_of(from_folder(tmp_path))
    assert page.charts()["Loss"] == "training: from 1 to 1, lowest 1, highest 1"
    assert "3" in page.texts
