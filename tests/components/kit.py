"""Runs components under mocks and keeps every registration as the engine would have got it.

Pulumi's mocks alone accept two resources of one name, values of a wrong type, and a component that never
finished. The recording keeps the raw requests, which tell: parent, provider, protection, dependencies,
secrets.
"""

from __future__ import annotations

import gc
import json
import runpy
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict
from pulumi.runtime import mocks, set_all_config, settings
from pulumi.runtime.stack import Stack

from tests.unit.stack_files import mapping_of

ROOT = Path(__file__).parents[2]
PROJECT = "gpu-training"
STACK_TYPE = "pulumi:pulumi:Stack"
SIGNATURE = "4dabf18193072939515e22adb298388d"  # the engine's mark of a value that is not plain
SECRET = "1b47061264138c4ac30d75fd1eb44270"
UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"  # the engine's text for a value not known at preview

# What a provider adds to the inputs, by type: only what some other resource reads.
OUTPUTS: dict[str, Callable[[str, Mapping[str, Any]], dict[str, Any]]] = {
    "aws:ec2/launchTemplate:LaunchTemplate": lambda name, inputs: {"latestVersion": 7},
    "aws:ec2/vpcEndpoint:VpcEndpoint": lambda name, inputs: {"prefixListId": f"pl-{name}"},
    "aws:kms/key:Key": lambda name, inputs: {"keyId": f"{name}-key-id"},
    "aws:iam/role:Role": lambda name, inputs: {"name": inputs.get("name", f"{name}-1a2b3c4")},
}


@dataclass(frozen=True)
class Registered:
    """One registration. ``inputs`` has secrets unwrapped; ``secrets`` are the paths where they were marked."""

    type: str
    name: str
    urn: str
    parent: str
    inputs: dict[str, Any]
    secrets: frozenset[str]
    unknowns: frozenset[str]
    request: Any = field(repr=False)

    @property
    def is_component(self) -> bool:
        return not self.request.custom and self.type != STACK_TYPE

    @property
    def depends_on(self) -> set[str]:
        """The names of the resources it was told to wait for, or takes a value from."""
        return {urn.rpartition("::")[2] for urn in self.request.dependencies}

    def policy(self, key: str = "policy") -> list[dict[str, Any]]:
        """The statements of an IAM policy among the inputs."""
        return json.loads(self.inputs[key])["Statement"]


@dataclass
class Recording:
    """All registrations of one run, by type and name and never by order, which is not fixed."""

    resources: list[Registered] = field(default_factory=list)
    finished: set[str] = field(default_factory=set)  # URNs whose outputs were registered
    calls: list[tuple[str, str]] = field(default_factory=list)  # token and provider of each invoke
    outputs: dict[str, Any] = field(default_factory=dict)  # the stack's own

    def of_type(self, type_: str) -> list[Registered]:
        return [resource for resource in self.resources if resource.type == type_]

    def one(self, type_: str, name: str | None = None) -> Registered:
        """The only resource of the type, or the one of that name; fails when there is none or more than one."""
        found = [r for r in self.of_type(type_) if name is None or r.name == name]
        assert len(found) == 1, (
            f"{len(found)} of {type_} {name or ''}: {[r.name for r in self.of_type(type_)]}"
        )
        return found[0]

    def custom(self) -> list[Registered]:
        return [resource for resource in self.resources if resource.request.custom]

    def under(self, component: Registered) -> list[Registered]:
        """Children of a component and theirs."""
        children = [r for r in self.resources if r.parent == component.urn]
        return [found for child in children for found in [child, *self.under(child)]]

    def urn_lines(self) -> list[str]:
        """Type and name of each resource with those of its parents: what a URN says and a rename changes."""
        by_urn = {resource.urn: resource for resource in self.resources}
        # Without the stack itself, which the mocks do not register anew for each run.
        ours = [resource for resource in self.resources if resource.type != STACK_TYPE]
        return sorted(f"{_path(resource, by_urn)} {resource.name}" for resource in ours)

    def assert_sound(self) -> None:
        """What must hold for each run: no URN twice, every component finished, no orphan below the stack."""
        twice = [
            key
            for key, count in Counter((r.type, r.name, r.parent) for r in self.resources).items()
            if count > 1
        ]
        assert not twice, f"registered twice: {twice}"
        unfinished = [r.name for r in self.resources if r.is_component and r.urn not in self.finished]
        assert not unfinished, f"register_outputs is missing: {unfinished}"
        components = {r.urn for r in self.resources if r.is_component}
        orphans = [
            r.name
            for r in self.custom()
            if r.parent not in components and not r.type.startswith("pulumi:providers:")
        ]
        assert not orphans, f"not the child of a component: {orphans}"
        misnamed = [
            r.name
            for r in self.custom()
            for parent in self.resources
            if parent.is_component and r.parent == parent.urn and not r.name.startswith(f"{parent.name}-")
        ]
        assert not misnamed, f"not named after the parent: {misnamed}"


