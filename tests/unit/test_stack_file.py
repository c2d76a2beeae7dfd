"""Stack files without their secrets: whatever the text looks like, only the secrets change."""

from __future__ import annotations

import pytest
import yaml

from localcloud.engine.stack_file import PLACEHOLDER, without_secrets
from localcloud.toolchain import ROOT


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("secretsprovider: awskms://alias/x\nconfig: {a: on}\n", "\nconfig: {a: on}\n"),
        ("config: {}\nencryptionsalt: v1:x\n", "config: {}\n\n"),
        ('encryptedkey: "ab\n  cd"\nconfig: {}\n', "\nconfig: {}\n"),
        ("config:\n  a:\n    secure: x\n  b: 1\n", f"config:\n  a:\n    {PLACEHOLDER}\n  b: 1\n"),
        ("config:\n  a: {secure: x} # why\n", f"config:\n  a: {PLACEHOLDER} # why\n"),
        (
            "config:\n  a:\n    secure: x\n\n# about b\n  b: off\n",
            f"config:\n  a:\n    {PLACEHOLDER}\n\n# about b\n  b: off\n",
        ),
        ("config:\n  a:\n  - b:\n      secure: x\n", f"config:\n  a:\n  - b:\n      {PLACEHOLDER}\n"),
        ("config:\n  a: {secure: x, more: y}\n", "config:\n  a: {secure: x, more: y}\n"),
        ("config:\n  secretsprovider: mine\n", "config:\n  secretsprovider: mine\n"),
        ("", ""),
    ],
)
def test_only_secrets_change(before: str, after: str):
    assert without_secrets(before) == after


@pytest.mark.parametrize("path", sorted(ROOT.glob("Pulumi.*.yaml")), ids=lambda path: path.name)
def test_our_stack_files_keep_their_configuration(path):
    text = path.read_text()
    changed = without_secrets(text)
    before, after = (yaml.load(each, Loader=yaml.BaseLoader) for each in (text, changed))
    assert set(after) == {"config"}
    assert set(after["config"]) == set(before["config"])
    assert "secure:" not in changed


def test_what_is_no_yaml_is_refused():
    with pytest.raises(yaml.YAMLError):
        without_secrets("config: [")
