"""Kubernetes objects as declared. As of 2026-11: pulumi_kubernetes 4.34.2.

Every kind is accepted: an object is its declaration, and only its identity forces replacement.
"""

from __future__ import annotations

from ..kinds import Kind
from .build import index, row

_RELEASE_STATUS = {"name": "stand-in", "namespace": "", "revision": 1, "status": "deployed", "version": ""}

KUBERNETES: dict[str, Kind] = index(
    (
        row(
            "kubernetes:helm.sh/v3:Release",
            "{in[namespace]}/{name}",
            {"status": _RELEASE_STATUS},
            filled={"resourceNames": {}},
            replace="namespace",
            name="name",
            auto_name="{logical}-{hex8}",
            regional=False,
        ),
    )
)


def kubernetes_kind(type_: str) -> Kind:
    """The row of a type, or the rule for all others."""
    return KUBERNETES.get(type_) or row(
        type_, "{logical}-{hex8}", replace="apiVersion kind metadata.name metadata.namespace", regional=False
    )
