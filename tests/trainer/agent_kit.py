"""Nodes of a local cloud for the agent's tests: real S3 and Auto Scaling calls, agents as threads, fake workers."""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from botocore.exceptions import EndpointConnectionError
from trainer.agent.agent import Agent
from trainer.agent.board import Board, utc_now
from trainer.agent.events import Tail
from trainer.agent.imds import Imds
from trainer.agent.lifecycle import Lifecycle
from trainer.agent.node import Node
from trainer.agent.pace import Pace
from trainer.agent.peers import Address, connect_all
from trainer.agent.run_events import RunEvents
from trainer.contracts.cluster import Cluster as ClusterDocument
from trainer.contracts.cluster import GroupInfo, HourlyPrice
from trainer.contracts.node_document import (
    DatasetLocation,
    NodeDocument,
    Promise,
    Release,
    SelfCheckSettings,
    TorchSource,
)
from trainer.contracts.run import (
    ElasticSettings,
    MemberReport,
    RunConfig,
    RunPointer,
    RunResult,
    TrainingConfig,
    Versions,
)
from trainer.contracts.worker import WorkerConfig, WorkerEvent
from trainer.data.manifest import DatasetName
from trainer.data.publish import describe, publish_dataset
from trainer.exit_codes import Exit
from trainer.obs.exporter import NodeState
from trainer.selfcheck.report import Finding, conclude
from trainer.store import Store, make_client

from tests.local.cloud_kit import REGION, Cluster, client, wait_until
from tests.trainer.kit import write_numbered_dataset

FAKE_WORKER = Path(__file__).with_name("fake_worker.py")
POLL_SECONDS = 0.1


