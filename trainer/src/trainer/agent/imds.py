"""The instance metadata service, version 2: who this node is, and whether it will be interrupted.

Paths and their meaning: AWS EC2 user guide, "Instance metadata categories" and "Spot Instance interruption notices".
404 is the normal answer while there is no notice. 401 means that the token is not known (any more).
"""

from __future__ import annotations

import datetime
import email.utils
import http.client
import json
import os
import time
import urllib.error
import urllib.request
from dataclasses import dataclass

DEFAULT_ENDPOINT = "http://169.254.169.254"
TIMEOUT_SECONDS = 2.0
TOKEN_SECONDS = 3600
RENEW_BEFORE_SECONDS = 60.0
# Scheduled events (EC2 user guide, "Scheduled events for your instances") that take the machine away; after a reboot
# the node comes back by itself, and SIGTERM saves before it.
TAKES_AWAY = frozenset({"instance-stop", "instance-retirement"})
IMMINENT = datetime.timedelta(minutes=15)


class ImdsUnreachable(Exception):
    """The service did not answer in time. In a container this is often the token's hop limit of 1."""


@dataclass(frozen=True)
class Notice:
    """The node will be taken away: ``spot`` (at ``at``, two minutes ahead), ``termination`` (by its group) or
    ``scheduled`` (an event of AWS that stops the machine).

    A rebalance recommendation is no notice: it says that one is likely.
    """

    kind: str
    at: str | None = None  # RFC 3339, UTC


@dataclass(frozen=True)
class ScheduledEvent:
    """Maintenance that AWS plans for the machine and has not done yet."""

    event_id: str
    code: str  # instance-stop, instance-retirement, instance-reboot, system-reboot, system-maintenance
    not_before: datetime.datetime | None  # UTC; None where it could not be read

    def is_notice(self, now: datetime.datetime) -> bool:
        """True when the machine goes away within a quarter of an hour, or at a time that is not known."""
        soon = self.not_before is None or self.not_before - now < IMMINENT
        return self.code in TAKES_AWAY and soon


@dataclass(frozen=True)
class Identity:
    instance_id: str
    address: str  # private IPv4
    life_cycle: str  # spot, on-demand, capacity-block
    instance_type: str | None = None


class Imds:
    """A client for one node; not safe for use from several threads."""

    def __init__(self, endpoint: str | None = None, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        chosen = endpoint or os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or DEFAULT_ENDPOINT
        self._endpoint = chosen.rstrip("/")
        self._timeout = timeout_seconds
        self._token: str | None = None
        self._renew_at = 0.0
        # No proxy, whatever the environment says: the address is link-local.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def get(self, path: str) -> str | None:
        """The text at ``/latest/meta-data/<path>``; None where the answer is 404. Raises ImdsUnreachable."""
        for attempt in (1, 2):
            headers = {"X-aws-ec2-metadata-token": self._current_token()}
            try:
                return self._open("GET", f"/latest/meta-data/{path}", headers)
            except urllib.error.HTTPError as error:
                if error.code == 404:
                    return None
                if error.code != 401 or attempt == 2:
                    raise ImdsUnreachable(f"{path}: HTTP {error.code}") from error
                self._token = None  # for example after the service was restarted
        raise AssertionError("unreachable")

    def identity(self) -> Identity:
        """Raises ImdsUnreachable, also when the service does not know the instance."""
        instance_id, address = self.get("instance-id"), self.get("local-ipv4")
        if not instance_id or not address:
            raise ImdsUnreachable("the service answers but knows neither instance-id nor local-ipv4")
        life_cycle = self.get("instance-life-cycle") or "on-demand"
        return Identity(instance_id, address, life_cycle, self.get("instance-type"))

    def notice(self) -> Notice | None:
        """A spot interruption, or the end that the Auto Scaling group has in mind for this node."""
        action = self.get("spot/instance-action")
        if action is not None:
            return Notice("spot", _time_of(action))
        # InService, Warmed:Stopped and the like take nothing away: who trains is decided by the node's own state.
        if self.get("autoscaling/target-lifecycle-state") == "Terminated":
            return Notice("termination")
        return None

    def rebalance_recommended(self) -> bool:
        return self.get("events/recommendations/rebalance") is not None

    def scheduled_events(self) -> list[ScheduledEvent]:
        """Those that are still to come; an answer that is not as documented counts as none."""
        try:
            entries = json.loads(self.get("events/maintenance/scheduled") or "[]")
            return [
                ScheduledEvent(str(entry["EventId"]), str(entry["Code"]), _not_before(entry))
                for entry in entries
                if entry.get("State", "active") == "active"
            ]
        except (ValueError, KeyError, TypeError, AttributeError):
            return []

    def _current_token(self) -> str:
        if self._token is None or time.monotonic() >= self._renew_at:
            headers = {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_SECONDS)}
            try:
                self._token = self._open("PUT", "/latest/api/token", headers)
            except urllib.error.HTTPError as error:
                raise ImdsUnreachable(f"no session token: HTTP {error.code}") from error
            self._renew_at = time.monotonic() + TOKEN_SECONDS - RENEW_BEFORE_SECONDS
        return self._token

    def _open(self, method: str, path: str, headers: dict[str, str]) -> str:
        request = urllib.request.Request(self._endpoint + path, method=method, headers=headers)  # noqa: S310 - the endpoint is the SDK variable or AWS's own
        try:
            with self._opener.open(request, timeout=self._timeout) as answer:
                return answer.read().decode()
        except urllib.error.HTTPError:
            raise
        except (OSError, ValueError, http.client.HTTPException) as error:  # refused, timed out, cut off
            raise ImdsUnreachable(
                f"{self._endpoint}: {error} (in a container: is the hop limit 2?)"
            ) from error


def _time_of(action: str) -> str | None:
    try:
        return str(json.loads(action)["time"])
    except (ValueError, KeyError, TypeError):
        return None


def _not_before(entry: dict[str, object]) -> datetime.datetime | None:
    """``21 Jan 2019 09:00:43 GMT``, in every locale."""
    try:
        return email.utils.parsedate_to_datetime(str(entry.get("NotBefore")))
    except (TypeError, ValueError):
        return None
