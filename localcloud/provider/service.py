"""The engine's ResourceProvider protocol over a table of resource kinds.

Preview and update phase are one code path: `Maker` fills what is known, and only a request that is no preview
reaches the backend that creates. Faults reach the user as one line, never as a stack trace.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Protocol, TypeVar

import grpc
from google.protobuf import empty_pb2
from pulumi.runtime.proto import engine_pb2, engine_pb2_grpc, plugin_pb2, provider_pb2, provider_pb2_grpc

from .diff import Difference, compare
from .guard import Refused, Standing, admit
from .kinds import Kind, Maker, Place, logical_name, stack_of
from .values import UNKNOWN, Tree, decode, encode, reveal

F = TypeVar("F", bound=Callable[..., Any])


class Fault(Exception):
    """A user's or the emulation's fault: the message is all that is shown."""


class Backend(Protocol):
    """What makes resources for real; the place it works in is known once it is configured."""

    def create(self, maker: Maker) -> tuple[str, dict[str, Tree]]: ...
    def update(
        self, maker: Maker, old: Mapping[str, Tree], old_inputs: Mapping[str, Tree]
    ) -> dict[str, Tree]: ...
    def delete(self, maker: Maker, outputs: Mapping[str, Tree]) -> None: ...
    def exists(self, maker: Maker, outputs: Mapping[str, Tree]) -> bool: ...


@dataclass(frozen=True)
class Package:
    """What a provider package is made of."""

    name: str
    version: str
    kind_of: Callable[[str], Kind | None]
    place_of: Callable[[Mapping[str, Tree], Standing], Place]
    backend_of: Callable[[Place, Standing], Backend]
    invokes: Mapping[str, Callable[[Mapping[str, Tree], Place], dict[str, Tree]]] = field(
        default_factory=dict
    )
    tables: str = "localcloud/provider/tables/"  # where a missing kind is added


def answering(method: F) -> F:
    """Turn faults into a gRPC status with a one-line message."""

    @wraps(method)
    def wrapped(self: Servicer, request: Any, context: grpc.ServicerContext) -> Any:
        try:
            return method(self, request, context)
        except (Fault, Refused) as fault:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, " ".join(str(fault).split()))

    return wrapped  # type: ignore[return-value]


class Servicer(provider_pb2_grpc.ResourceProviderServicer):
    def __init__(self, package: Package, engine_address: str | None = None) -> None:
        self.package = package
        self.engine_address = engine_address
        self.place = Place(region="us-east-1", account="0" * 12)
        self.standing = Standing(realises=False)
        self.backend: Backend | None = None
        self._warned: set[str] = set()

    # Plugin life

    def Handshake(self, request: Any, context: grpc.ServicerContext) -> Any:
        self.engine_address = request.engine_address or self.engine_address
        return provider_pb2.ProviderHandshakeResponse(accept_secrets=True)

    def GetPluginInfo(self, request: Any, context: grpc.ServicerContext) -> Any:
        return plugin_pb2.PluginInfo(version=self.package.version)

    def GetSchema(self, request: Any, context: grpc.ServicerContext) -> Any:
        schema = {"name": self.package.name, "version": self.package.version}
        return provider_pb2.GetSchemaResponse(schema=json.dumps(schema))

    def Cancel(self, request: Any, context: grpc.ServicerContext) -> Any:
        return empty_pb2.Empty()

    # Configuration

    def CheckConfig(self, request: Any, context: grpc.ServicerContext) -> Any:
        try:
            admit(stack_of(request.urn))
        except Refused as refusal:
            failure = provider_pb2.CheckFailure(reason=str(refusal))
            return provider_pb2.CheckResponse(inputs=request.news, failures=[failure])
        return provider_pb2.CheckResponse(inputs=request.news)

    def DiffConfig(self, request: Any, context: grpc.ServicerContext) -> Any:
        return _diff_response(compare(Kind("provider", ""), decode(request.old_inputs), decode(request.news)))

    @answering
    def Configure(self, request: Any, context: grpc.ServicerContext) -> Any:
        self.standing = admit(stack_of(request.urn))
        self.place = self.package.place_of(_config(request), self.standing)
        if self.standing.realises:
            self.backend = self.package.backend_of(self.place, self.standing)
        what = f"made at {self.standing.endpoint}" if self.standing.realises else "previewed only"
        self.log(
            engine_pb2.INFO, f"stand-in {self.package.name} provider: nothing is created on a cloud, {what}"
        )
        return provider_pb2.ConfigureResponse(
            acceptSecrets=True, supportsPreview=True, acceptResources=False, acceptOutputs=False
        )

    def log(self, severity: Any, message: str, urn: str = "") -> None:
        """A line in the engine's output; without an engine (tests over gRPC) there is nobody to tell."""
        if not self.engine_address:
            return
        with grpc.insecure_channel(self.engine_address) as channel:
            engine_pb2_grpc.EngineStub(channel).Log(
                engine_pb2.LogRequest(severity=severity, message=message, urn=urn), timeout=10
            )

    # Look-ups

    @answering
    def Invoke(self, request: Any, context: grpc.ServicerContext) -> Any:
        answer = self.package.invokes.get(request.tok)
        if answer is None:
            known = ", ".join(sorted(self.package.invokes)) or "none"
            raise Fault(
                f"the stand-in {self.package.name} provider has no answer for {request.tok} (it has: {known})"
            )
        result = answer(reveal(decode(request.args)), self.place)
        response = provider_pb2.InvokeResponse()
        getattr(response, "return").CopyFrom(encode(result))  # a keyword in Python
        return response

    # Resources

    def Check(self, request: Any, context: grpc.ServicerContext) -> Any:
        return provider_pb2.CheckResponse(inputs=request.news)

    @answering
    def Diff(self, request: Any, context: grpc.ServicerContext) -> Any:
        kind = self._kind(request, creating=False)
        old_inputs = decode(request.old_inputs) if request.HasField("old_inputs") else decode(request.olds)
        return _diff_response(compare(kind, old_inputs, decode(request.news)))

    @answering
    def Create(self, request: Any, context: grpc.ServicerContext) -> Any:
        kind = self._kind(request, creating=not request.preview)
        maker = Maker(kind, request.urn, decode(request.properties), self.place)
        if request.preview:
            return provider_pb2.CreateResponse(id="", properties=encode(maker.preview()))
        identifier, state = self._realising(request.urn).create(maker)
        return provider_pb2.CreateResponse(id=identifier, properties=encode(state))

    @answering
    def Update(self, request: Any, context: grpc.ServicerContext) -> Any:
        kind = self._kind(request, creating=not request.preview)
        new, old, old_inputs = decode(request.news), decode(request.olds), decode(request.old_inputs)
        maker = Maker(kind, request.urn, new, self.place, id=request.id)
        if request.preview:
            moved = kind.moved(compare(kind, old_inputs, new).roots, new)
            state = maker.updated(old, old_inputs, dict.fromkeys(moved, UNKNOWN))
        else:
            state = self._realising(request.urn).update(maker, old, old_inputs)
        return provider_pb2.UpdateResponse(properties=encode(state))

    @answering
    def Delete(self, request: Any, context: grpc.ServicerContext) -> Any:
        kind = self._kind(request, creating=False)
        outputs = decode(request.properties)
        maker = Maker(kind, request.urn, decode(request.old_inputs), self.place, id=request.id)
        self._realising(request.urn).delete(maker, outputs)
        return empty_pb2.Empty()

    @answering
    def Read(self, request: Any, context: grpc.ServicerContext) -> Any:
        """Refresh: the state as it is, or nothing where the emulation has lost the resource."""
        if not request.HasField("inputs") or not request.inputs.fields:
            raise Fault(
                f"{request.urn}: the stand-in provider cannot look up resources that it did not create"
            )
        kind = self._kind(request, creating=False)
        maker = Maker(kind, request.urn, decode(request.inputs), self.place, id=request.id)
        if self.backend is not None and not self.backend.exists(maker, decode(request.properties)):
            return provider_pb2.ReadResponse(id="")
        return provider_pb2.ReadResponse(id=request.id, properties=request.properties, inputs=request.inputs)

    def _kind(self, request: Any, *, creating: bool) -> Kind:
        type_ = request.type or request.urn.split("::")[-2].rsplit("$", 1)[-1]
        kind = self.package.kind_of(type_)
        if kind is not None:
            return kind
        where = self.package.tables
        missing = f"the stand-in {self.package.name} provider has no row for {type_}; add one in {where}"
        if creating:
            raise Fault(f"{request.urn}: {missing}")
        if type_ not in self._warned:
            self._warned.add(type_)
            self.log(engine_pb2.WARNING, f"{missing} (shown as declared)", request.urn)
        return Kind(type_, logical_name(request.urn))

    def _realising(self, urn: str) -> Backend:
        if self.backend is None:
            raise Fault(
                f"{urn}: the stand-in provider was started for previews, and creates or deletes nothing"
            )
        return self.backend


def _config(request: Any) -> dict[str, Tree]:
    """Provider configuration; nested values travel as JSON text."""

    def parsed(value: Tree) -> Tree:
        if isinstance(value, str) and value[:1] in ("{", "["):
            try:
                return json.loads(value)
            except ValueError:
                return value
        return value

    return {key: parsed(value) for key, value in reveal(decode(request.args)).items()}


_KINDS = provider_pb2.PropertyDiff.Kind


def _diff_response(difference: Difference) -> Any:
    detailed = {
        change.path: provider_pb2.PropertyDiff(
            kind=_KINDS.Value(change.change.upper() + ("_REPLACE" if change.replaces else "")), inputDiff=True
        )
        for change in difference.changes
    }
    return provider_pb2.DiffResponse(
        changes=provider_pb2.DiffResponse.DIFF_SOME
        if difference.changes
        else provider_pb2.DiffResponse.DIFF_NONE,
        diffs=sorted(difference.roots),
        replaces=sorted({change.root for change in difference.changes if change.replaces}),
        detailedDiff=detailed,
        hasDetailedDiff=True,
        deleteBeforeReplace=difference.delete_before_replace,
    )
