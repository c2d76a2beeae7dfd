"""Telling the stack's runs topic that a run is over. Only the node whose result was written tells it, once.

A message that cannot be sent is logged and not tried again: `result.json` has all that it says.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from ..contracts import keys
from ..contracts.node_document import NodeDocument
from ..contracts.run import RunConfig, RunResult
from ..contracts.run_event import RunEvent
from ..exit_codes import Exit
from ..obs.logs import get_logger
from ..report.progress import Progress
from .cost import describe_cost

# The run is over and its result is written: nobody waits for this long, also where there is no way to SNS.
QUICK = Config(retries={"mode": "standard", "total_max_attempts": 2}, connect_timeout=3, read_timeout=5)
SUBJECT_LIMIT = 100  # characters, ASCII, no line breaks: SNS API reference, Publish


def run_event(document: NodeDocument, run: RunConfig, result: RunResult, progress: Progress) -> RunEvent:
    """All of a run's end that one wants to know without looking anywhere."""
    bucket, saved = document.artifacts_bucket, progress.checkpoint_step
    command = f"--run {result.run} --artifacts-bucket {bucket}"
    return RunEvent(
        stack=document.stack,
        region=document.region,
        run=result.run,
        groups=run.groups,
        status=result.status,
        reason=result.message,
        exit_code=result.exit_code,
        exit_name=_exit_name(result.exit_code),
        step=result.step,
        total_steps=progress.total_steps,
        loss=result.last_loss,
        eval_loss=result.eval_loss,
        eval_accuracy=result.eval_accuracy,
        checkpoint=f"s3://{bucket}/{keys.checkpoint(result.run, saved, '')}" if saved is not None else None,
        cost=result.cost,
        finished_at=result.finished_at,
        fetch=f"trainer run fetch {command}",
        resume=None if result.status == "finished" else f"trainer run resume {command}",
    )


def subject(event: RunEvent) -> str:
    """A mail's subject: stack, run, how it ended; cut at what SNS takes (names of both are ASCII)."""
    words = f"[{event.stack}] run {event.run} {event.status} at step {event.step}"
    if event.status == "failed":
        words += f": {event.exit_name}"
    return words[:SUBJECT_LIMIT]


def text(event: RunEvent) -> str:
    """The mail."""
    steps = f"{event.step} of {event.total_steps}" if event.total_steps else str(event.step)
    lines = [
        f"Run {event.run} of stack {event.stack} ({event.region}) {event.status}: {event.reason}",
        "",
        f"groups      {', '.join(event.groups)}",
        f"steps       {steps}",
    ]
    if event.loss is not None:
        lines.append(f"loss        {event.loss:.4g}")
    if event.eval_accuracy is not None:
        lines.append(f"accuracy    {event.eval_accuracy:.1%} held out")
    lines.append(f"checkpoint  {event.checkpoint or 'none was completed'}")
    if event.cost is not None:
        lines.append(f"nodes' cost {describe_cost(event.cost)}")
    lines += [f"exit        {event.exit_code} {event.exit_name}", f"at          {event.finished_at}", ""]
    if event.checkpoint:
        lines.append(f"Fetch it:   {event.fetch}")
    if event.resume:
        lines.append(f"Go on:      {event.resume}")
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class RunEvents:
    """A topic and how to reach it; one without a topic tells nobody."""

    topic_arn: str | None
    sns: Any

    @classmethod
    def connect(cls, document: NodeDocument) -> RunEvents:
        return cls(document.runs_topic_arn, boto3.client("sns", region_name=document.region, config=QUICK))

    def publish(self, event: RunEvent) -> bool:
        """False where it was not sent; that is logged, and nothing else depends on it."""
        if self.topic_arn is None:
            return False
        body = event.to_json().strip()
        try:
            self.sns.publish(
                TopicArn=self.topic_arn,
                Subject=subject(event),
                MessageStructure="json",  # a body a protocol; what is not named gets the default one
                Message=json.dumps({"default": body, "email": text(event)}),
            )
        except (ClientError, BotoCoreError) as error:
            get_logger().warning(
                "run's end not told", topic=self.topic_arn, error=" ".join(str(error).split())
            )
            return False
        get_logger().info("run's end told", topic=self.topic_arn, status=event.status)
        return True


def _exit_name(code: int) -> str:
    try:
        return Exit(code).name
    except ValueError:
        return "unknown"
