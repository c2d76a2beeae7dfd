"""A run: what the researcher asks for, who takes part, and how it ended."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from .base import Document, NodesDocument
from .cost import NodeUsage, RunCost

RUN_NAME = r"^[a-z0-9][a-z0-9-]{0,62}$"


class CheckpointSettings(Document):
    every_seconds: float = Field(default=600, gt=0)  # the training time one accepts to lose without a notice
    keep: int = Field(default=2, ge=2)


Schedule = Literal["constant", "cosine", "linear", "one-cycle"]


class AugmentSettings(Document):
    """Of training images; each draw is a function of seed, step and sample."""

    flip: bool = False  # left to right, every second one
    crop_pixels: int = Field(default=0, ge=0)  # shifted by up to so many pixels, black where nothing was


def _kind_only(given: object) -> object:
    return {"kind": given} if isinstance(given, str) else given


class ParallelSettings(Document):
    """How ranks divide the work; ``parallel: fsdp`` is short for ``parallel: {kind: fsdp}``."""

    kind: Literal["ddp", "fsdp"] = "ddp"  # each rank has the whole model, or a shard of each of its tensors
    data: int | None = Field(
        default=None, gt=0
    )  # ranks that share the global batch; none: as many as there are
    tensor: int = Field(
        default=1, gt=0
    )  # ranks that share each layer (the model gpt); data then shards as fsdp
    pipeline: int = Field(
        default=1, gt=0
    )  # stages of as many layers each (the model gpt); micro-batches are those of accumulation


class TrainingConfig(Document):
    """One training; every number that changes the result is here."""

    model: str = "tiny-vision"  # built-in name, or package.module:factory from a wheel in releases/user/
    model_args: dict[str, float | int | str | bool] = Field(default_factory=dict)
    user_wheel: str | None = None  # object name below releases/user/
    dataset: str = Field(pattern=r"^[a-z0-9-]+@[A-Za-z0-9._-]+$")  # name@version
    # sync: every node copies the dataset first; stream: it fetches shards while it trains, a window of them at a time,
    # and samples are mixed within a window only. Both are exact at any world size; they are not the same order.
    data: Literal["sync", "stream"] = "sync"
    stream_window_shards: int = Field(default=8, gt=0)
    epochs: float | None = Field(default=None, gt=0)
    steps: int | None = Field(default=None, gt=0)
    global_batch_size: int = Field(default=64, gt=0)  # samples an optimizer step, over all ranks
    gradient_accumulation: int = Field(default=1, gt=0)
    learning_rate: float = Field(default=1e-3, gt=0)
    # After the warm-up: constant, falling to 0 as half a cosine or as a line; one-cycle is PyTorch's OneCycleLR, which
    # rises for warmupSteps (0: three tenths of the steps).
    schedule: Schedule = "cosine"
    warmup_steps: int = Field(default=0, ge=0)
    optimizer: Literal["adamw", "sgd"] = "adamw"
    betas: tuple[float, float] = (0.9, 0.999)  # of adamw
    momentum: float = Field(default=0.9, ge=0, lt=1)  # of sgd, Nesterov's; 0: none
    weight_decay: float = Field(default=0.01, ge=0)  # of matrices and convolutions, not of biases and norms
    label_smoothing: float = Field(default=0, ge=0, lt=1)  # while training; evaluation goes without
    augment: AugmentSettings = AugmentSettings()
    clip_norm: float | None = Field(
        default=None, gt=0
    )  # largest norm of the whole gradient; none: not clipped
    seed: int = 0
    # A loss or gradient that is no number: stop ends the run; skip leaves the step out, after nonFiniteLimit of them in
    # a row goes back to the last checkpoint once, and then ends the run.
    non_finite: Literal["stop", "skip"] = "stop"
    non_finite_limit: int = Field(default=5, gt=0)
    activation_checkpointing: bool = (
        False  # compute blocks again for the backward pass instead of keeping them
    )
    compile: bool = False  # torch.compile; where it fails the run goes on without it and says so
    # auto: where memory runs out before the first step, micro-batches are halved until they fit, on all ranks alike.
    micro_batch: Literal["fixed", "auto"] = "fixed"
    parallel: Annotated[ParallelSettings, BeforeValidator(_kind_only)] = ParallelSettings()
    # Weights that a fresh start begins with: run:NAME (its best checkpoint), or a .pt or .safetensors file.
    init_from: str | None = None
    init_strict: bool = True  # false: what does not fit is left as it was built, and told
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    eval_every_steps: int = Field(default=0, ge=0)  # 0: only at the end
    checkpoint: CheckpointSettings = CheckpointSettings()
    resume: Literal["auto", "never"] = "auto"


class ElasticSettings(Document):
    """When the world is smaller than ``nodes``: shrink, wait, or give up."""

    # Smallest world that still trains; none: ``nodes``, a world that never shrinks.
    min_world_nodes: int | None = Field(default=None, ge=1)
    # How long a world that could be smaller waits for the missing members first.
    shrink_after_seconds: float = Field(default=20, ge=0)
    wait_seconds: float = Field(
        default=1800, gt=0
    )  # then the run fails: fewer than min_world_nodes are there


class RunConfig(Document):
    """``runs/<run>/config.json``, written once (If-None-Match)."""

    schema_version: int = 1
    name: str = Field(pattern=RUN_NAME)
    groups: list[str] = Field(min_length=1)
    nodes: int = Field(gt=0)  # the whole world: members over all groups; it may shrink, see `elastic`
    training: TrainingConfig
    elastic: ElasticSettings = ElasticSettings()
    on_finish: Literal["release", "keep"] = "keep"
    created_at: str


class RunPointer(Document):
    """``groups/<group>/run.json``: which run the group's nodes take part in, and whether it shall go on."""

    run: str
    action: Literal["start", "stop"]
    updated_at: str


