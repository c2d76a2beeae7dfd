"""Who may be realised: the checks that stand before the first resource of a stand-in's run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import unquote, urlsplit

MODE = "GPU_TRAINING_STANDIN_MODE"
ROOT = "GPU_TRAINING_LOCAL_ROOT"
ENDPOINT = "GPU_TRAINING_LOCAL_ENDPOINT"
STACKS = "GPU_TRAINING_LOCAL_STACKS"
BACKEND = "PULUMI_BACKEND_URL"


class Refused(Exception):
    """The stand-in must not be used here; the message says why and what to do."""


@dataclass(frozen=True)
class Standing:
    """How this process was started. `endpoint` is set in local mode only."""

    realises: bool
    endpoint: str | None = None


def standing(environ: Mapping[str, str] = os.environ) -> Standing:
    """The mode from the environment. Raises Refused where none, or one without its conditions, was chosen."""
    mode = environ.get(MODE)
    if mode == "preview":
        return Standing(realises=False)
    if mode != "local":
        raise Refused(
            f"this is the stand-in provider plugin, and {MODE} is {mode or 'not set'} (preview or local): "
            "use `make preview` or `make up`; for an AWS account take the stand-in's folder off your PATH"
        )
    faults = [fault for fault in (_backend_fault(environ), _endpoint_fault(environ)) if fault]
    if faults:
        raise Refused("the stand-in provider creates nothing: " + "; ".join(faults))
    return Standing(realises=True, endpoint=environ[ENDPOINT])


def admit(stack: str, environ: Mapping[str, str] = os.environ) -> Standing:
    """`standing`, and in local mode the stack must be one that may be realised."""
    how = standing(environ)
    allowed = [name.strip() for name in environ.get(STACKS, "local").split(",") if name.strip()]
    if how.realises and stack not in allowed:
        raise Refused(
            f"the stand-in provider realises only the stack {', '.join(allowed)}, and this is {stack}: bring "
            f"up {stack} with the official AWS plugin and credentials, or look at it with "
            f"`make preview STACK={stack}`"
        )
    return how


def _backend_fault(environ: Mapping[str, str]) -> str | None:
    root, backend = environ.get(ROOT), environ.get(BACKEND, "")
    if not root:
        return f"{ROOT} is not set (the folder that holds the local cloud's state)"
    url = urlsplit(backend)
    if url.scheme != "file" or not unquote(url.netloc + url.path).startswith("/"):
        return f"{BACKEND} is {backend or 'not set'} (it must be file:// and an absolute path below {root})"
    if not Path(unquote(url.path)).resolve().is_relative_to(Path(root).resolve()):
        return f"{BACKEND} {backend} lies outside {root}"
    return None


def _endpoint_fault(environ: Mapping[str, str]) -> str | None:
    endpoint = environ.get(ENDPOINT)
    if not endpoint:
        return f"{ENDPOINT} is not set (the URL of the AWS emulation)"
    host = urlsplit(endpoint).hostname or ""
    if host == "localhost":
        return None
    try:
        loopback = ip_address(host).is_loopback
    except ValueError:
        loopback = False
    return None if loopback else f"{ENDPOINT} {endpoint} is not on a loopback address"
