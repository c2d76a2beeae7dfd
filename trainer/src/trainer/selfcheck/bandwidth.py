"""Verdicts on memory bandwidth and on the all-reduce: exact first, then fast enough, then over the right network."""

from __future__ import annotations

from collections.abc import Sequence

from ..bench.nccl import NcclChoice
from ..exit_codes import Exit
from .report import REPLACE, AllReduceFigure, Finding, MemoryFigure, fail, passed, warning


def judge_memory(figures: Sequence[MemoryFigure]) -> list[Finding]:
    findings = []
    for figure in figures:
        device, speed, floor = figure.device, figure.gigabytes_per_second, figure.floor_gigabytes_per_second
        message = f"{device}: {speed:.0f} GB/s"
        if not figure.exact:
            message = f"{device}: a copy within its memory is not the original"
            findings.append(fail("memory", message, "faulty memory", REPLACE, Exit.DEVICE, device=device))
        elif floor is not None and speed < floor:
            message, evidence = f"{message}, the floor is {floor:.0f}", {"device": device, "floor": floor}
            cause = "a slow device, or another program on it"
            if figure.floor_warns_only:
                message += " (nothing was published for this GPU: warning only)"
                findings.append(warning("memory", message, cause, **evidence))
            else:
                findings.append(fail("memory", message, cause, REPLACE, Exit.PERFORMANCE, **evidence))
    if findings or not figures:
        return findings
    slowest = min(figures, key=lambda figure: figure.gigabytes_per_second)
    floors = "" if slowest.floor_gigabytes_per_second is not None else "; no floor for it"
    speed = f"{slowest.gigabytes_per_second:.3g} GB/s"
    return [passed("memory", f"{speed} on {slowest.device}, the slowest, copied exactly{floors}")]


def judge_allreduce(
    figures: Sequence[AllReduceFigure], nccl: NcclChoice | None, efa_count: int
) -> list[Finding]:
    """``efa_count``: what the instance type promises; NCCL must use them where there are any.

    ``nccl`` None: its log is not to be had, or it was gloo.
    """
    findings = [found for figure in figures if (found := _judge_size(figure))]
    if efa_count > 0 and any(figure.backend == "nccl" for figure in figures):
        findings += _judge_network(nccl or NcclChoice(), efa_count)
    interface = (nccl.interface if nccl else None) or ""
    if interface.startswith(("docker", "virbr", "veth")):
        message = f"NCCL meets its peers over {interface}, which leads to no other node"
        todo = "set NCCL_SOCKET_IFNAME to the interface of the node's address, as the agent does for workers"
        findings.append(warning("allreduce", message, None, todo))
    if findings or not figures:
        return findings
    best = max(figures, key=lambda figure: figure.bus_gigabytes_per_second)
    over = f" over {nccl.network}" if nccl and nccl.network else ""
    over += f", first met on {interface}" if interface else ""
    bound = best.bound_gigabytes_per_second
    held = f", {best.bus_gigabytes_per_second / bound:.0%} of its bound" if bound else ""
    message = (
        f"{best.bus_gigabytes_per_second:.3g} GB/s at {best.message_bytes >> 20} MiB among {best.ranks} ranks "
        f"({best.backend}{over}), exact{held}"
    )
    return [passed("allreduce", message)]


def _judge_size(figure: AllReduceFigure) -> Finding | None:
    where = f"{figure.message_bytes >> 20} MiB among {figure.ranks} ranks"
    speed, floor = figure.bus_gigabytes_per_second, figure.floor_gigabytes_per_second
    if not figure.exact:
        cause = "a faulty device, link or library"
        return fail("allreduce", f"{where}: the sum is wrong", cause, REPLACE, Exit.DEVICE)
    if floor is None or speed >= floor:
        return None
    bound = figure.bound_gigabytes_per_second
    held = f"60 % of its bound of {bound:.0f}" if bound else "what any sane link reaches"
    message = f"{where}: {speed:.3g} GB/s, the floor is {floor:.3g} ({held})"
    cause, evidence = "NVLink, a NIC or NCCL's choice of them", {"floor": floor, "network": figure.network}
    return fail("allreduce", message, cause, REPLACE, Exit.PERFORMANCE, **evidence)


def _judge_network(nccl: NcclChoice, efa_count: int) -> list[Finding]:
    todo = (
        "see NCCL_DEBUG=INFO: is the plug-in's folder in the library path, does fi_info -p efa list devices?"
    )
    if nccl.network is None:
        message = "NCCL's log does not say which network it chose"
        return [warning("allreduce", message, None, todo)]
    if not nccl.over_efa:
        by = f" ({nccl.provider})" if nccl.provider else ""
        message = f"NCCL uses {nccl.network}{by}, though {efa_count} EFA interfaces are promised"
        cause = nccl.warning or "the plug-in aws-ofi-nccl was not found, or found no EFA device"
        evidence = {"network": nccl.network, "provider": nccl.provider}
        return [fail("allreduce", message, cause, todo, Exit.DRIVER, **evidence)]
    if nccl.nics is not None and nccl.nics < efa_count:
        message = f"NCCL found {nccl.nics} of {efa_count} EFA interfaces"
        return [warning("allreduce", message, None, todo)]
    return []
