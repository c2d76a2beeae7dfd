"""A run's documents in the artifacts bucket, as nodes and researchers read and write them."""

from __future__ import annotations

import datetime
from dataclasses import dataclass

import boto3
from botocore.config import Config
from pydantic import ValidationError

from ..contracts import keys
from ..contracts.base import D
from ..contracts.cluster import Cluster
from ..contracts.cost import RunUsage
from ..contracts.run import Generation, MemberReport, RunConfig, RunPointer, RunResult
from ..errors import ConfigurationError
from ..store import Store

# A call of the agent's loop answers or fails within about ten seconds: meanwhile the loop sees no notice, no signal and
# no lease that runs out. What failed is tried again at the next poll.
QUICK = Config(
    retries={"mode": "standard", "total_max_attempts": 2},
    connect_timeout=2,
    read_timeout=5,
)
WORKER_LOG = "worker.log"


def utc_now() -> str:
    return (
        datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )


@dataclass(frozen=True)
class Board:
    store: Store
    bucket: str

    @classmethod
    def connect(cls, region: str, bucket: str) -> Board:
        """With time-outs for the agent's loop."""
        return cls(Store(boto3.client("s3", region_name=region, config=QUICK)), bucket)

    def cluster(self) -> Cluster | None:
        return self._read(Cluster, keys.cluster())

    def pointer(self, group: str) -> RunPointer | None:
        return self._read(RunPointer, keys.run_pointer(group))

    def put_pointer(self, group: str, pointer: RunPointer) -> None:
        self.store.put(self.bucket, keys.run_pointer(group), pointer.to_json().encode())

    def config(self, run: str) -> RunConfig | None:
        return self._read(RunConfig, keys.run_config(run))

    def result(self, run: str) -> RunResult | None:
        return self._read(RunResult, keys.result(run))

    def put_result(self, result: RunResult) -> bool:
        """Once only; False where somebody else was first."""
        body = result.to_json().encode()
        return self.store.put(self.bucket, keys.result(result.run), body, only_if_absent=True).written

    def usage(self, run: str) -> RunUsage | None:
        """What the run had of its nodes before it was resumed; None where it never was."""
        return self._read(RunUsage, keys.usage(run))

    def put_usage(self, run: str, usage: RunUsage) -> None:
        self.store.put(self.bucket, keys.usage(run), usage.to_json().encode())

    def generation(self, run: str) -> tuple[Generation | None, str | None]:
        """The current generation and its ETag; (None, None) before the first."""
        key = keys.generation(run)
        fetched = self.store.get(self.bucket, key)
        return (self._parsed(Generation, key, fetched.body), fetched.etag) if fetched else (None, None)

    def publish(self, run: str, generation: Generation, after_etag: str | None) -> bool:
        """Conditional on the generation that was read; False where another leader was first."""
        body, key = generation.to_json().encode(), keys.generation(run)
        if after_etag is None:
            return self.store.put(self.bucket, key, body, only_if_absent=True).written
        return self.store.put(self.bucket, key, body, only_if_etag=after_etag).written

    def reports(self, run: str) -> dict[str, MemberReport]:
        """All members' reports by instance id; one that cannot be parsed is left out (another release's)."""
        reports = {}
        for listed in self.store.list_objects(self.bucket, keys.members(run)):
            fetched = self.store.get(self.bucket, listed.key)
            try:
                report = MemberReport.from_json(fetched.body) if fetched else None
            except ValidationError:
                continue
            if report:
                reports[report.member.instance_id] = report
        return reports

    def put_report(self, run: str, report: MemberReport) -> None:
        self.store.put(self.bucket, keys.member(run, report.member.instance_id), report.to_json().encode())

    def put_text(self, key: str, text: str | bytes) -> None:
        self.store.put(self.bucket, key, text.encode() if isinstance(text, str) else text)

    def _read(self, model: type[D], key: str) -> D | None:
        fetched = self.store.get(self.bucket, key)
        return self._parsed(model, key, fetched.body) if fetched else None

    def _parsed(self, model: type[D], key: str, body: bytes) -> D:
        try:
            return model.from_json(body)
        except ValidationError as error:
            first = error.errors()[0]
            path = ".".join(str(part) for part in first["loc"])
            raise ConfigurationError(f"s3://{self.bucket}/{key}: {path}: {first['msg']}") from error
