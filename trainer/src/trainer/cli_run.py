"""``trainer run start|stop|resume|status|logs|fetch|list``: S3 calls with the caller's rights, nothing else."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .access import add_bucket_argument, artifacts_bucket, read_cluster
from .exit_codes import Exit

if TYPE_CHECKING:
    from .agent.board import Board
    from .contracts.cluster import Cluster
    from .contracts.run import RunConfig
    from .runs.status import RunStatus

POLL_SECONDS = 1.0
DAY_SECONDS = 86400.0

START = """\
The configuration is a YAML or JSON file, and every flag goes before it:

  nodes: 2
  groups: [gpu]              # default: the stack's only group
  onFinish: release          # or keep: the nodes wait for the next run
  training:
    model: tiny-vision       # or my_package.my_module:my_factory with --wheel
    dataset: shapes@v1
    epochs: 3
    globalBatchSize: 64
    checkpoint: {everySeconds: 300}
  elastic:                   # default: the world never shrinks
    minWorldNodes: 1         # smallest world that still trains; the global batch stays as it is
    shrinkAfterSeconds: 20   # how long a world that could be smaller waits for the missing nodes first
    waitSeconds: 1800        # with fewer nodes than that the run fails

A name is used once. A run that was stopped or failed goes on with `trainer run resume`.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    run = subparsers.add_parser("run", help="start, watch, stop and fetch trainings")
    commands = run.add_subparsers(dest="run_command", metavar="COMMAND", required=True)

    start = commands.add_parser(
        "start",
        help="start a training on the nodes of a group",
        description=START,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    start.add_argument("--run", dest="name", metavar="NAME", help="the run's name (default: the file's)")
    start.add_argument("--config", type=Path, metavar="FILE", help="YAML or JSON")
    start.add_argument("--group", action="append", metavar="NAME", help="may be given several times")
    start.add_argument("--nodes", type=int, help="the whole world: how many nodes train together")
    start.add_argument("--model", help="built-in name or package.module:factory")
    start.add_argument("--dataset", metavar="NAME@VERSION")
    start.add_argument("--steps", type=int)
    start.add_argument("--epochs", type=float)
    start.add_argument("--on-finish", choices=["release", "keep"])
    start.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="training.learningRate=0.01"
    )
    start.add_argument(
        "--wheel", type=Path, metavar="FILE", help="your own package, built by: pip wheel --no-deps ."
    )
    start.add_argument("--scale", action="store_true", help="raise the group's desired capacity to --nodes")
    _add_wait(start)
    start.set_defaults(run=_start)

    stop = commands.add_parser("stop", help="save and stop; `resume` goes on from there")
    resume = commands.add_parser("resume", help="go on with a stopped or failed run")
    for command, function in ((stop, _stop), (resume, _resume)):
        _add_run(command)
        _add_wait(command)
        command.set_defaults(run=function)

    status = commands.add_parser(
        "status", help="members, world, generation, step, loss, checkpoint, time left"
    )
    _add_run(status)
    status.set_defaults(run=_status)

    logs = commands.add_parser("logs", help="the training's events, or the workers' own output")
    _add_run(logs)
    logs.add_argument("-f", "--follow", action="store_true", help="go on until the run is over")
    logs.add_argument(
        "--worker", action="store_true", help="what the workers printed, by generation and node"
    )
    logs.set_defaults(run=_logs)

    fetch = commands.add_parser("fetch", help="get a checkpoint, every file verified by its SHA-256")
    _add_run(fetch)
    fetch.add_argument("--to", type=Path, metavar="FOLDER", help="default: a folder named like the run")
    fetch.add_argument("--which", choices=["best", "latest"], default="best", help="default: best")
    fetch.add_argument(
        "--safetensors",
        action="store_true",
        help="write the weights as model.safetensors too, read back and compared; needs torch and safetensors here",
    )
    fetch.set_defaults(run=_fetch)

    list_ = commands.add_parser("list", help="all runs of the stack")
    list_.set_defaults(run=_list)
    for command in (start, stop, resume, status, logs, fetch, list_):
        add_bucket_argument(command)
        command.add_argument("--json", action="store_true", help="print JSON instead of text")


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--run", dest="name", metavar="NAME", help="default: the run that the groups are at")


