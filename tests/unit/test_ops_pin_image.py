"""`make pin-image`: the stack file gets the image of the day and stays as it was in everything else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from components.settings.group_model import PinnedImage
from ops import pin_image
from ops.pin_edit import CannotEdit, pin
from ops.stack_file import settings_of
from tests.unit.ops_kit import GOOD, NEWER, OTHER_ROOT, PARAMETER, cloud, publish, session, write_stack

PINNED = PinnedImage(ami_id="ami-00000000000000001", name='The "image" of #1', date="2026-11-30")
LATER = PinnedImage(ami_id="ami-00000000000000002", name="two", date="2026-12-24")
PROFILE = "dlami-pytorch-ubuntu-24.04"

TEXT = f"""# Ours: do not touch.
config:
  gpu-training:region: us-east-1
  gpu-training:allowedAccountIds: ["123456789012"] # moto's
  gpu-training:network: {{availabilityZones: [us-east-1a]}}
  gpu-training:gpuGroups:
    - name: one   # the first
      instanceTypes: [g6.xlarge]
      maxNodes: 2
      efa: off
      image:
        profile: {PROFILE}
        ssmParameter: {PARAMETER} # by platform
      rootVolumeGib: 150
    - name: two
      instanceTypes: [g6.xlarge]
      maxNodes: 2
      image: {{profile: {PROFILE}, ssmParameter: {PARAMETER}}} # in one line
    - name: fixed
      instanceTypes: [g6.xlarge]
      maxNodes: 2
      image: {{profile: {PROFILE}, amiId: ami-0123456789abcdef0}}
"""
WITH_PIN = """        pinned:
          amiId: ami-00000000000000001
          name: "The \\"image\\" of #1"
          date: "2026-11-30"
"""


class TestTheText:
    def test_a_pin_comes_below_its_parameter_and_nothing_else_changes(self) -> None:
        line = f"        ssmParameter: {PARAMETER} # by platform\n"
        assert pin(TEXT, {"one": PINNED}) == TEXT.replace(line, line + WITH_PIN)

    def test_an_image_in_one_line_stays_in_one_line(self) -> None:
        edited = pin(TEXT, {"two": LATER})
        [changed] = set(edited.splitlines()) - set(TEXT.splitlines())
        assert changed == (
            f"      image: {{profile: {PROFILE}, ssmParameter: {PARAMETER}, pinned: "
            '{amiId: ami-00000000000000002, name: "two", date: "2026-12-24"}} # in one line'
        )

    def test_a_pin_that_is_there_gets_new_values_and_keeps_its_comments(self) -> None:
        old = pin(TEXT, {"one": PINNED}).replace('date: "2026-11-30"', "date: '2026-11-30' # a Monday")
        assert pin(old, {"one": LATER}) == (
            old.replace("ami-00000000000000001", "ami-00000000000000002")
            .replace('"The \\"image\\" of #1"', '"two"')
            .replace("'2026-11-30' # a Monday", '"2026-12-24" # a Monday')
        )

    def test_a_pin_of_another_shape_is_written_anew(self) -> None:
        old = TEXT.replace(
            f"ssmParameter: {PARAMETER}}}", f"ssmParameter: {PARAMETER}, pinned: {{amiId: x}}}}"
        )
        assert yaml.safe_load(pin(old, {"two": LATER})) == yaml.safe_load(pin(TEXT, {"two": LATER}))

    def test_a_file_without_a_last_line_end_and_one_with_carriage_returns(self) -> None:
        short = TEXT[: TEXT.index("      rootVolumeGib")].rstrip("\n")
        assert pin(short, {"one": PINNED}) == short + "\n" + WITH_PIN.rstrip("\n")
        dos = TEXT.replace("\n", "\r\n")
        assert pin(dos, {"one": PINNED}) == pin(TEXT, {"one": PINNED}).replace("\n", "\r\n")

    def test_groups_may_share_an_image_by_an_anchor(self) -> None:
        shared = TEXT.replace(
            "      image:\n        profile", "      image: &image\n        profile"
        ).replace(f"      image: {{profile: {PROFILE}, ssmParameter: {PARAMETER}}}", "      image: *image")
        edited = pin(shared, {"one": PINNED, "two": PINNED})
        assert edited.count("pinned:") == 1
        with pytest.raises(CannotEdit, match="shares its image with another group"):
            pin(shared, {"one": PINNED, "two": LATER})

    @pytest.mark.parametrize("group", ["three", "fixed"])
    def test_what_cannot_be_pinned_is_said(self, group: str) -> None:
        with pytest.raises(CannotEdit):
            pin(TEXT, {group: PINNED})

    @given(
        st.text(st.characters(min_codepoint=32, max_codepoint=0x2FFF, exclude_categories=["Cs"]), min_size=1)
    )
    def test_any_name_of_an_image_is_read_back_as_it_is(self, name: str) -> None:
        edited = pin(TEXT, {"one": PINNED.model_copy(update={"name": name})})
        group = yaml.safe_load(edited)["config"]["gpu-training:gpuGroups"][0]
        assert group["image"]["pinned"]["name"] == name


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A stack file, and an account whose parameter holds an image."""
    path = write_stack(tmp_path, TEXT)
    with cloud(monkeypatch):
        publish(GOOD)
        yield path