class FakeImds:
    """IMDSv2 over HTTP: GET needs a token that this server gave out. `paths` may be changed at any time."""

    def __init__(self, paths: Mapping[str, str]) -> None:
        self.paths = dict(paths)
        self.tokens: set[str] = set()
        self.asked: list[str] = []
        imds = self

        class Handler(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                imds.tokens.add(f"token-{len(imds.asked)}")
                imds.asked.append("PUT " + str(self.headers.get("X-aws-ec2-metadata-token-ttl-seconds")))
                self._answer(200, sorted(imds.tokens)[-1])

            def do_GET(self) -> None:
                path = self.path.removeprefix("/latest/meta-data/")
                imds.asked.append(path)
                if self.headers.get("X-aws-ec2-metadata-token") not in imds.tokens:
                    self._answer(401, "")
                else:
                    self._answer(200 if path in imds.paths else 404, imds.paths.get(path, ""))

            def _answer(self, status: int, text: str) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def interrupt(self) -> None:
        self.paths["spot/instance-action"] = json.dumps(
            {"action": "terminate", "time": "2026-11-30T00:02:00Z"}
        )

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def fake_workers(config: WorkerConfig, folder: Path) -> list[str]:
    # As torchrun does it: a worker's rank is in its environment.
    return ["env", f"RANK={config.node_rank}", sys.executable, "-S", str(FAKE_WORKER), str(folder)]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


class Network:
    """What one node reaches: its agent's S3 and the peer ports of others, each of which a test may cut."""

    def __init__(self) -> None:
        self.s3_cut = False
        self.blocked: set[str] = set()  # instance ids
        self.refuse_once: bytes | None = None  # S3 does not take the next object that has this in it
        self.lose_answer: str | None = None  # S3 takes the next object of this name, and nobody hears of it
        self._s3: Any = make_client(REGION)

    def __getattr__(self, name: str) -> Any:
        """An S3 client."""
        if self.s3_cut:
            raise EndpointConnectionError(endpoint_url="s3")
        return getattr(self._s3, name)

    def put_object(self, **arguments: Any) -> Any:
        if self.s3_cut or (self.refuse_once and self.refuse_once in arguments["Body"]):
            self.refuse_once = None
            raise EndpointConnectionError(endpoint_url="s3")
        answer = self._s3.put_object(**arguments)
        if self.lose_answer and arguments["Key"].endswith(self.lose_answer):
            self.lose_answer = None
            raise EndpointConnectionError(endpoint_url="s3")
        return answer

    def probe(self, targets: Mapping[str, Address], timeout_seconds: float) -> dict[str, float]:
        open_ = {id_: address for id_, address in targets.items() if id_ not in self.blocked}
        return connect_all(open_, timeout_seconds)


def selfcheck_that(verdict: str, code: int, folder: Path) -> Any:
    """A self-check program that prints a finished report."""
    finding = Finding.model_validate(
        {"check": "matmul", "verdict": verdict, "message": "as told", "exitCode": code or None}
    )
    report = conclude([finding], [], level="quick", seconds=0.1, started_at="now", versions={})
    script = folder / "selfcheck.py"
    script.write_text(f"print({report.to_json()!r})")
    return lambda _document, _level, _instance: [sys.executable, "-S", str(script)]


@dataclass
class RunningAgent:
    agent: Agent
    imds: FakeImds
    state: NodeState
    folder: Path
    network: Network
    code: Exit | None = None
    _thread: threading.Thread = field(init=False)

    @property
    def id(self) -> str:
        return self.agent.node.instance_id

    @property
    def worker_pid(self) -> int:
        training = self.agent._session and self.agent._session._training
        assert training is not None and training.workers._process is not None
        return training.workers._process.pid

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self.code = self.agent.run()

    def join(self, seconds: float = 20.0) -> Exit | None:
        self._thread.join(seconds)
        assert not self._thread.is_alive(), "the agent did not end"
        return self.code

    def stop(self) -> Exit | None:
        self.agent.on_signal(15, None)
        return self.join()

    def events(self, run: str, generation: int) -> list[WorkerEvent]:
        (path,) = self.folder.glob(f"runs/{run}/gen-{generation:04d}/events-rank*.jsonl")
        return Tail(path).read()


@dataclass
class Cloud:
    """One group `gpu` of the stack `test`, a bucket, the dataset numbers@v1, and the agents on its instances."""

    endpoint: str
    root: Path
    store: Store
    cluster: Cluster
    group: str
    bucket: str
    agents: list[RunningAgent] = field(default_factory=list)
    self_check: SelfCheckSettings = field(default_factory=SelfCheckSettings)
    pace: Pace = field(default_factory=Pace)
    standby_argv: tuple[str, ...] = ()
    secrets: dict[str, str] = field(default_factory=dict)  # environment variable -> name in Secrets Manager
    training_port: int = field(default_factory=free_port)
    runs_topic_arn: str | None = None

    @property
    def board(self) -> Board:
        return Board(self.store, self.bucket)

    @property
    def states(self) -> dict[str, str]:
        return self.cluster.states(self.group)

    def document(self) -> NodeDocument:
        return NodeDocument(
            stack="test",
            group="gpu",
            auto_scaling_group=self.group,
            region=REGION,
            artifacts_bucket=self.bucket,
            datasets={"numbers": DatasetLocation(bucket=self.bucket, prefix="datasets/numbers/")},
            release=Release(uri="s3://bucket/release.tar", sha256="0" * 64, version="0"),
            interpreter=sys.executable,
            torch=TorchSource(site_packages="/opt/pytorch"),
            promise=Promise(instance_type="g6.xlarge", accelerator="none", gpu_count=1),
            self_check=self.self_check,
            launching_hook="launching",
            terminating_hook="terminating",
            log_group="/test/nodes",
            training_port=self.training_port,
            runs_topic_arn=self.runs_topic_arn,
            secrets=self.secrets,
        )

    def publish(self) -> None:
        source = self.root / "source"
        write_numbered_dataset(source, samples=24, test_samples=8)
        location = self.document().datasets["numbers"]
        publish_dataset(self.store, location, source, describe(source, DatasetName("numbers", "v1")))
        self.put_cluster({})

    def put_cluster(self, prices: dict[str, HourlyPrice]) -> None:
        """cluster.json, as the program would write it again for new list prices."""
        known = ClusterDocument(
            stack="test",
            region=REGION,
            artifacts_bucket=self.bucket,
            groups={"gpu": GroupInfo(auto_scaling_group=self.group, max_nodes=6, prices=prices)},
            datasets=self.document().datasets,
        )
        self.store.put(self.bucket, "cluster.json", known.to_json().encode())

    def boot(self, instance_id: str, verdict: str = "pass", code: int = 0) -> RunningAgent:
        """What user data would have done, then the agent."""
        folder = self.root / instance_id
        folder.mkdir(exist_ok=True)
        address = f"127.0.0.{10 + len(self.agents)}"
        imds = FakeImds({"instance-id": instance_id, "local-ipv4": address})
        document, state, network = self.document(), NodeState(), Network()
        node = Node(
            document=document,
            instance_id=instance_id,
            address=address,
            state_dir=folder,
            versions=Versions(trainer="0", torch="0"),
            state=state,
            store=self.store,
            board=Board(Store(network), self.bucket),  # type: ignore[arg-type]
            lifecycle=Lifecycle.connect(document, instance_id),
            worker_argv=fake_workers,
            standby_argv=self.standby_argv,
            poll_seconds=POLL_SECONDS,
            pace=self.pace,
            run_events=RunEvents.connect(document),
        )
        check = selfcheck_that(verdict, code, folder)
        agent = Agent(node, Imds(imds.endpoint), folder / "node.json", check, network.probe)
        running = RunningAgent(agent, imds, state, folder, network)
        self.agents.append(running)
        running.start()
        return running

    def boot_all(self) -> list[RunningAgent]:
        return [self.boot(instance_id) for instance_id in sorted(self.states)]

    def run(
        self,
        name: str,
        nodes: int = 2,
        steps: int = 20,
        on_finish: Any = "keep",
        elastic: ElasticSettings | None = None,
        data: Any = "sync",
        **arguments: Any,
    ) -> RunConfig:
        training = TrainingConfig(dataset="numbers@v1", steps=steps, data=data, model_args=arguments)
        config = RunConfig(
            name=name,
            groups=["gpu"],
            nodes=nodes,
            training=training,
            elastic=elastic or ElasticSettings(),
            on_finish=on_finish,
            created_at=utc_now(),
        )
        self.store.put(self.bucket, f"runs/{name}/config.json", config.to_json().encode())
        self.board.put_pointer("gpu", RunPointer(run=name, action="start", updated_at=utc_now()))
        return config

    def result(self, run: str, seconds: float = 30.0) -> RunResult:
        wait_until(lambda: self.board.result(run) is not None, f"the result of {run}", seconds)
        result = self.board.result(run)
        assert result is not None
        return result

    def generation(self, run: str) -> int:
        generation, _ = self.board.generation(run)
        return generation.n if generation else 0

    def world(self, run: str) -> list[str]:
        """Instance ids of the current generation, in node-rank order."""
        generation, _ = self.board.generation(run)
        return [member.instance_id for member in generation.members] if generation else []

    def report(self, run: str, instance_id: str) -> MemberReport:
        return self.board.reports(run)[instance_id]

    def step(self, run: str) -> int:
        """The furthest step that any node has told its metrics."""
        return int(max((agent.state.get("trainer_step") or 0 for agent in self.agents), default=0))


@contextmanager
def cloud(endpoint: str, root: Path, nodes: int, number: int) -> Iterator[Cloud]:
    cluster = Cluster(endpoint)
    group, bucket = f"test-gpu-{number}", f"test-artifacts-{number}"
    client("s3", endpoint).create_bucket(Bucket=bucket)
    cluster.group(group, nodes)
    made = Cloud(endpoint, root, Store(region=REGION), cluster, group, bucket)
    made.publish()
    try:
        yield made
    finally:
        for running in made.agents:
            if running.code is None:
                running.agent.on_signal(15, None)
                running.agent.on_signal(15, None)
        for running in made.agents:
            running.join()
            running.imds.close()
