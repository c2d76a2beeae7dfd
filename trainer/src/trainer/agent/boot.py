"""Before a node may train: the self-check in a process of its own, its report, and the launching hook's answer."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from pydantic import ValidationError

from ..contracts import keys
from ..contracts.node_document import NodeDocument
from ..exit_codes import Exit
from ..obs.exporter import NodeState
from ..obs.logs import get_logger
from ..selfcheck.report import Finding, SelfCheckReport, conclude
from .board import Board, utc_now
from .lifecycle import Lifecycle
from .supervisor import cpu_environment

LIMIT_SECONDS = {"quick": 300.0, "full": 1200.0}
HEARTBEAT_SECONDS = 30.0

SelfCheckArgv = Callable[[Path, str, str], list[str]]  # document file, level, instance id


def selfcheck_argv(document_file: Path, level: str, instance_id: str) -> list[str]:
    return [
        *(sys.executable, "-m", "trainer", "selfcheck", "--json", "--level", level),
        *("--document", str(document_file), "--instance-id", instance_id),
    ]


def run_selfcheck(
    argv: list[str],
    document: NodeDocument,
    instance_id: str,
    log_file: Path,
    while_waiting: Callable[[], None],
) -> SelfCheckReport:
    """Run it as a process, so that its torch and device memory are gone afterwards. Never raises for its faults."""
    level = document.self_check.level
    started, began = time.monotonic(), utc_now()
    log_file.parent.mkdir(parents=True, exist_ok=True)
    with open(log_file, "wb") as errors:
        process = subprocess.Popen(
            argv,
            env=cpu_environment(document, os.environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
        next_beat = started + HEARTBEAT_SECONDS
        output, expired = b"", False
        while True:
            try:
                output, _ = process.communicate(timeout=0.5)
                break
            except subprocess.TimeoutExpired:
                now = time.monotonic()
                if now >= next_beat:
                    while_waiting()
                    next_beat = now + HEARTBEAT_SECONDS
                if now - started > LIMIT_SECONDS[level] and not expired:
                    expired = True
                    process.kill()
    try:
        return SelfCheckReport.from_json(output)
    except ValidationError:
        lines = log_file.read_text(errors="replace").strip().splitlines() or ["it said nothing"]
        limit = LIMIT_SECONDS[level]
        message = (
            f"took longer than {limit:.0f} s" if expired else f"ended with {process.returncode}: {lines[-1]}"
        )
        finding = Finding(
            check="selfcheck",
            verdict="unknown",
            message=f"the self-check itself {message}",
            cause="driver, runtime or image broken: the check could not look",
            action=f"read {log_file.name} in the node's log folder; replace the node if another one passes",
            exit_code=Exit.DRIVER,
        )
        return conclude(
            [finding],
            [],
            level=level,
            seconds=time.monotonic() - started,
            started_at=began,
            versions={},
            instance_id=instance_id,
        )


def show(report: SelfCheckReport, state: NodeState) -> None:
    """The report as metrics and log lines."""
    state.set("trainer_selfcheck_passed", 1.0 if report.passed else 0.0)
    state.set("trainer_selfcheck_seconds", report.seconds)
    for figure in report.matmul:
        name = "trainer_selfcheck_matmul_tflops"
        state.set(name, figure.tflops_median, device=figure.device, dtype=figure.dtype)
    for copy in report.memory:
        name = "trainer_selfcheck_memory_bytes_per_second"
        state.set(name, copy.gigabytes_per_second * 1e9, device=copy.device)
    for verdict, count in Counter(finding.verdict for finding in report.findings).items():
        state.set("trainer_selfcheck_findings", count, verdict=verdict)
    for finding in report.findings:
        if finding.verdict not in ("pass", "info"):
            get_logger().warning("selfcheck", **finding.model_dump(exclude_none=True))
    get_logger().info("selfcheck done", verdict=report.verdict, seconds=report.seconds)


def answer_hook(
    report: SelfCheckReport, document: NodeDocument, lifecycle: Lifecycle, board: Board
) -> Exit | None:
    """Upload the report and complete the launching hook. Returns the code to exit with, None where the node may stay.

    With ``onFailure: report`` a failed node goes on, so that it can be looked at; its metric tells.
    """
    key = keys.boot_selfcheck(document.group, report.instance_id or lifecycle.instance_id)
    board.put_text(key, report.to_json())
    if report.passed:
        lifecycle.complete(document.launching_hook, "CONTINUE")
        return None
    lifecycle.report_failed_boot()
    worst = report.worst
    get_logger().error(
        "selfcheck failed", reason=worst.message if worst else report.verdict, code=report.exit_code
    )
    if document.self_check.on_failure == "report":
        lifecycle.complete(document.launching_hook, "CONTINUE")
        return None
    lifecycle.complete(document.launching_hook, "ABANDON")
    return Exit(report.exit_code)