class _Mocks(mocks.Mocks):
    def __init__(self, recording: Recording, preview: bool) -> None:
        self._recording, self._preview = recording, preview

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str | None, dict[str, Any]]:
        if self._preview:
            return None, args.inputs
        added = {"arn": f"arn:aws:mock:us-east-1:123456789012:{args.name}", "name": args.name}
        added |= OUTPUTS[args.typ](args.name, args.inputs) if args.typ in OUTPUTS else {}
        # The id of a bucket is its name; nearly all others have one of their own.
        return args.inputs.get("bucket", f"{args.name}-id"), {**added, **args.inputs}

    def call(self, args: mocks.MockCallArgs) -> tuple[dict[str, Any], None]:
        raise AssertionError(f"the program looks something up: {args.token}")


class _Monitor(mocks.MockMonitor):
    def __init__(self, recording: Recording, preview: bool) -> None:
        super().__init__(_Mocks(recording, preview))
        self._recording = recording

    def RegisterResource(self, request: Any) -> Any:
        response = super().RegisterResource(request)
        # Not the SDK's own reader: it moves the marks of secrets up to the outermost property.
        inputs = MessageToDict(request.object)
        marks: dict[str, set[str]] = {"secret": set(), "unknown": set()}
        plain = _unwrap(inputs, "", marks)
        self._recording.resources.append(
            Registered(
                request.type,
                request.name,
                response.urn,
                request.parent,
                plain,
                frozenset(marks["secret"]),
                frozenset(marks["unknown"]),
                request,
            )
        )
        return response

    def RegisterResourceOutputs(self, request: Any) -> Any:
        self._recording.finished.add(request.urn)
        return super().RegisterResourceOutputs(request)

    def Invoke(self, request: Any) -> Any:
        self._recording.calls.append((request.tok, request.provider))
        return super().Invoke(request)


def record(program: Callable[[], object], stack: str = "test", preview: bool = False) -> Recording:
    """Run what declares resources and wait until every registration is through; its exceptions come out."""
    recording = Recording()
    monitor = _Monitor(recording, preview)
    mocks.set_mocks(monitor.mocks, PROJECT, stack, preview, monitor=monitor)
    root = settings.get_root_resource()
    assert isinstance(root, Stack)
    root.outputs = {}

    def declare() -> None:
        program()

    mocks.test(declare)()
    recording.outputs = dict(root.outputs)
    return recording


def record_program(stack: str, config: Mapping[str, Any], preview: bool = False) -> Recording:
    """Run `__main__.py` with a stack file's values for our namespace."""
    flat = {
        f"{PROJECT}:{key}": value if isinstance(value, str) else json.dumps(value)
        for key, value in config.items()
    }
    set_all_config(flat)
    try:
        return record(lambda: runpy.run_path(str(ROOT / "__main__.py")), stack, preview)
    finally:
        set_all_config({})
        gc.enable()  # the program turns it off for its own short life, and here it shares a long one


@cache  # a recording is only read
def record_stack(stack: str) -> Recording:
    """The program with a committed stack file as it is; one recording for every test that reads it."""
    return record_program(stack, mapping_of(stack))


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every plain value with its path, such as ``networkInterfaces[0].interfaceType``."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from leaves(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for place, inner in enumerate(value):
            yield from leaves(inner, f"{path}[{place}]")
    else:
        yield path, value


def _path(resource: Registered, by_urn: Mapping[str, Registered]) -> str:
    parent = by_urn.get(resource.parent)
    return (
        resource.type
        if parent is None or parent.type == STACK_TYPE
        else f"{_path(parent, by_urn)} > {resource.type}"
    )


def _unwrap(value: Any, path: str, marks: dict[str, set[str]]) -> Any:
    if isinstance(value, dict) and value.get(SIGNATURE) == SECRET:
        marks["secret"].add(path)
        return _unwrap(value["value"], path, marks)
    if value == UNKNOWN:
        marks["unknown"].add(path)
        return UNKNOWN
    if isinstance(value, dict):
        at = f"{path}." if path else ""
        # The engine passes absent on as null, and providers take it for absent.
        return {key: _unwrap(v, f"{at}{key}", marks) for key, v in value.items() if v is not None}
    if isinstance(value, list):
        return [_unwrap(inner, f"{path}[{place}]", marks) for place, inner in enumerate(value)]
    return value