def run(bench: Path, *more: str) -> int:
    return pin_image.main(["--stack", "dev", *more], bench.parent)


def pins(bench: Path) -> dict[str, str | None]:
    groups = settings_of("dev", bench.parent).gpu_groups
    return {group.name: group.image.pinned.ami_id if group.image.pinned else None for group in groups}


class TestTheCommand:
    def test_pins_every_group_with_a_parameter_shows_the_difference_and_then_has_nothing_to_do(
        self, bench: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        publish(NEWER)
        assert run(bench) == 0
        assert pins(bench) == {"one": NEWER, "two": NEWER, "fixed": None}
        told = capsys.readouterr().out
        assert f"+          amiId: {NEWER}" in told and "pins one, two; `make preview`" in told
        once = bench.read_bytes()
        assert run(bench) == 0
        assert bench.read_bytes() == once and "nothing new" in capsys.readouterr().out

    def test_one_group_only(self, bench: Path) -> None:
        assert run(bench, "--group", "two") == 0
        assert [name for name, ami in pins(bench).items() if ami] == ["two"]

    def test_a_new_image_replaces_the_pinned_one(self, bench: Path) -> None:
        run(bench)
        publish(NEWER)
        assert run(bench, "--group", "one") == 0
        assert pins(bench) == {"one": NEWER, "two": GOOD, "fixed": None}

    def test_an_image_that_does_not_fit_the_profile_is_not_written(
        self, bench: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        publish(OTHER_ROOT)
        before = bench.read_bytes()
        assert run(bench) == 1
        assert bench.read_bytes() == before
        assert "one: not pinned: ami-" in (err := capsys.readouterr().err) and "/dev/xvda" in err

    def test_a_parameter_that_is_not_there(self, bench: Path, capsys: pytest.CaptureFixture[str]) -> None:
        session().client("ssm").delete_parameter(Name=PARAMETER)
        assert run(bench) == 1
        assert f"there is no parameter {PARAMETER} in us-east-1" in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("group", "words"),
        [("on", "has no group 'on': it has one, two, fixed"), ("fixed", "names its image by amiId")],
    )
    def test_a_group_that_cannot_be_pinned(
        self, bench: Path, group: str, words: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(bench, "--group", group) == 2
        assert words in capsys.readouterr().err

    def test_json_says_what_was_pinned_and_what_is_new(
        self, bench: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(bench, "--json", "--group", "one") == 0
        first = json.loads(capsys.readouterr().out)
        assert first["file"] == "Pulumi.dev.yaml" and first["pinned"]["one"]["changed"] is True
        run(bench, "--json", "--group", "one")
        assert json.loads(capsys.readouterr().out)["pinned"]["one"]["changed"] is False
