"""Pipeline parallelism of the GPT: each rank holds some of its layers and hands on what they give.

A step is one schedule of torch.distributed.pipelining (1F1B of PipeDream, Narayanan and others 2019 and 2021: each
stage goes back with a micro-batch as soon as it can, so that at most as many are kept as there are stages); an
evaluation goes forward only. Micro-batches are those of gradient accumulation. With m of them and p stages a stage
stands idle for (p - 1) / (m + p - 1) of the step. No GPU has run it yet.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from ..errors import ConfigurationError
from ..models.dropout import SampleKeys
from ..models.gpt import GPT
from ..models.load import IGNORED, cross_entropy
from .feed import MicroBatch
from .parallel import Grid
from .precision import Precision

if TYPE_CHECKING:
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe


class Stage(nn.Module):
    """One rank's part of the model; makes it one, in place. Its layers' names stay those of the whole model.

    Raises ConfigurationError where the model does not divide.
    """

    def __init__(
        self, model: nn.Module, grid: Grid, dropout: SampleKeys, precision: Precision, smoothing: float
    ) -> None:
        super().__init__()
        if not isinstance(model, GPT):
            raise ConfigurationError(
                "training.parallel.pipeline: only the model gpt is divided into stages; use fsdp"
            )
        if len(model.layers) % grid.stages:
            raise ConfigurationError(
                f"training.parallel.pipeline: {len(model.layers)} layers do not divide among {grid.stages} stages"
            )
        self.length, self.width = model.length, model.places.embedding_dim
        self.is_first, self.is_last = grid.stage == 0, grid.stage == grid.stages - 1
        model.keep_stage(grid.stage, grid.stages)
        self.model = model
        self.step = 0  # that a micro-batch belongs to
        self._dropout, self._precision, self._smoothing = dropout, precision, smoothing

    def forward(self, states: torch.Tensor, numbers: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Tokens [b, t] in the first stage, else states [b, t, width] of the one before, to states of the same shape;
        in the last stage to the sum of the loss over the targets that count, [1]. ``numbers`` [b] are the samples'."""
        self._dropout.begin(self.step, numbers)
        with self._precision.autocast():
            if self.is_first:
                states = self.model.embed(states)
            for layer in self.model.blocks():
                states = layer(states)
            if not self.is_last:
                return states
            logits = self.model.head(self.model.norm(states))
            mean = cross_entropy(logits, targets, self._smoothing if self.model.training else 0)
            return torch.stack([mean * (targets != IGNORED).sum()])

    @property
    def counted_elsewhere(self) -> torch.Tensor | None:
        """The last stage's copy of the table of tokens, which is one parameter with the first stage's."""
        return self.model.tokens.weight if self.is_last else None


