"""The model before its first step: checkpointed activations, compiled, and a micro-batch that fits."""

from __future__ import annotations

import functools
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from ..data.order import GlobalOrder
from ..errors import ConfigurationError
from ..models.dropout import SampleKeys, SeededDropout
from ..models.load import LossFunction, blocks_of
from .augment import augment
from .feed import as_model_inputs
from .job import Job
from .memory import COPIES, fitting_accumulation, is_out_of_memory
from .parallel import exchange_gradients
from .pipeline import Pipeline, Stage
from .plan import Plan
from .state import TrainState, seed_step


def checkpoint_activations(model: nn.Module, name: str, interleaved: SampleKeys | None = None) -> None:
    """Each of the model's blocks keeps its inputs alone and is computed again for the backward pass.

    Non-reentrant: the reentrant way does not go with DDP (accelerate 389, pytorch 65537). ``interleaved``: the samples'
    keys where another micro-batch may have begun meanwhile, whose masks are not to be taken. Raises ConfigurationError.
    """
    blocks = blocks_of(model)
    if not blocks:
        raise ConfigurationError(f'training.activationCheckpointing: model "{name}" has no method blocks()')
    how: dict[str, Any] = {"use_reentrant": False}
    if interleaved is not None:
        how["context_fn"] = lambda: (nullcontext(), interleaved.as_now())
    for block in blocks:
        block.forward = functools.partial(checkpoint, block.forward, **how)  # type: ignore[method-assign]


def compile_model(job: Job, order: GlobalOrder, plan: Plan, loss_of: LossFunction) -> None:
    """torch.compile in place, so that the state's keys stay; where it fails on any rank, none compiles. Collective."""
    micro_batch = -(-len(order.rank_batch(0, 0, job.grid.data_size)) // plan.accumulation)
    for module in job.model.modules():
        if isinstance(module, SeededDropout):  # counts calls and hashes: nothing for a compiler
            module.forward = torch.compiler.disable(module.forward)  # type: ignore[method-assign]
    job.model.compile()
    fault = ""
    try:
        _through_and_back(job, order, 0, micro_batch, loss_of)
    except Exception as error:
        if is_out_of_memory(error):
            raise
        fault = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    faults: list[str] = job.world.everybodys(fault)
    if any(faults):
        job.model._compiled_call_impl = None  # type: ignore[assignment]
        rank = next(rank for rank, told in enumerate(faults) if told)
        job.events.write(
            "note", message=f"torch.compile failed on rank {rank}, trained without it: {faults[rank]}"
        )


def start_pipeline(job: Job, plan: Plan, scale: float) -> Pipeline | None:
    """Make the model a stage; ``scale``: what sums of losses are multiplied with. None: the run asks for no stages."""
    if job.grid.stages == 1:
        return None
    stage = Stage(job.model, job.grid, job.dropout, job.precision, job.training.label_smoothing)
    micro_batches = job.grid.data_size * plan.accumulation
    largest = -(-job.training.global_batch_size // micro_batches)
    return Pipeline(stage, job.grid, job.world.device, largest, plan.accumulation, scale)


def replicate(job: Job) -> nn.Module:
    """What is called in place of the model: ranks average gradients when it goes backward. Collective."""
    if job.grid.mesh is not None or job.world.size == 1:
        return job.model  # divided, so that its shards do it; or nobody to share with
    on_gpu = job.world.device.type == "cuda"
    return DistributedDataParallel(
        job.model, device_ids=[job.world.local_rank] if on_gpu else None, gradient_as_bucket_view=True
    )


def without_exchange(module: nn.Module, quiet: bool) -> AbstractContextManager[None]:
    """Around a forward and backward pass; ``quiet``: gradients are added up on this rank alone."""
    if isinstance(module, DistributedDataParallel):
        return module.no_sync() if quiet else nullcontext()
    exchange_gradients(module, not quiet)
    return nullcontext()


def fit_micro_batch(
    job: Job, state: TrainState, order: GlobalOrder, plan: Plan, loss_of: LossFunction
) -> Plan:
    """``plan`` with as much accumulation as memory asks for, the same on all ranks; the global batch stays.

    Tries forward and backward beside as much memory as the optimizer will keep. Raises OutOfMemoryError. Collective.
    """
    sizes = [parameter.numel() for parameter in state.model.parameters()]
    kept = 0 if state.optimizer.state else sum(sizes) * COPIES[job.training.optimizer]

    def attempt(samples: int) -> None:
        reserve = torch.empty(kept, device=job.world.device)
        try:
            _through_and_back(job, order, state.step, samples, loss_of)
        finally:
            del reserve

    accumulation = fitting_accumulation(
        attempt,
        lambda fits: not any(not told for told in job.world.everybodys(fits)),
        job.training,
        job.grid.data_size,
        plan.accumulation,
    )
    if accumulation != plan.accumulation:
        job.events.write(
            "note",
            step=state.step,
            message=f"out of memory before the first step: gradient accumulation {plan.accumulation} became "
            f"{accumulation}, the global batch stays {order.global_batch}",
        )
    return replace(plan, accumulation=accumulation)


def _through_and_back(job: Job, order: GlobalOrder, step: int, samples: int, loss_of: LossFunction) -> None:
    """A micro-batch as the step's own, which leaves nothing behind.

    The bare model, since a replica's wrapper would have ranks wait for each other, of which one may be out of memory. A
    divided one does sum its gradients: whole ones would wait within it for the first step to add to.
    """
    batch = job.train_split.take(order.rank_batch(step, job.grid.data_rank, job.grid.data_size)[:samples])
    device, model = job.world.device, job.model
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    seed_step(job.training.seed, step, job.grid.data_rank)
    job.dropout.begin(step, batch.numbers.to(device))
    inputs = as_model_inputs(augment(batch.inputs.to(device), job.training.augment, job.dropout))
    try:
        with job.precision.autocast():
            loss = loss_of(model(inputs), batch.targets.to(device))
        loss.backward()
    finally:
        model.zero_grad(set_to_none=True)
        for name, buffer in model.named_buffers():
            buffer.copy_(buffers[name])
