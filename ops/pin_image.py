"""Write into the stack file which image each group's SSM parameter holds today: its id, its name and the day. Nodes
then launch with that image until the file says another.

An image that does not fit the group's profile or instance types is not written. Exit code 0: done, or nothing new;
1: an image was refused; 2: the command or the configuration; 3: no credentials.
"""

from __future__ import annotations

import datetime
import difflib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from components.catalog import image_profile, nearest
from components.settings import GpuGroupSettings, Settings
from components.settings.group_model import PinnedImage
from localcloud.toolchain import ROOT

from . import command
from .account import Account, open_account
from .doctor.images import NoImage, faults_of, resolve
from .pin_edit import CannotEdit, pin
from .refusal import EXIT_FINDINGS, EXIT_OK, Refused
from .stack_file import path_of, settings_of

COLOURS = {"+": "green", "-": "red", "@": "cyan"}


def groups_to_pin(settings: Settings, only: str | None) -> list[GpuGroupSettings]:
    """The groups whose image comes from a parameter. Raises Refused for a name that is none of them."""
    names = [group.name for group in settings.gpu_groups]
    if only is not None and only not in names:
        close = nearest(only, names)
        hint = f" (nearest match: {close})" if close else ""
        raise Refused(f"stack '{settings.stack}' has no group '{only}': it has {', '.join(names)}{hint}")
    wanted = [group for group in settings.gpu_groups if only in (None, group.name)]
    pinnable = [group for group in wanted if group.image.ssm_parameter is not None]
    if only is not None and not pinnable:
        raise Refused(f"group '{only}' names its image by amiId: there is no parameter to pin")
    return pinnable


def pin_of(account: Account, group: GpuGroupSettings, today: datetime.date) -> PinnedImage:
    """What the group's parameter holds now. Raises NoImage where it holds nothing that the group could boot from."""
    found = resolve(account, group.image, pinned=False)
    faults = faults_of(found.image, image_profile(group.image.profile), group.instance_types)
    if faults:
        raise NoImage(f"{found.ami_id} {found.image.get('Name', '')}: {'; '.join(faults)}")
    name = str(found.image.get("Name") or "without a name")
    return PinnedImage(ami_id=found.ami_id, name=name, date=today.isoformat())


def what_is_new(
    groups: Sequence[GpuGroupSettings], pins: Mapping[str, PinnedImage]
) -> dict[str, PinnedImage]:
    """Pins whose image is another than the file's: a day alone is no news."""
    held = {group.name: group.image.pinned for group in groups}
    return {
        name: pinned
        for name, pinned in pins.items()
        if (old := held[name]) is None or (old.ami_id, old.name) != (pinned.ami_id, pinned.name)
    }


def diff(path: Path, before: str, after: str) -> list[str]:
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), path.name, path.name, n=3, lineterm=""
    )
    return list(lines)


def write(path: Path, text: str) -> None:
    """In one step, so that an interruption leaves the old file or the new one."""
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    temporary.write_bytes(text.encode())
    temporary.chmod(path.stat().st_mode)
    os.replace(temporary, path)


def main(argv: Sequence[str] | None = None, project: Path = ROOT) -> int:
    parser = command.parser("pin-image", __doc__)
    parser.add_argument("--group", help="this group only")
    parser.add_argument("--json", action="store_true", help="what was pinned as one JSON document")
    asked = parser.parse_args(argv)

    def body() -> int:
        settings = settings_of(asked.stack, project)
        groups = groups_to_pin(settings, asked.group)
        account = open_account(settings)
        today = datetime.datetime.now(datetime.timezone.utc).date()
        pins: dict[str, PinnedImage] = {}
        refused: dict[str, str] = {}
        for group in groups:
            try:
                pins[group.name] = pin_of(account, group, today)
            except NoImage as why:
                refused[group.name] = str(why)
        path = path_of(asked.stack, project)
        before = path.read_bytes().decode()
        new = what_is_new(groups, pins)
        try:
            after = pin(before, new) if new else before
        except CannotEdit as why:
            raise Refused(f"{path.name} was left as it is: {why}; write image.pinned by hand") from None
        if after != before:
            write(path, after)
        _tell(asked, path, groups, pins, new, refused, diff(path, before, after))
        return EXIT_FINDINGS if refused else EXIT_OK

    return command.guarded("pin-image", body)


def _tell(
    asked: object,
    path: Path,
    groups: Sequence[GpuGroupSettings],
    pins: Mapping[str, PinnedImage],
    new: Mapping[str, PinnedImage],
    refused: Mapping[str, str],
    changed: Sequence[str],
) -> None:
    if getattr(asked, "json", False):
        rows = {
            name: {**pinned.model_dump(by_alias=True), "changed": name in new}
            for name, pinned in pins.items()
        }
        print(json.dumps({"file": path.name, "pinned": rows, "refused": dict(refused)}, indent=2))
        return
    console = Console(highlight=False)
    for line in changed:
        console.print(Text(line, COLOURS.get(line[:1], "")), soft_wrap=True)
    for group in groups:
        if group.name in refused:
            print(f"pin-image: {group.name}: not pinned: {refused[group.name]}", file=sys.stderr)
        elif group.name not in new and group.image.pinned is not None:
            held = group.image.pinned
            print(
                f"pin-image: {group.name}: {held.ami_id} of {held.date} is what the parameter holds; nothing new"
            )
    if not groups:
        print("pin-image: no group of this stack names its image by a parameter")
    if new:
        print(f"pin-image: {path.name} pins {', '.join(new)}; `make preview` shows what that changes")


if __name__ == "__main__":
    sys.exit(main())