def _add_wait(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--wait",
        type=float,
        nargs="?",
        const=DAY_SECONDS,
        metavar="SECONDS",
        help="show progress until the run is over, at most so long (default: a day); ends with the run's exit code",
    )


def _connect(arguments: argparse.Namespace) -> tuple[Board, Cluster]:
    from .agent.board import Board
    from .store import Store

    board = Board(Store(), artifacts_bucket(arguments))
    return board, read_cluster(board.store, board.bucket)


def _existing(arguments: argparse.Namespace, board: Board, cluster: Cluster) -> RunConfig:
    from .runs import control

    return control.require_config(board, arguments.name or control.active_run(board, cluster))


def _start(arguments: argparse.Namespace) -> int:
    from .agent.board import utc_now
    from .runs import config as configuration
    from .runs import control

    data: dict[str, Any] = configuration.read_file(arguments.config) if arguments.config else {}
    flags = {
        "name": arguments.name,
        "groups": arguments.group,
        "nodes": arguments.nodes,
        "onFinish": arguments.on_finish,
        "training.model": arguments.model,
        "training.dataset": arguments.dataset,
        "training.steps": arguments.steps,
        "training.epochs": arguments.epochs,
    }
    settings = [(path, value) for path, value in flags.items() if value is not None]
    for path, value in [*settings, *(configuration.parse_setting(text) for text in arguments.set)]:
        data = configuration.merge(data, path, value)
    board, cluster = _connect(arguments)
    config = control.start(board, cluster, configuration.build(data, cluster, utc_now()), arguments.wheel)
    if arguments.scale:
        control.scale(cluster, config)
    text = f"run {config.name} started on {', '.join(config.groups)}: {config.nodes} nodes"
    return _answer(arguments, board, config, text)


def _stop(arguments: argparse.Namespace) -> int:
    from .runs import control

    board, cluster = _connect(arguments)
    config = control.stop(board, _existing(arguments, board, cluster).name)
    return _answer(arguments, board, config, f"run {config.name} will save and stop")


def _resume(arguments: argparse.Namespace) -> int:
    from .runs import control

    board, cluster = _connect(arguments)
    config = control.resume(board, _existing(arguments, board, cluster).name)
    return _answer(arguments, board, config, f"run {config.name} goes on from its last complete checkpoint")


def _answer(arguments: argparse.Namespace, board: Board, config: RunConfig, text: str) -> int:
    """Tell what was asked for and, with --wait, how it ends."""
    from .agent.cost import describe_cost
    from .runs.status import read_status
    from .runs.watch import watch

    if arguments.wait is None:
        print(json.dumps({"run": config.name, "message": text}) if arguments.json else text)
        return 0
    if not arguments.json:
        print(text)
    result = watch(board, config, arguments.wait, POLL_SECONDS)
    if arguments.json:
        print(json.dumps(read_status(board, config).to_dict()))
    elif result is not None:
        print(f"run {config.name} {result.status} at step {result.step}: {result.message}")
        if result.cost is not None:
            print(f"its nodes cost {describe_cost(result.cost)}")
    if result is None:
        print(
            f"trainer: run {config.name} is not over after {arguments.wait:.0f} s; it goes on",
            file=sys.stderr,
        )
        return int(Exit.PEER_LOST)
    return 0 if result.status == "stopped" and arguments.run is _stop else result.exit_code


def _status(arguments: argparse.Namespace) -> int:
    from .runs.status import read_status

    board, cluster = _connect(arguments)
    status = read_status(board, _existing(arguments, board, cluster))
    if arguments.json:
        print(json.dumps(status.to_dict()))
        return 0
    from rich.console import Console

    _show(status, Console())
    return 0


