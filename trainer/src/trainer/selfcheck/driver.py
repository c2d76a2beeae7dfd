"""Kernel module and device files: the cheapest look at whether there are GPUs that a program may use."""

from __future__ import annotations

import re

from ..contracts.node_document import Promise
from ..exit_codes import Exit
from .report import Finding
from .view import Host

NVIDIA = "0x10de"
GPU_CLASSES = ("0x0300", "0x0302")  # VGA and 3D controllers; an NVSwitch is 0x0680
LIBRARY_FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64")


def check_driver(promise: Promise | None, host: Host) -> Finding:
    """GPUs on the bus, the kernel module, and a device file for each."""
    if promise is None or promise.accelerator == "none":
        return Finding(check="driver", verdict="info", message="does not apply: no GPU is promised")
    wanted, on_bus, files = promise.gpu_count, len(gpus_on_bus(host)), device_files(host)
    kernel = kernel_version(host)
    evidence = {"onBus": on_bus, "deviceFiles": len(files), "kernelModule": kernel or "not loaded"}
    if 0 < on_bus < wanted:
        return Finding(
            check="driver",
            verdict="fail",
            message=f"{on_bus} of {wanted} GPUs are on the PCI bus",
            cause="a GPU is missing or fell off the bus",
            action="replace the node",
            evidence=evidence,
            exit_code=Exit.DEVICE,
        )
    if kernel is None:
        return Finding(
            check="driver",
            verdict="fail",
            message="the NVIDIA kernel module is not loaded",
            cause="the image has no driver, or it was built for another kernel",
            action="use an image with a driver for this instance type; see dkms status and dmesg",
            evidence=evidence,
            exit_code=Exit.DRIVER,
        )
    missing = [name for name in ("nvidiactl", "nvidia-uvm") if not host.exists(f"/dev/{name}")]
    if len(files) < wanted or missing:
        also = f", and no /dev/{', /dev/'.join(missing)}" if missing else ""
        return Finding(
            check="driver",
            verdict="unknown",
            message=f"{len(files)} device files /dev/nvidia0... for {wanted} GPUs{also}",
            cause="nvidia-modprobe did not run, or a container was started without its devices",
            action="run nvidia-modprobe -u -c 0 as root, or give the container its GPUs",
            evidence=evidence,
            exit_code=Exit.DRIVER,
        )
    message = f"kernel module {kernel}, a device file for each of {wanted} GPUs"
    return Finding(check="driver", verdict="pass", message=message, evidence=evidence)


def check_container(promise: Promise | None, host: Host) -> Finding | None:
    """In a container only: may it still open the devices?

    After a ``systemctl daemon-reload`` the control group's device rules can forget them, while the files stay
    (nvidia-container-toolkit 48, 251, 1227). The GPUs are as good as before.
    """
    if promise is None or promise.accelerator == "none":
        return None
    runtime = container_runtime(host)
    if runtime is None:
        return Finding(check="container", verdict="info", message="does not apply: this is no container")
    refused = host.opens("/dev/nvidiactl")
    if refused is None:
        return Finding(check="container", verdict="pass", message=f"{runtime}: /dev/nvidiactl can be opened")
    return Finding(
        check="container",
        verdict="unknown",
        message=f"{runtime}: /dev/nvidiactl cannot be opened ({refused})",
        cause="the container was not given its GPUs, or a daemon-reload took them away; the GPUs may be sound",
        action="start the container again with --gpus all and --device for each /dev/nvidia*",
        evidence={"reason": refused},
        exit_code=Exit.DRIVER,
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
    folder = "/sys/bus/pci/devices"
    return [
        name
        for name in host.names(folder)
        if (host.read(f"{folder}/{name}/vendor") or "").strip() == NVIDIA
        and (host.read(f"{folder}/{name}/class") or "").strip()[:6] in classes
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