class Pipeline:
    """This rank's stage among the others of the same samples; every method is collective among them.

    ``scale``: what each sum of losses is multiplied with before it goes backward. ``largest``: samples of a micro-batch
    at most; smaller ones are filled up with targets that do not count, since all that travels has one shape.
    """

    def __init__(
        self, stage: Stage, grid: Grid, device: torch.device, largest: int, micro_batches: int, scale: float
    ) -> None:
        if grid.mesh is None:
            raise ValueError("a grid without a mesh has no stages")
        self.stage, self._grid, self._device, self._largest = stage, grid, device, largest
        self._group = grid.mesh.get_group("pipeline")
        from torch.distributed.pipelining import Schedule1F1B  # half a second, of trainings with stages alone

        self._there_and_back = Schedule1F1B(
            self._of_shape(largest),
            micro_batches,
            loss_fn=lambda loss, _: loss.sum() * scale,  # the stage has taken the targets
            scale_grads=False,
        )
        self._there: ScheduleGPipe | None = None

    def train(self, step: int, batches: Sequence[MicroBatch]) -> torch.Tensor:
        """Gradients of these micro-batches; the sum of the loss in the last stage, 0 in the others."""
        self.stage.step = step
        filled = [
            [
                _filled(one, self._largest, value)
                for one, value in _parts(batch.inputs, batch.targets, batch.numbers)
            ]
            for batch in batches
        ]
        total = self._run(self._there_and_back, *(torch.cat(parts) for parts in zip(*filled, strict=True)))
        self._share_table()
        return total

    def evaluate(self, inputs: torch.Tensor, targets: torch.Tensor, largest: int) -> torch.Tensor:
        """The same, forward only, of a batch of ``largest`` samples at most, spread over as many micro-batches as there
        are stages."""
        stages = self._grid.stages
        share = -(-largest // stages)
        if self._there is None:
            from torch.distributed.pipelining import ScheduleGPipe

            self._there = ScheduleGPipe(self._of_shape(share), stages)
        numbers = torch.zeros(len(inputs), dtype=torch.int64, device=self._device)
        parts = _parts(inputs, targets, numbers)
        total = self._run(self._there, *(_filled(one, share * stages, value) for one, value in parts))
        for module in self.stage.modules():
            if isinstance(module, FSDPModule):  # a backward pass would have done it
                module.reshard()
        return total

    def norm(self, own: float) -> float:
        """Of the gradients of all stages."""
        total = torch.tensor(own * own, dtype=torch.float64, device=self._device)
        dist.all_reduce(total, group=self._group)
        return math.sqrt(float(total))

    def _run(
        self,
        schedule: Schedule1F1B | ScheduleGPipe,
        inputs: torch.Tensor,
        targets: torch.Tensor,
        numbers: torch.Tensor,
    ) -> torch.Tensor:
        first = (inputs,) if self.stage.is_first else ()
        asked: dict[str, Any] = {"numbers": numbers, "targets": targets}
        if schedule is self._there_and_back:
            asked["target"] = targets if self.stage.is_last else None
        try:
            sums = schedule.step(*first, **asked)
        except RuntimeError as error:
            if error.__cause__ is None:
                raise
            raise error.__cause__ from None  # what a stage met comes wrapped: out of memory, a lost peer
        return torch.zeros((), device=self._device) if sums is None else sums.detach().sum()

    def _share_table(self) -> None:
        """First and last stage each have the table of tokens: its gradient is the sum of theirs. The same to the bit on
        both, so that the copies stay one."""
        if not (self.stage.is_first or self.stage.is_last):
            return
        gradient = cast(torch.Tensor, self.stage.model.tokens.weight.grad)
        mine = gradient.to_local() if isinstance(gradient, DTensor) else gradient
        theirs = torch.empty_like(mine)
        other = dist.get_global_rank(self._group, self._grid.stages - 1 if self.stage.is_first else 0)
        ways = [(dist.isend, mine), (dist.irecv, theirs)]
        for work in dist.batch_isend_irecv([dist.P2POp(way, one, other, self._group) for way, one in ways]):
            work.wait()
        mine += theirs

    def _of_shape(self, samples: int) -> PipelineStage:
        tokens = torch.empty(samples, self.stage.length, dtype=torch.int64, device="meta")
        states = torch.empty(samples, self.stage.length, self.stage.width, device="meta", requires_grad=True)
        loss = torch.empty(1, device="meta", requires_grad=True)
        from torch.distributed.pipelining import PipelineStage

        return PipelineStage(
            self.stage,
            self._grid.stage,
            self._grid.stages,
            self._device,
            input_args=tokens if self.stage.is_first else states,
            output_args=loss if self.stage.is_last else states,
            group=self._group,
        )


def _parts(
    inputs: torch.Tensor, targets: torch.Tensor, numbers: torch.Tensor
) -> list[tuple[torch.Tensor, int]]:
    """With what each is filled up."""
    return [(inputs, 0), (targets, IGNORED), (numbers, 0)]


def _filled(values: torch.Tensor, samples: int, value: int) -> torch.Tensor:
    """[b, ...] to [samples, ...]."""
    missing = samples - len(values)
    return torch.cat([values, values.new_full((missing, *values.shape[1:]), value)]) if missing else values
