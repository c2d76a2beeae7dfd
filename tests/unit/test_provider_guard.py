"""The stand-in realises nothing but an allowed stack, in a backend under the local root, at a loopback address."""

from __future__ import annotations

from pathlib import Path

import pytest

from localcloud.provider.guard import Refused, Standing, admit

LOCAL = {
    "GPU_TRAINING_STANDIN_MODE": "local",
    "GPU_TRAINING_LOCAL_ROOT": "/srv/project/.local",
    "GPU_TRAINING_LOCAL_ENDPOINT": "http://127.0.0.1:5000",
    "PULUMI_BACKEND_URL": "file:///srv/project/.local/pulumi",
}


def without(name: str) -> dict[str, str]:
    return {key: value for key, value in LOCAL.items() if key != name}


def test_the_local_stack_in_its_own_place_is_realised() -> None:
    assert admit("local", LOCAL) == Standing(realises=True, endpoint="http://127.0.0.1:5000")


@pytest.mark.parametrize("endpoint", ["http://127.9.8.7:1", "http://[::1]:5000", "http://localhost:5000"])
def test_every_loopback_address_will_do(endpoint: str) -> None:
    assert admit("local", {**LOCAL, "GPU_TRAINING_LOCAL_ENDPOINT": endpoint}).realises


@pytest.mark.parametrize("stack", ["local", "prod", "anything"])
def test_a_preview_is_given_for_any_stack_and_realises_nothing(stack: str) -> None:
    assert admit(stack, {"GPU_TRAINING_STANDIN_MODE": "preview"}) == Standing(realises=False)


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({}, "GPU_TRAINING_STANDIN_MODE is not set"),
        ({"GPU_TRAINING_STANDIN_MODE": "guess"}, "GPU_TRAINING_STANDIN_MODE is guess"),
        (without("GPU_TRAINING_LOCAL_ROOT"), "GPU_TRAINING_LOCAL_ROOT is not set"),
        (without("PULUMI_BACKEND_URL"), "PULUMI_BACKEND_URL is not set"),
        (without("GPU_TRAINING_LOCAL_ENDPOINT"), "GPU_TRAINING_LOCAL_ENDPOINT is not set"),
        ({**LOCAL, "PULUMI_BACKEND_URL": "https://api.pulumi.com"}, "must be file://"),
        ({**LOCAL, "PULUMI_BACKEND_URL": "s3://state"}, "must be file://"),
        ({**LOCAL, "PULUMI_BACKEND_URL": "s3:///srv/project/.local/pulumi"}, "must be file://"),
        ({**LOCAL, "PULUMI_BACKEND_URL": "file://~"}, "must be file://"),
        ({**LOCAL, "PULUMI_BACKEND_URL": "file:///home/someone"}, "lies outside /srv/project/.local"),
        (
            {**LOCAL, "PULUMI_BACKEND_URL": "file:///srv/project/.local/../elsewhere"},
            "lies outside /srv/project/.local",
        ),
        ({**LOCAL, "PULUMI_BACKEND_URL": "file:///srv/project/.local-too"}, "lies outside"),
        (
            {**LOCAL, "GPU_TRAINING_LOCAL_ENDPOINT": "https://ec2.eu-west-1.amazonaws.com"},
            "not on a loopback",
        ),
        ({**LOCAL, "GPU_TRAINING_LOCAL_ENDPOINT": "http://10.0.0.1:5000"}, "not on a loopback"),
        ({**LOCAL, "GPU_TRAINING_LOCAL_ENDPOINT": "http://0.0.0.0:5000"}, "not on a loopback"),
        ({**LOCAL, "GPU_TRAINING_LOCAL_ENDPOINT": "http://127.0.0.1.example.com"}, "not on a loopback"),
    ],
)
def test_anything_else_is_refused_with_the_reason(environ: dict[str, str], said: str) -> None:
    with pytest.raises(Refused, match=said):
        admit("local", environ)


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(Refused, match=r"GPU_TRAINING_LOCAL_ROOT.*GPU_TRAINING_LOCAL_ENDPOINT"):
        admit("local", {"GPU_TRAINING_STANDIN_MODE": "local"})


def test_another_stack_is_refused_and_told_what_to_do() -> None:
    with pytest.raises(
        Refused, match=r"realises only the stack local, and this is prod.*make preview STACK=prod"
    ):
        admit("prod", LOCAL)


def test_more_stacks_can_be_allowed() -> None:
    assert admit("review", {**LOCAL, "GPU_TRAINING_LOCAL_STACKS": "local, review"}).realises


def test_a_backend_that_a_link_leads_out_of_the_root_is_refused(tmp_path: Path) -> None:
    root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
    root.mkdir()
    elsewhere.mkdir()
    (root / "state").symlink_to(elsewhere)
    environ = {**LOCAL, "GPU_TRAINING_LOCAL_ROOT": str(root), "PULUMI_BACKEND_URL": f"file://{root}/state"}
    with pytest.raises(Refused, match="lies outside"):
        admit("local", environ)
