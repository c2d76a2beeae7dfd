"""The fabric manager on machines with NVSwitches: without it CUDA ends in error 802, and it may take minutes.

It is waited for, not started: started while the boot is still under way it gives up after 30 s of its own (ci-infra
PR 552 of PyTorch), while systemd's order works. Its version must be the driver's (gpu-operator 544).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from ..contracts.node_document import Promise
from ..exit_codes import Exit
from .driver import nvswitches_on_bus
from .report import Finding, fail, info, passed
from .view import Host

UNIT = "nvidia-fabricmanager"
WAIT_SECONDS, PAUSE_SECONDS = 180.0, 2.0
# EC2's types with eight of these have NVSwitches; from Blackwell on the switches are no PCI devices of their own kind.
SWITCHED_MODELS = frozenset({"a100", "h100", "h200", "b200", "b300"})
WHY = {
    "failed": "the service failed",
    "inactive": "the service was not started",
    "activating": "the service is still starting",
    "unknown": "the service is not installed",
}


def has_nvswitch(promise: Promise | None, host: Host) -> bool:
    if nvswitches_on_bus(host) or host.exists("/dev/nvidia-nvswitchctl"):
        return True
    if promise is None or promise.accelerator == "none" or promise.gpu_count < 8:
        return False
    return bool(SWITCHED_MODELS & set((promise.gpu_model or "").lower().split()))


def check_fabric(
    promise: Promise | None,
    host: Host,
    states: Callable[[], Sequence[str | None]],
    driver: str | None,
    wait_seconds: float = WAIT_SECONDS,
) -> Finding:
    """Waits up to three minutes. ``states``: each GPU's fabric state by NVML, None where it has none."""
    if not has_nvswitch(promise, host):
        return info("fabric", "does not apply: no NVSwitch is promised or there")
    began = host.clock()
    while (why := _missing(unit_state(host), told := states())) is not None:
        if host.clock() - began >= wait_seconds:
            return _bad(f"not ready after {wait_seconds:.0f} s: {why}", why)
        host.sleep(PAUSE_SECONDS)
    waited = host.clock() - began
    version = manager_version(host)
    if version and driver and version != driver:
        todo = "install the fabric manager of the driver's version"
        return _bad(f"its version is {version}, the driver's {driver}", "an upgrade of one of them", todo)
    if unit_state(host) is None and not any(told):
        return info("fabric", "cannot be seen here: no systemd, and NVML tells nothing")
    after = f" after {waited:.0f} s" if waited >= PAUSE_SECONDS else ""
    return passed("fabric", f"fabric manager {version or 'version unknown'}, ready{after}")


def _missing(word: str | None, states: Sequence[str | None]) -> str | None:
    """What is not ready, in words; ``word`` is systemd's."""
    waiting = [str(index) for index, state in enumerate(states) if state not in (None, "completed")]
    if waiting:
        return f"GPU {', '.join(waiting)} not registered with the fabric ({states[int(waiting[0])]})"
    return None if word in (None, "active") or any(states) else WHY.get(word or "", f"the service is {word}")


def unit_state(host: Host) -> str | None:
    """systemd's word for the service; None where systemd does not run, as in most containers."""
    asked = host.run("systemctl", "is-active", UNIT)
    word = asked.output.strip() if asked else ""
    return word if word in (*WHY, "active", "reloading", "deactivating") else None


def _bad(message: str, cause: str, todo: str | None = None) -> Finding:
    todo = (
        todo or f"see systemctl status {UNIT} and journalctl -u {UNIT}; let systemd start it, not user data"
    )
    cause = f"{cause}; CUDA then ends in error 802"
    return fail("fabric", f"fabric manager: {message}", cause, todo, Exit.DRIVER)


def manager_version(host: Host) -> str | None:
    asked = host.run("nv-fabricmanager", "--version")
    match = re.search(r"(\d+\.\d+(?:\.\d+)?)", asked.output) if asked else None
    return match[1] if match else None
