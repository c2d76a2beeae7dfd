"""Kernel module and device files: the cheapest look at whether there are GPUs that a program may use."""

from __future__ import annotations

import re

from ..contracts.node_document import Promise
from ..exit_codes import Exit
from .report import REPLACE, Finding, fail, info, passed, unknown
from .view import Host

BUS = "/sys/bus/pci/devices"
NVIDIA = "0x10de"
GPU_CLASSES = ("0x0300", "0x0302")  # VGA and 3D controllers; an NVSwitch is 0x0680
LIBRARY_FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64")


def check_driver(promise: Promise | None, host: Host) -> Finding:
    """GPUs on the bus, the kernel module, and a device file for each."""
    if promise is None or promise.accelerator == "none":
        return info("driver", "does not apply: no GPU is promised")
    wanted, on_bus, files = promise.gpu_count, len(gpus_on_bus(host)), device_files(host)
    kernel = kernel_version(host)
    evidence = {"onBus": on_bus, "deviceFiles": len(files), "kernelModule": kernel or "not loaded"}
    if on_bus < wanted and host.names(BUS):  # a bus that cannot be seen says nothing
        message = f"{on_bus} of {wanted} GPUs are on the PCI bus"
        cause = "a GPU is missing or fell off the bus, or this is another instance type than the document's"
        return fail("driver", message, cause, REPLACE, Exit.DEVICE, **evidence)
    if kernel is None:
        return fail(
            "driver",
            "the NVIDIA kernel module is not loaded",
            "the image has no driver, or it was built for another kernel",
            "use an image with a driver for this instance type; see dkms status and dmesg",
            Exit.DRIVER,
            **evidence,
        )
    missing = [name for name in ("nvidiactl", "nvidia-uvm") if not host.exists(f"/dev/{name}")]
    if len(files) < wanted or missing:
        also = f", and no /dev/{', /dev/'.join(missing)}" if missing else ""
        return unknown(
            "driver",
            f"{len(files)} device files /dev/nvidia0... for {wanted} GPUs{also}",
            "nvidia-modprobe did not run, or a container was started without its devices",
            "run nvidia-modprobe -u -c 0 as root, or give the container its GPUs",
            Exit.DRIVER,
            **evidence,
        )
    return passed("driver", f"kernel module {kernel}, a device file for each of {wanted} GPUs", **evidence)


def check_container(promise: Promise | None, host: Host) -> Finding | None:
    """In a container only: may it still open the devices?

    After a ``systemctl daemon-reload`` the control group's device rules can forget them, while the files stay
    (nvidia-container-toolkit 48, 251, 1227). The GPUs are as good as before.
    """
    if promise is None or promise.accelerator == "none":
        return None
    runtime = container_runtime(host)
    if runtime is None:
        return info("container", "does not apply: this is no container")
    refused = host.opens("/dev/nvidiactl")
    if refused is None:
        return passed("container", f"{runtime}: /dev/nvidiactl can be opened")
    return unknown(
        "container",
        f"{runtime}: /dev/nvidiactl cannot be opened ({refused})",
        "the container was not given its GPUs, or a daemon-reload took them away; the GPUs may be sound",
        "start the container again with --gpus all and --device for each /dev/nvidia*",
        Exit.DRIVER,
        reason=refused,
    )


def container_runtime(host: Host) -> str | None:
    """The runtime's name where this is a container, as far as it shows."""
    if host.exists("/.dockerenv"):
        return "docker"
    if host.exists("/run/.containerenv"):
        return "podman"
    named = host.read("/run/systemd/container")
    return named.strip() if named and named.strip() else host.environment.get("container") or None


def gpus_on_bus(host: Host) -> list[str]:
    """PCI addresses of NVIDIA's GPUs; empty also where sysfs cannot be read."""
    return _on_bus(host, GPU_CLASSES)


def nvswitches_on_bus(host: Host) -> list[str]:
    return _on_bus(host, ("0x0680",))


def _on_bus(host: Host, classes: tuple[str, ...]) -> list[str]:
    return [
        name
        for name in host.names(BUS)
        if (host.read(f"{BUS}/{name}/vendor") or "").strip() == NVIDIA
        and (host.read(f"{BUS}/{name}/class") or "").strip()[:6] in classes
    ]


def device_files(host: Host) -> list[str]:
    return [name for name in host.names("/dev") if re.fullmatch(r"nvidia\d+", name)]


def kernel_version(host: Host) -> str | None:
    """Of the loaded module; None: none is loaded."""
    text = host.read("/proc/driver/nvidia/version") or ""
    match = re.search(r"Kernel Module.*?\s(\d+\.\d+(?:\.\d+)?)\s", text)
    return match[1] if match else (host.read("/sys/module/nvidia/version") or "").strip() or None


def library_version(host: Host, library: str = "libnvidia-ml.so") -> str | None:
    """Of the library on disk, which is the new one after an upgrade without a reboot."""
    for folder in LIBRARY_FOLDERS:
        for name in host.names(folder):
            match = re.fullmatch(rf"{re.escape(library)}\.(\d+\.\d+(?:\.\d+)?)", name)
            if match:
                return match[1]
    return None


def mismatch(host: Host) -> str:
    """Both versions in words, for whoever finds that they differ."""
    return f"kernel module {kernel_version(host) or 'unknown'}, library {library_version(host) or 'unknown'}"
