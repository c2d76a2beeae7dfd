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
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from ..contracts.run import ParallelSettings, TrainingConfig
from ..errors import ConfigurationError
from ..models.gpt import GPT
from ..models.load import blocks_of
from .world import World


@dataclass(frozen=True)
class Grid:
    """Where this rank is: data x tensor ranks, tensor ranks next to each other (they talk most)."""

    data_rank: int
    data_size: int
    tensor_rank: int
    tensor_size: int
    mesh: DeviceMesh | None  # dimensions data and tensor; none: plain data parallelism

    @property
    def tells(self) -> bool:
        """One rank of those that see the same samples tells of them."""
        return self.tensor_rank == 0


def make_grid(settings: ParallelSettings, world: World) -> Grid:
    """Raises ConfigurationError with the arithmetic. Collective where the model is divided."""
    tensor = settings.tensor
    if world.size % tensor or settings.data not in (None, world.size // tensor):
        data = "" if settings.data is None else f"{settings.data} x "
        raise ConfigurationError(
            f"training.parallel: {data}{tensor} ranks (data x tensor) do not make the {world.size} that there are"
        )
    mesh = None
    if settings.kind == "fsdp" or tensor > 1:
        shape = (world.size // tensor, tensor)
        mesh = init_device_mesh(world.device.type, shape, mesh_dim_names=("data", "tensor"))
    return Grid(world.rank // tensor, world.size // tensor, world.rank % tensor, tensor, mesh)


def check_parallel(training: TrainingConfig) -> None:
    """What does not go together; raises ConfigurationError."""
    settings = training.parallel
    if settings.kind == "ddp" and settings.tensor == 1:
        return
    if training.precision == "fp16":
        raise ConfigurationError(
            "training.precision: fp16 needs parallel: ddp, since its gradient scaler sees one rank's gradients alone; "
            "use bf16"
        )
    if training.micro_batch == "auto":
        raise ConfigurationError(
            "training.microBatch: auto needs parallel: ddp, since a rank that is out of memory would leave the others "
            "waiting within the model; set gradientAccumulation"
        )


def divide(model: nn.Module, training: TrainingConfig, grid: Grid) -> None:
    """Turn the model's parameters into shards, in place, before the optimizer is made. Collective."""
    if grid.mesh is None:
        return
    if grid.tensor_size > 1:
        _divide_layers(model, grid.mesh["tensor"])
    if training.parallel.kind == "fsdp" or grid.data_size > 1:
        data = grid.mesh["data"]
        for block in blocks_of(model):
            fully_shard(block, mesh=data)
        fully_shard(model, mesh=data)


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
    for layer in model.layers:
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


def is_divided(model: nn.Module) -> bool:
    return any(isinstance(parameter, DTensor) for parameter in model.parameters())


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
