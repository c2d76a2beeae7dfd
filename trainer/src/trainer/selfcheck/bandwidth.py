"""Verdicts on memory bandwidth and on the all-reduce: exact first, then fast enough, then over the right network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..bench.nccl import NcclChoice
from ..exit_codes import Exit
from .report import AllReduceFigure, Finding, MemoryFigure


def judge_memory(figures: Sequence[MemoryFigure]) -> list[Finding]:
    findings = []
    for figure in figures:
        speed, floor = figure.gigabytes_per_second, figure.floor_gigabytes_per_second
        if not figure.exact:
            message = f"{figure.device}: a copy within its memory is not the original"
            findings.append(_fail("memory", message, Exit.DEVICE, "faulty memory", device=figure.device))
        elif floor is not None and speed < floor:
            message = f"{figure.device}: {speed:.0f} GB/s, the floor is {floor:.0f}"
            if figure.floor_warns_only:
                text = f"{message} (nothing was published for this GPU: warning only)"
                findings.append(Finding(check="memory", verdict="warning", message=text))
            else:
                cause = "a slow device, or another program on it"
                findings.append(
                    _fail("memory", message, Exit.PERFORMANCE, cause, device=figure.device, floor=floor)
                )
    if findings or not figures:
        return findings
    slowest = min(figures, key=lambda figure: figure.gigabytes_per_second)
    floors = "" if slowest.floor_gigabytes_per_second is not None else "; no floor for it"
    message = (
        f"{slowest.gigabytes_per_second:.3g} GB/s on {slowest.device}, the slowest, copied exactly{floors}"
    )
    return [Finding(check="memory", verdict="pass", message=message)]


def judge_allreduce(
    figures: Sequence[AllReduceFigure], nccl: NcclChoice | None, efa_count: int
) -> list[Finding]:
    """``efa_count``: what the instance type promises; NCCL must use them where there are any."""
    findings = [found for figure in figures if (found := _judge_size(figure))]
    if nccl is not None and efa_count > 0:
        findings += _judge_network(nccl, efa_count)
    if nccl is not None and (nccl.interface or "").startswith(("docker", "virbr", "veth")):
        message = f"NCCL meets its peers over {nccl.interface}, which leads to no other node"
        action = (
            "set NCCL_SOCKET_IFNAME to the interface of the node's address, as the agent does for workers"
        )
        findings.append(Finding(check="allreduce", verdict="warning", message=message, action=action))
    if findings or not figures:
        return findings
    best = max(figures, key=lambda figure: figure.bus_gigabytes_per_second)
    over = f" over {nccl.network}" if nccl and nccl.network else ""
    over += f", first met on {nccl.interface}" if nccl and nccl.interface else ""
    bound = best.bound_gigabytes_per_second
    held = f", {best.bus_gigabytes_per_second / bound:.0%} of its bound" if bound else ""
    message = (
        f"{best.bus_gigabytes_per_second:.3g} GB/s at {best.message_bytes >> 20} MiB among {best.ranks} ranks "
        f"({best.backend}{over}), exact{held}"
    )
    return [Finding(check="allreduce", verdict="pass", message=message)]


def _judge_size(figure: AllReduceFigure) -> Finding | None:
    where = f"{figure.message_bytes >> 20} MiB among {figure.ranks} ranks"
    speed, floor = figure.bus_gigabytes_per_second, figure.floor_gigabytes_per_second
    if not figure.exact:
        return _fail(
            "allreduce", f"{where}: the sum is wrong", Exit.DEVICE, "a faulty device, link or library"
        )
    if floor is not None and speed < floor:
        bound = figure.bound_gigabytes_per_second
        held = f"60 % of its bound of {bound:.0f}" if bound else "what any sane link reaches"
        message = f"{where}: {speed:.3g} GB/s, the floor is {floor:.3g} ({held})"
        cause = "NVLink, a NIC or NCCL's choice of them"
        return _fail("allreduce", message, Exit.PERFORMANCE, cause, floor=floor, network=figure.network)
    return None


def _judge_network(nccl: NcclChoice, efa_count: int) -> list[Finding]:
    action = (
        "see NCCL_DEBUG=INFO: is the plug-in's folder in the library path, does fi_info -p efa list devices?"
    )
    if nccl.network is None:
        message = "NCCL's log does not say which network it chose"
        return [Finding(check="allreduce", verdict="warning", message=message, action=action)]
    if not nccl.over_efa:
        by = f" ({nccl.provider})" if nccl.provider else ""
        return [
            _fail(
                "allreduce",
                f"NCCL uses {nccl.network}{by}, though {efa_count} EFA interfaces are promised",
                Exit.DRIVER,
                nccl.warning or "the plug-in aws-ofi-nccl was not found, or found no EFA device",
                action,
                network=nccl.network,
                provider=nccl.provider,
            )
        ]
    if nccl.nics is not None and nccl.nics < efa_count:
        message = f"NCCL found {nccl.nics} of {efa_count} EFA interfaces"
        return [Finding(check="allreduce", verdict="warning", message=message, action=action)]
    return []


def _fail(
    check: str, message: str, code: Exit, cause: str, action: str = "replace the node", **evidence: Any
) -> Finding:
    return Finding(
        check=check,
        verdict="fail",
        message=message,
        cause=cause,
        action=action,
        evidence={name: value for name, value in evidence.items() if value is not None},
        exit_code=code,
    )
