"""How the ranks divide a training among themselves.

``ddp`` gives each rank the whole model. ``fsdp`` (FSDP2, ``fully_shard``) spreads weights, gradients and the
optimizer's state over the ranks. ``tensor`` gives each rank some heads and some columns of every layer of the GPT.
What each rank has goes into a checkpoint under the names of the undivided model, so that a run may go on divided in
another way; what is not divided by this module (pipeline stages) is in `trainer.train.pipeline`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, Placement, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from ..contracts.run import ParallelSettings, TrainingConfig
from ..errors import ConfigurationError
from ..models.gpt import GPT
from ..models.load import blocks_of
from .world import World


@dataclass(frozen=True)
class Grid:
    """Where this rank is: data x pipeline x tensor ranks, tensor ranks next to each other (they talk most), then the
    stages, so that a node that leaves takes as few other ranks' parts of the model with it as may be."""

    rank: int
    data_size: int
    stages: int
    tensor_size: int
    mesh: DeviceMesh | None  # dimensions data, pipeline and tensor; none: plain data parallelism

    @property
    def model_size(self) -> int:
        """Ranks that see the same samples."""
        return self.stages * self.tensor_size

    @property
    def data_rank(self) -> int:
        return self.rank // self.model_size

    @property
    def stage(self) -> int:
        return self.rank // self.tensor_size % self.stages

    @property
    def tells(self) -> bool:
        """One rank of those that see the same samples tells of them: it knows their loss."""
        return self.rank % self.tensor_size == 0 and self.stage == self.stages - 1


def make_grid(settings: ParallelSettings, world: World) -> Grid:
    """Raises ConfigurationError with the arithmetic. Collective where the model is divided."""
    stages, tensor = settings.pipeline, settings.tensor
    data, left = divmod(world.size, stages * tensor)
    if left or settings.data not in (None, data):
        raise ConfigurationError(
            f"training.parallel: {settings.data or max(data, 1)} x {stages} x {tensor} ranks (data x pipeline x "
            f"tensor) do not make the {world.size} that there are"
        )
    mesh = None
    if settings.kind == "fsdp" or stages * tensor > 1:
        names = ("data", "pipeline", "tensor")
        mesh = init_device_mesh(world.device.type, (data, stages, tensor), mesh_dim_names=names)
    return Grid(world.rank, data, stages, tensor, mesh)


def check_parallel(training: TrainingConfig, precision: str) -> None:
    """What does not go together; ``precision``: that steps compute in. Raises ConfigurationError."""
    settings = training.parallel
    if settings.kind == "ddp" and settings.tensor == settings.pipeline == 1:
        return
    if training.gradient_accumulation < settings.pipeline:
        raise ConfigurationError(
            f"training.gradientAccumulation: {training.gradient_accumulation} micro-batches do not fill the "
            f"{settings.pipeline} stages of parallel.pipeline; four times as many keep them busy"
        )
    if training.compile and settings.pipeline > 1:
        raise ConfigurationError(
            "training.compile: the stages of parallel.pipeline are not compiled; leave it out"
        )
    if precision == "fp16":
        auto = ", which auto is on the oldest of these GPUs," if training.precision == "auto" else ""
        raise ConfigurationError(
            f"training.precision: fp16{auto} needs parallel: ddp, since its gradient scaler sees one rank's gradients "
            "alone; use bf16, or fp32 where that is emulated"
        )
    if training.micro_batch == "auto":
        raise ConfigurationError(
            "training.microBatch: auto needs parallel: ddp, since a rank that is out of memory would leave the others "
            "waiting within the model; set gradientAccumulation"
        )


def divide(model: nn.Module, training: TrainingConfig, grid: Grid, root: nn.Module) -> None:
    """Turn the model's parameters into shards, in place, before the optimizer is made; ``root`` is what is called in
    place of it. What is divided goes to the device of ``grid`` piece by piece: no GPU holds all of it. Collective."""
    if grid.mesh is None:
        return
    if grid.tensor_size > 1:
        _divide_layers(model, grid.mesh["tensor"])
    if training.parallel.kind == "fsdp" or grid.data_size > 1:
        data = grid.mesh["data"]
        # Several micro-batches of a pipeline are under way at once: its weights are made whole once a step.
        for block in blocks_of(model):
            fully_shard(block, mesh=data, reshard_after_forward=grid.stages == 1)
        fully_shard(root, mesh=data, reshard_after_forward=False)


def _divide_layers(model: nn.Module, mesh: DeviceMesh) -> None:
    """Heads and hidden columns by rank; what a layer gives is summed over ranks (Megatron-LM, Shoeybi and others 2019).
    Embeddings and norms stay whole: every rank computes them alike."""
    if not isinstance(model, GPT):
        raise ConfigurationError(
            "training.parallel.tensor: only the model gpt is divided by layers; use fsdp"
        )
    if model.heads % mesh.size():
        raise ConfigurationError(
            f"training.parallel.tensor: {model.heads} heads do not divide among {mesh.size()} ranks"
        )
    split, join = ColwiseParallel, RowwiseParallel
    for layer in model.blocks():
        parallelize_module(
            layer,
            mesh,
            {
                "attention.query": split(),
                "attention.key": split(),
                "attention.value": split(),
                "attention.out": join(),
                "up": split(),
                "down": join(),
            },
        )


def place_of(values: torch.Tensor) -> tuple[DeviceMesh, tuple[Placement, ...]] | None:
    """Over which ranks it is spread, and how; none: it is whole. One kernel takes tensors of one place alone."""
    return (values.device_mesh, values.placements) if isinstance(values, DTensor) else None


def exchange_gradients(model: nn.Module, now: bool) -> None:
    """Of an FSDP model: whether the next backward pass sums gradients over ranks."""
    if isinstance(model, FSDPModule):
        model.set_requires_gradient_sync(now)


def as_shards(weights: dict[str, torch.Tensor], model: nn.Module) -> dict[str, torch.Tensor]:
    own = model.state_dict()
    return {name: _like(value, own.get(name)) for name, value in weights.items()}


def _like(value: Any, example: Any) -> Any:
    alike = isinstance(value, torch.Tensor) and isinstance(example, DTensor) and value.shape == example.shape
    if not alike:
        return value
    moved = value.to(example.device, example.dtype)
    return distribute_tensor(moved, example.device_mesh, example.placements, src_data_rank=None)
