"""Which request meets which fault. Pure."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args
from urllib.parse import parse_qs, urlsplit

Kind = Literal[
    "internal-error",  # 500 InternalError
    "slow-down",  # 503 SlowDown
    "conflict",  # 409 ConditionalRequestConflict
    "precondition-failed",  # 412 PreconditionFailed
    "expired-token",  # 400 ExpiredToken
    "time-skewed",  # 403 RequestTimeTooSkewed
    "slow",  # bodies at so many bytes per second
    "delay",  # so many seconds before the request is passed on
    "truncated",  # half of the body, then the connection ends
    "corrupted",  # one byte of the body is another one
    "reset",  # the connection is reset, no answer
    "outage",  # connections are reset at once and while they are used, whatever the service
]
KINDS: tuple[Kind, ...] = get_args(Kind)
OF_BODIES = ("slow", "truncated", "corrupted")
WITHOUT_BODY = ("HEAD", "DELETE")
_SERVICE = re.compile(r"Credential=[^/]+/\d{8}/[^/]+/([^/]+)/aws4_request")


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One fault and the requests that meet it; the first rule that matches a request decides.

    Rules match requests to S3 only, `outage` every service. `outage` knows `nodes` alone: its `methods`, `key`
    and `skip` stay empty; its `times` counts connections. Raises ValueError.
    """

    kind: Kind
    nodes: tuple[str, ...] = ()  # source addresses; empty: all
    methods: tuple[str, ...] = ()  # HTTP's, in capitals; empty: all
    key: str = ""  # regular expression, searched in the request's path and query; empty: every request
    times: int | None = 1  # requests that meet the fault; None: all until the rules are cleared
    skip: int = 0  # matching requests that pass unharmed first
    seconds: float = 0  # of a `delay`
    bytes_per_second: int = 0  # of `slow`, for each body

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind is {self.kind!r}; one of {', '.join(KINDS)}")
        if (self.kind == "delay") != (self.seconds > 0):
            raise ValueError(f"{self.kind}: seconds is {self.seconds}; a delay, and nothing else, has some")
        if (self.kind == "slow") != (self.bytes_per_second > 0):
            raise ValueError(
                f"{self.kind}: bytes_per_second is {self.bytes_per_second}; slow, and nothing else, has some"
            )
        if self.skip < 0 or (self.times is not None and self.times < 1):
            raise ValueError(f"{self.kind}: skip is 0 or more, times 1 or more, or None")
        if self.kind == "outage" and (self.methods or self.key or self.skip):
            raise ValueError("outage: it meets whole nodes; methods, key and skip stay empty")
        try:
            re.compile(self.key)
        except re.error as fault:
            raise ValueError(f"{self.kind}: key {self.key!r} is no regular expression: {fault}") from None


@dataclass(frozen=True)
class Asked:
    """What rules look at."""

    node: str  # source address
    method: str
    target: str  # path and query as sent
    service: str  # AWS's name from the signature; empty: not signed

    def meets(self, rule: Rule) -> bool:
        if rule.kind == "outage" or self.service != "s3":
            return False
        if rule.kind in OF_BODIES and self.method in WITHOUT_BODY:
            return False
        return (
            (not rule.nodes or self.node in rule.nodes)
            and (not rule.methods or self.method in rule.methods)
            and re.search(rule.key, self.target) is not None
        )


def signed_service(authorization: str, target: str) -> str:
    """The service that a request was signed for, by its header or, in a presigned URL, its query."""
    found = _SERVICE.match(authorization.partition(" ")[2])
    if found:
        return found.group(1)
    credential = parse_qs(urlsplit(target).query).get("X-Amz-Credential", [""])[0].split("/")
    return credential[3] if len(credential) == 5 else ""


class RuleBook:
    """Rules and how often each was used. Safe to use from several threads."""

    def __init__(self, rules: Sequence[Rule] = ()) -> None:
        self.rules = tuple(rules)
        self._skip = [rule.skip for rule in self.rules]
        self._left = [rule.times for rule in self.rules]
        self._lock = threading.Lock()

    def choose(self, asked: Asked) -> Rule | None:
        """The fault that this request meets; it counts as one of the rule's times."""
        return self._take(asked.meets)

    def refuses(self, node: str) -> Rule | None:
        """The outage that a connection from this node meets, counted likewise."""
        return self._take(lambda rule: rule.kind == "outage" and (not rule.nodes or node in rule.nodes))

    def _take(self, meets: Callable[[Rule], bool]) -> Rule | None:
        with self._lock:
            for at, rule in enumerate(self.rules):
                left = self._left[at]
                if left == 0 or not meets(rule):
                    continue
                if self._skip[at] > 0:
                    self._skip[at] -= 1
                    continue
                if left is not None:
                    self._left[at] = left - 1
                return rule
        return None
