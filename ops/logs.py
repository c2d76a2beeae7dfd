"""What the nodes of a stack logged, all streams in one by time: bootstrap, agent, and what the run says.

SINCE is a duration (90s, 30m, 2h, 3d) or a moment in UTC (2026-11-30T08:00). FOLLOW=1 goes on with what comes, until
Ctrl-C. RUN and NODE leave out the rest.
"""

from __future__ import annotations

import datetime
import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from botocore.exceptions import ClientError

from components.names import stack_names
from components.settings import Settings

from . import command, local
from .account import Account, code_of, open_account
from .refusal import EXIT_OK, Refused
from .stack_file import settings_of

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
MOST_EVENTS = 20_000  # of one call, the oldest first; what comes after them is left out, and said so
POLL_SECONDS = 3.0
LATE_SECONDS = 60  # CloudWatch takes an event this long to be found, at times
FIRST = ("time", "level", "event", "instance", "group")


def since_ms(text: str, now: datetime.datetime) -> int:
    """Milliseconds of the epoch; Refused for what is neither a duration nor a moment."""
    if found := re.fullmatch(r"(\d+)([smhd])", text):
        return int((now.timestamp() - int(found[1]) * UNITS[found[2]]) * 1000)
    try:
        moment = datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise Refused(f"SINCE={text}: write a duration such as 30m, 2h, 3d, or 2026-11-30T08:00") from None
    zone = moment.tzinfo or datetime.timezone.utc
    return int(moment.replace(tzinfo=zone).timestamp() * 1000)


def pattern_for(run: str | None) -> str | None:
    """A filter pattern of CloudWatch for the agents' JSON lines of one run."""
    if run is None:
        return None
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", run):
        raise Refused(f"RUN={run} is no name of a run")
    return f'{{ $.run = "{run}" }}'


def line_of(event: Mapping[str, Any]) -> str:
    """One line for people: moment, node, what happened, and the rest as key=value."""
    group, _, rest = str(event["logStreamName"]).partition("/")
    instance, _, source = rest.partition("/")
    moment = datetime.datetime.fromtimestamp(event["timestamp"] / 1000, datetime.timezone.utc)
    head = f"{moment:%Y-%m-%d %H:%M:%S} {group}/{instance}"
    message = str(event["message"]).rstrip("\n")
    try:
        told = json.loads(message)
        what = str(told["event"])
    except (ValueError, KeyError, TypeError):
        return f"{head} {message}" if source in ("", "bootstrap") else f"{head} {source}: {message}"
    level = str(told.get("level", "info"))
    more = " ".join(f"{key}={_plain(value)}" for key, value in told.items() if key not in FIRST)
    return " ".join(word for word in (head, "" if level == "info" else level.upper(), what, more) if word)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) and " " not in value else json.dumps(value)


class Streams:
    """The stack's log group; `ask` gives the events since a moment, in order of time."""

    def __init__(self, account: Account, settings: Settings, run: str | None, node: str | None) -> None:
        self._client = account.client("logs")
        self._group = stack_names(settings).node_log_group
        self._stack = settings.stack
        self._where: dict[str, Any] = {"logGroupName": self._group}
        if (pattern := pattern_for(run)) is not None:
            self._where["filterPattern"] = pattern
        self._node = node
        self.cut_off = False

    def ask(self, start_ms: int, tell: Callable[[int], None] = lambda read: None) -> list[dict[str, Any]]:
        """Raises Refused where the stack or the node has no logs."""
        where = dict(self._where)
        try:
            if self._node is not None:
                where["logStreamNames"] = self._streams_of(self._node)
            pages = self._client.get_paginator("filter_log_events").paginate(startTime=start_ms, **where)
            events: list[dict[str, Any]] = []
            for page in pages:
                events += page["events"]
                tell(len(events))
                if len(events) >= MOST_EVENTS:
                    self.cut_off = True
                    break
        except ClientError as error:
            if code_of(error) != "ResourceNotFoundException":
                raise
            raise Refused(
                f"stack '{self._stack}' has no log group {self._group}: it is not up in this account and region"
            ) from None
        return sorted(events, key=lambda event: event["timestamp"])

    def _streams_of(self, node: str) -> list[str]:
        pages = self._client.get_paginator("describe_log_streams").paginate(logGroupName=self._group)
        names = [row["logStreamName"] for page in pages for row in page["logStreams"]]
        found = [name for name in names if node in name.split("/")]
        if not found:
            nodes = sorted({name.split("/")[1] for name in names if name.count("/") > 1})
            known = ", ".join(nodes[-10:]) or "none yet"
            raise Refused(f"node {node} has logged nothing in {self._group}; those that have: {known}")
        return found[:100]  # more than CloudWatch takes


def follow(
    ask: Callable[[int], list[dict[str, Any]]], start_ms: int, pause: Callable[[], bool]
) -> Iterator[Any]:
    """Events as they come, each once; ends when `pause` says so. Late events are looked for during a minute."""
    seen: dict[str, int] = {}
    while True:
        for event in ask(start_ms):
            if event["eventId"] not in seen:
                seen[event["eventId"]] = event["timestamp"]
                yield event
        newest = max(seen.values(), default=start_ms)
        start_ms = max(start_ms, newest - LATE_SECONDS * 1000)
        seen = {id_: at for id_, at in seen.items() if at >= start_ms}
        if not pause():
            return


def main(argv: Sequence[str] | None = None) -> int:
    parser = command.parser("logs", __doc__)
    parser.add_argument("--run", help="lines of this run only")
    parser.add_argument("--node", help="lines of this instance only")
    parser.add_argument("--since", default="1h", help="from when on (default: 1h)")
    parser.add_argument("--follow", action="store_true", help="go on until Ctrl-C")
    parser.add_argument("--json", action="store_true", help="events as CloudWatch has them, one a line")
    asked = parser.parse_args(argv)

    def body() -> int:
        if local.is_local(asked.stack):
            return local.show_logs(asked.node, asked.follow)
        settings = settings_of(asked.stack)
        start = since_ms(asked.since, datetime.datetime.now(datetime.timezone.utc))
        pattern_for(asked.run)
        streams = Streams(open_account(settings), settings, asked.run, asked.node)
        show = json.dumps if asked.json else line_of

        def pause() -> bool:
            if asked.follow:
                sys.stdout.flush()
                time.sleep(POLL_SECONDS)
            return asked.follow

        told, progress = 0, _progress()
        for event in follow(lambda at: streams.ask(at, progress), start, pause):
            told += 1
            print(show(event))
        if streams.cut_off:
            print(
                f"make logs: more than {MOST_EVENTS} lines; a shorter SINCE shows the newest", file=sys.stderr
            )
        if told == 0:
            print(f"make logs: nothing was logged since {asked.since}; try SINCE=1d", file=sys.stderr)
        return EXIT_OK

    return command.guarded("logs", body)


def _progress() -> Callable[[int], None]:
    """Says on a terminal how much was read, where it is much."""

    def tell(read: int) -> None:
        if read > 5000 and sys.stderr.isatty():
            print(f"{read} lines read", end="\r", file=sys.stderr, flush=True)

    return tell


if __name__ == "__main__":
    sys.exit(main())
