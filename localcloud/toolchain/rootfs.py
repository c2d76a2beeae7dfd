"""The machine image of the local cloud's nodes: a Debian with systemd and cloud-init, made once by debootstrap.

It stands for an AWS machine image: an interpreter with torch below `/opt/pytorch`, an `aws` command, nothing of this
project. Torch itself is not in it: nodes get the image environment's packages mounted read-only, so that gigabytes
are kept once. What is written here by hand is what a cloud's image has too (cloud-init's data source, the console),
each with its reason.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from . import pythons
from .running import Failed, Work
from .store import Entry, provide

LIMIT_SECONDS = 900.0
# The suite whose Python has the ABI of the packages that are mounted into it.
SUITES = {(3, 11): "bookworm"}
# cffi: without it this cloud-init stays unconfigured. kmod, udev and the like are not wanted: there is no hardware.
INCLUDED = (
    "systemd", "systemd-sysv", "dbus", "cloud-init", "python3-cffi-backend", "python3-venv", "iproute2",
    "ca-certificates", "curl", "util-linux", "procps",
)  # fmt: skip
TOOLS = {
    "debootstrap": "debootstrap",
    "systemd-nspawn": "systemd-container",
    "ip": "iproute2",
    "nft": "nftables",
    "dnsmasq": "dnsmasq-base",
}  # command -> Debian package
PYTORCH = "opt/pytorch"

AWS = f"""#!/bin/sh
exec /{PYTORCH}/bin/python3 -m awscli "$@"
"""

FILES = {
    # NoCloud hands over the very bytes of the user data; the Ec2 source asks paths that the metadata mock lacks.
    "etc/cloud/ds-identify.cfg": "policy: enabled\n",
    "etc/cloud/cloud.cfg.d/90_local.cfg": """datasource_list: [ NoCloud, None ]
network: { config: disabled }
disable_root: true
preserve_hostname: false
ssh_deletekeys: false
users: []
cloud_init_modules: [ seed_random, bootcmd, write-files, set_hostname, update_hostname ]
cloud_config_modules: [ runcmd ]
cloud_final_modules: [ scripts-per-boot, scripts-per-instance, scripts-user, final-message ]
""",
    # Everything once on the console, as an instance's serial console shows it, and once in the journal.
    "etc/systemd/system/cloud-init-local.service.d/console.conf": "[Service]\nStandardOutput=journal\n",
    "etc/systemd/system/cloud-init.service.d/console.conf": "[Service]\nStandardOutput=journal\n",
    "etc/systemd/system/cloud-config.service.d/console.conf": "[Service]\nStandardOutput=journal\n",
    "etc/systemd/system/cloud-final.service.d/console.conf": "[Service]\nStandardOutput=journal\n",
    "etc/systemd/journald.conf.d/local.conf": """[Journal]
Storage=persistent
SystemMaxUse=64M
RateLimitBurst=0
ForwardToConsole=yes
TTYPath=/dev/console
MaxLevelConsole=info
""",
    "etc/machine-id": "uninitialized\n",
    # Said once by the journal; colours and cut names are for people at a screen.
    "etc/systemd/system.conf.d/quiet.conf": "[Manager]\nShowStatus=no\n",
    "etc/hosts": "127.0.0.1 localhost\n",
}
# Nobody logs in here, and nothing upgrades itself under a training run.
MASKED = (
    "console-getty.service", "getty.target", "apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer",
    "e2scrub_all.timer", "fstrim.timer", "systemd-firstboot.service", "cloud-init-hotplugd.socket",
    "systemd-update-utmp.service", "systemd-update-utmp-runlevel.service", "systemd-timesyncd.service",
)  # fmt: skip
DROPPED = (
    "var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info",
)  # fmt: skip


def missing() -> list[str]:
    """Why this machine cannot make or run machine nodes, a short reason each; empty: it can."""
    reasons = []
    if not sys.platform.startswith("linux"):
        reasons.append("Linux")
    elif os.geteuid() != 0:
        reasons.append("root")
    reasons += [f"{command} (package {TOOLS[command]})" for command in TOOLS if shutil.which(command) is None]
    if sys.version_info[:2] not in SUITES:
        known = ", ".join(f"{major}.{minor}" for major, minor in SUITES)
        reasons.append(f"Python {known} (the image's; this is {sys.version_info[0]}.{sys.version_info[1]})")
    filesystems = Path("/proc/filesystems")
    if filesystems.exists() and "overlay" not in filesystems.read_text():
        reasons.append("overlay file systems in the kernel")
    return reasons


def entry() -> Entry:
    recipe = [*INCLUDED, *MASKED, *DROPPED, AWS]
    for name, text in FILES.items():
        recipe += [name, text]
    suite = SUITES.get((sys.version_info[0], sys.version_info[1]), "none")
    return Entry("machine", (suite, _python(), *recipe))


def _python() -> str:
    return f"python{sys.version_info[0]}.{sys.version_info[1]}"


def site_packages(root: Path) -> Path:
    """Where a node mounts the image environment's packages."""
    return root / PYTORCH / "lib" / _python() / "site-packages"


def packages() -> Path:
    """What is mounted there: torch, numpy and the AWS client, installed once for the image's interpreter."""
    return pythons.site_packages(pythons.entry("image").path)


def provide_rootfs(work: Work) -> Path:
    """Make the root file system unless it is in the cache; about a minute, as root."""
    made = entry()

    def make(folder: Path) -> None:
        if reasons := missing():
            raise Failed(f"machine nodes need {', '.join(reasons)}")
        suite = SUITES[sys.version_info[0], sys.version_info[1]]
        folder.mkdir(parents=True)
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
        command = ["debootstrap", "--variant=minbase", f"--include={','.join(INCLUDED)}", suite, str(folder)]
        work.run(command, made.log, LIMIT_SECONDS, environment)
        # Without pip, as an interpreter of its own: pip comes with the mounted packages.
        venv = ["chroot", str(folder), "/usr/bin/python3", "-m", "venv", "--without-pip", f"/{PYTORCH}"]
        work.run(venv, made.log, LIMIT_SECONDS, environment)
        _finish(folder)

    return provide(made, work, make)


def _finish(folder: Path) -> None:
    library = folder / PYTORCH / "lib"
    (library / "python3").symlink_to(_python())  # the path without a minor version that the catalog names
    aws = folder / PYTORCH / "bin" / "aws"
    aws.write_text(AWS)
    aws.chmod(0o755)
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    units = folder / "etc" / "systemd" / "system"
    for unit in MASKED:
        (units / unit).unlink(missing_ok=True)
        (units / unit).symlink_to("/dev/null")
    for name in DROPPED:
        shutil.rmtree(folder / name, ignore_errors=True)
    (folder / "var" / "cache" / "apt" / "archives" / "partial").mkdir(parents=True, exist_ok=True)