class Versions(NodesDocument):
    trainer: str
    torch: str
    nccl: str | None = None


class Member(NodesDocument):
    instance_id: str
    group: str
    address: str  # private IPv4 from the metadata service
    local_world_size: int = Field(gt=0)  # processes on this node: GPUs, or 1 on CPU
    peer_port: int | None = None  # where the agent answers its peers' probes; none: an older release


class Generation(NodesDocument):
    """``runs/<run>/generation.json``: the current world; published by conditional write only."""

    n: int = Field(ge=1)
    members: list[Member] = Field(min_length=1)  # order gives the node rank
    master_address: str
    master_port: int
    versions: Versions
    published_at: str
    trained_seconds: float = Field(default=0, ge=0)  # of the run in all generations before


class MemberReport(NodesDocument):
    """``runs/<run>/members/<instance>.json``: one node's own word on itself; ``beat`` counts up as a lease."""

    member: Member
    versions: Versions
    # finished with exit code 75 or 76: the run has trained as long as it may and is not gone on with
    state: Literal["ready", "running", "leaving", "finished", "failed"]
    generation: int = Field(default=0, ge=0)  # the last generation this node ran or runs; 0: none yet
    exit_code: int | None = None  # how that generation ended here
    message: str | None = None  # one line on a failure: what, where
    beat: int = Field(default=0, ge=0)
    unreachable: list[str] = Field(
        default_factory=list
    )  # instance ids whose peer port does not answer this node
    usage: NodeUsage | None = None  # what the run has had of this node so far
    trained_seconds: float = Field(
        default=0, ge=0
    )  # of the run in all generations, as far as this node knows


class RunResult(NodesDocument):
    """``runs/<run>/result.json``, written once by the leader when the run is over."""

    run: str
    status: Literal["finished", "failed", "stopped"]
    exit_code: int
    message: str
    step: int
    epochs: float
    first_loss: float | None = None  # mean training loss of the first tenth of the steps
    last_loss: float | None = None  # mean training loss of the last tenth
    eval_loss: float | None = None
    eval_accuracy: float | None = None
    cost: RunCost | None = None  # of its nodes, over all its lives
    released: bool = False  # its nodes leave their groups whatever `on_finish` says: maxRunHours are used
    finished_at: str
