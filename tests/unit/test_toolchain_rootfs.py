"""What a machine node's image needs of this machine, and by what its place in the cache is named."""

from __future__ import annotations

import os
import shutil

import pytest

from localcloud.toolchain import paths, rootfs


@pytest.fixture(autouse=True)
def everything_there(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(rootfs.sys, "version_info", (3, 11, 7))


def test_root_with_the_tools_can_make_it():
    assert rootfs.missing() == []


def test_nobody_but_root_can(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert rootfs.missing() == ["root"]


def test_a_missing_tool_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "systemd-nspawn" else name)
    assert rootfs.missing() == ["systemd-nspawn (package systemd-container)"]


def test_an_interpreter_of_another_abi_than_the_image_s_cannot(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rootfs.sys, "version_info", (3, 12, 1))
    assert rootfs.missing() == ["Python 3.11 (the image's; this is 3.12)"]


@pytest.mark.parametrize("change", ["INCLUDED", "MASKED", "AWS"])
def test_every_part_of_the_recipe_is_in_its_name(monkeypatch: pytest.MonkeyPatch, change: str):
    before = rootfs.entry().path
    value = getattr(rootfs, change)
    monkeypatch.setattr(rootfs, change, f"{value}#" if isinstance(value, str) else (*value, "x"))
    assert rootfs.entry().path != before


def test_a_changed_file_of_the_image_gives_another_one(monkeypatch: pytest.MonkeyPatch):
    before = paths().machine_root
    monkeypatch.setitem(rootfs.FILES, "etc/hosts", "127.0.0.1 elsewhere\n")
    assert paths().machine_root != before