def _show(status: RunStatus, console: Any) -> None:
    from .agent.cost import describe_cost
    from .runs.watch import headline, members_table

    console.print(headline(status))
    if status.result is not None:
        console.print(status.result.message, markup=False)
    if status.cost is not None:
        so_far = "" if status.result else " so far"
        console.print(f"nodes{so_far}: {describe_cost(status.cost)}", markup=False)
    if status.members:
        console.print(members_table(status))


def _logs(arguments: argparse.Namespace) -> int:
    from .agent.board import WORKER_LOG
    from .contracts import keys
    from .runs.watch import event_line, log_line

    board, cluster = _connect(arguments)
    run = _existing(arguments, board, cluster).name
    printed: dict[str, int] = {}
    while True:
        over = board.result(run) is not None or not arguments.follow
        for listed in board.store.list_objects(board.bucket, keys.run_logs(run)):
            generation, instance_id, file_name = listed.key.split("/")[-3:]
            wanted = file_name == WORKER_LOG if arguments.worker else keys.is_events_segment(file_name)
            if not wanted or listed.size_bytes <= printed.get(listed.key, 0):
                continue
            fetched = board.store.get(board.bucket, listed.key)
            text = fetched.body[printed.get(listed.key, 0) :].decode(errors="replace") if fetched else ""
            printed[listed.key] = len(fetched.body) if fetched else 0
            for line in text.splitlines():
                in_words = log_line if arguments.worker else event_line
                shown = line if arguments.json else in_words(line)
                print(f"{generation} {instance_id} {shown}" if arguments.worker else f"{generation} {shown}")
        if over:
            return 0
        time.sleep(POLL_SECONDS)


def _fetch(arguments: argparse.Namespace) -> int:
    from .runs import control
    from .runs.export import export_safetensors
    from .train.lineage import manifest_sha256

    board, cluster = _connect(arguments)
    run = _existing(arguments, board, cluster).name
    folder: Path = arguments.to or Path(run)
    fetched = control.fetch(board, run, arguments.which, folder)
    files = [{"file": f.name, "sha256": f.sha256, "bytes": f.size_bytes} for f in fetched.manifest.files]
    exported = folder / "model.safetensors"
    if arguments.safetensors:
        told = {
            "run": run,
            "step": str(fetched.manifest.step),
            "manifest_sha256": manifest_sha256(fetched.manifest),
        }
        digest = export_safetensors(fetched.state, exported, told)
        files.append({"file": exported.name, "sha256": digest, "bytes": exported.stat().st_size})
    if arguments.json:
        found = {"run": run, "which": fetched.which, "step": fetched.manifest.step, "verified": True}
        print(json.dumps({**found, "folder": str(folder), "evalLoss": fetched.eval_loss, "files": files}))
    else:
        size = sum(file.size_bytes for file in fetched.manifest.files) / 1e6
        print(f"{fetched.which} checkpoint, step {fetched.manifest.step}, {size:.1f} MB, verified: {folder}")
        if arguments.safetensors:
            print(
                f"weights alone, {exported.stat().st_size / 1e6:.1f} MB, read back and compared: {exported}"
            )
    return 0


def _list(arguments: argparse.Namespace) -> int:
    from .runs import control

    board, _ = _connect(arguments)
    rows = []
    for run in control.list_runs(board):
        config, result = control.require_config(board, run), board.result(run)
        rows.append(
            {
                "run": run,
                "groups": config.groups,
                "createdAt": config.created_at,
                "status": result.status if result else "open",
                "step": result.step if result else None,
            }
        )
    if arguments.json:
        print(json.dumps(rows))
        return 0
    from rich.console import Console
    from rich.table import Table

    table = Table("run", "groups", "created", "status", "step")
    for row in rows:
        step = "" if row["step"] is None else str(row["step"])
        table.add_row(row["run"], ", ".join(row["groups"]), row["createdAt"], row["status"], step)
    Console().print(table)
    return 0
