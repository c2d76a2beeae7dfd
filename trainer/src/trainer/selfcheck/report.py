"""The self-check's result as a document; its JSON schema is `SelfCheckReport.model_json_schema()`.

Verdicts, from good to bad: ``pass``; ``info`` (does not apply here, or worth knowing); ``warning`` (trains, look at
it); ``unknown`` (the check itself could not look: neither good nor bad); ``fail``. A node with ``unknown`` or ``fail``
does not train. What is absent is left out or said in words; it is never the number 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

from pydantic import Field

from ..contracts.base import Document
from ..exit_codes import Exit

Verdict = Literal["pass", "info", "warning", "unknown", "fail"]
ORDER: tuple[Verdict, ...] = ("pass", "info", "warning", "unknown", "fail")
PASSING = frozenset({"pass", "info", "warning"})


class Finding(Document):
    """One statement of one check. A bad one names cause, evidence, action and the exit code it leads to."""

    # driver, devices, torch, fabric, container, health, xid, nvlink, pcie, shared-memory, disk, scratch, clock, matmul,
    # memory, allreduce
    check: str
    verdict: Verdict
    message: str
    cause: str | None = None
    action: str | None = None
    evidence: dict[str, Any] = Field(default_factory=dict)
    exit_code: int | None = None  # only of unknown and fail


REPLACE = "replace the node"


def finding(
    verdict: Verdict,
    check: str,
    message: str,
    cause: str | None = None,
    todo: str | None = None,
    code: Exit | None = None,
    **evidence: Any,
) -> Finding:
    """``evidence`` that is None was not told, and is left out."""
    return Finding(
        check=check,
        verdict=verdict,
        message=message,
        cause=cause,
        action=todo,
        evidence={name: value for name, value in evidence.items() if value is not None},
        exit_code=code,
    )


passed, info, warning, unknown, fail = (partial(finding, verdict) for verdict in ORDER)


def worst_of(findings: Sequence[Finding]) -> Finding | None:
    """The first of the worst."""
    return max(findings, key=lambda finding: ORDER.index(finding.verdict), default=None)


def exit_code_of(findings: Sequence[Finding]) -> int:
    """0, or that of the first of the worst findings where it keeps a machine from training."""
    worst = worst_of(findings)
    if worst is None or worst.verdict in PASSING:
        return int(Exit.DONE)
    return int(worst.exit_code or Exit.BUG)


class MatmulFigure(Document):
    """Square matrix products of one dtype on one device; n x n x n, 2 n^3 operations each."""

    device: str  # cpu, cuda:0...
    name: str  # the processor's or the GPU's own name
    pci_device_id: str | None = None  # four hex digits, GPUs only
    pci_subsystem_id: str | None = None  # boards of one device id differ
    dtype: str  # fp32, tf32, fp16, bf16, fp8
    emulated: bool = False  # this device has no hardware for the dtype
    n: int
    repeats: int
    tflops_median: float
    tflops_min: float
    tflops_max: float
    spread_ratio: float  # (fastest - slowest) / median
    error: float  # largest |C - R| / (|row of A| |column of B|), R in float64
    tolerance: float  # the error allowed for this dtype
    repeatable: bool  # every repeat gave the same bits
    digest: str | None = None  # SHA-256 of the product's bits
    floor_tflops: float | None = None  # what this GPU must reach; none: nothing published, or a CPU
    peak_tflops: float | None = None  # of the datasheet, dense
    power_limit_watts: float | None = None


class LoadFigure(Document):
    """What one GPU did while the products ran; what it does not tell is left out."""

    gpu: int
    clock_hertz: float | None = None  # median
    power_watts: float | None = None  # median
    power_limit_watts: float | None = None
    temperature_celsius: float | None = None  # highest
    held_by: tuple[str, ...] = ()  # hw_slowdown, hw_thermal, hw_power_brake, sw_thermal, sw_power_cap
    pcie: str | None = None  # the best that was seen, for example "gen 5 x16"


class MemoryFigure(Document):
    """A copy within one device's memory; read and written bytes are counted, 10^9 bytes are a GB."""

    device: str
    copied_bytes: int
    repeats: int
    gigabytes_per_second: float  # median
    spread_ratio: float
    exact: bool  # the copy is the original
    floor_gigabytes_per_second: float | None = None
    floor_warns_only: bool = False


class AllReduceFigure(Document):
    """One message size. Bus bandwidth as nccl-tests counts it: bytes / time x 2(n-1)/n."""

    backend: str  # nccl, gloo
    ranks: int
    nodes: int
    message_bytes: int
    repeats: int
    bus_gigabytes_per_second: float  # median
    spread_ratio: float
    exact: bool  # on every rank
    bound_gigabytes_per_second: float | None = None  # of NICs and NVLink; none: not known
    floor_gigabytes_per_second: float | None = None
    network: str | None = None  # what NCCL chose


class SelfCheckReport(Document):
    schema_version: int = 1
    instance_id: str | None = None
    level: Literal["quick", "full"]
    verdict: Verdict  # the worst of the findings, but never better than pass
    exit_code: int  # 0 where the node may train
    seconds: float
    started_at: str
    matmul_tflops: float | None = None  # the slowest device at its fastest dtype
    versions: dict[str, str] = Field(default_factory=dict)  # trainer, torch, cuda, driver
    findings: list[Finding]
    matmul: list[MatmulFigure] = Field(default_factory=list)
    load: list[LoadFigure] = Field(default_factory=list)  # while the products ran
    memory: list[MemoryFigure] = Field(default_factory=list)
    allreduce: list[AllReduceFigure] = Field(default_factory=list)

    @property
    def passed(self) -> bool:
        return self.verdict in PASSING

    @property
    def worst(self) -> Finding | None:
        return worst_of(self.findings)


def conclude(
    findings: list[Finding],
    matmul: list[MatmulFigure],
    *,
    level: Literal["quick", "full"],
    seconds: float,
    started_at: str,
    versions: dict[str, str],
    instance_id: str | None = None,
    load: Sequence[LoadFigure] = (),
    memory: Sequence[MemoryFigure] = (),
    allreduce: Sequence[AllReduceFigure] = (),
) -> SelfCheckReport:
    """Merge findings to one verdict and one exit code."""
    worst = worst_of(findings)
    fastest: dict[str, float] = {}
    for figure in matmul:
        fastest[figure.device] = max(fastest.get(figure.device, 0.0), figure.tflops_median)
    return SelfCheckReport(
        instance_id=instance_id,
        level=level,
        # "Does not apply" says nothing against a node.
        verdict=worst.verdict if worst and worst.verdict != "info" else "pass",
        exit_code=exit_code_of(findings),
        seconds=round(seconds, 3),
        started_at=started_at,
        matmul_tflops=min(fastest.values(), default=None),
        versions=versions,
        findings=findings,
        matmul=matmul,
        load=list(load),
        memory=list(memory),
        allreduce=list(allreduce),
    )
