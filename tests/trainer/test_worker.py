"""The sample run as `make up` starts it: real torchrun, `-m trainer.worker`, the example's own settings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from trainer.contracts.manifests import DatasetFacts
from trainer.contracts.run import RunConfig
from trainer.contracts.worker import ExitReport, exit_file, generation_dir
from trainer.data.manifest import DatasetName
from trainer.data.publish import describe
from trainer.data.sample import CLASSES, make_sample
from trainer.exit_codes import Exit
from trainer.runs.config import read_file
from trainer.train.lineage import fetch_files, newest_complete
from trainer.train.saved_state import SavedState

from tests.trainer.kit import REGION, Bench, free_port, worker_config

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "trainer" / "examples" / "sample_run.yaml"


def test_the_sample_run_learns_and_leaves_a_verified_checkpoint(bench: Bench, tmp_path: Path) -> None:
    folder = tmp_path / "data" / "shapes" / "v1"
    make_sample(folder)
    (folder / "manifest.json").write_text(
        describe(folder, DatasetName("shapes", "v1"), DatasetFacts(classes=len(CLASSES))).to_json()
    )
    settings = {
        "name": "sample",
        "groups": ["local"],
        "createdAt": "2026-11-30T00:00:00Z",
        **read_file(EXAMPLE),
    }
    config = worker_config(bench, RunConfig.model_validate(settings), generation=1, world=2)
    gen_dir = generation_dir(config.state_dir, "sample", 1)
    gen_dir.mkdir(parents=True)
    (gen_dir / "worker.json").write_text(config.to_json())
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "trainer" / "src"),
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
        "AWS_REGION": REGION,
    }
    with open(gen_dir / "worker.log", "w") as log:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "torch.distributed.run", "--nnodes", "1", "--nproc-per-node", "2"),
                *("--master-addr", "127.0.0.1", "--master-port", str(free_port()), "--max-restarts", "0"),
                *("-m", "trainer.worker", str(gen_dir / "worker.json")),
            ],
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            timeout=250,
            check=False,
        )
    assert done.returncode == 0, (gen_dir / "worker.log").read_text()
    for rank in (0, 1):
        report = ExitReport.from_json(exit_file(gen_dir, rank).read_text())
        assert (report.code, report.step) == (Exit.DONE, 200)
    events = [json.loads(line) for line in (gen_dir / "events-rank0.jsonl").read_text().splitlines()]
    assert [event["step"] for event in events if event["kind"] == "step"] == list(range(1, 201))
    (finished,) = [event for event in events if event["kind"] == "finished"]
    assert finished["lastLoss"] < 0.5 * finished["firstLoss"]
    assert finished["evalAccuracy"] > 0.8
    manifest = newest_complete(bench.store, bench.bucket, "sample")
    assert manifest is not None and manifest.step == 200
    SavedState(fetch_files(bench.store, bench.bucket, manifest, tmp_path / "fetched"))
