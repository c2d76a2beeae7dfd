"""The training loop; one step reads top to bottom.

Runs on CPUs (gloo) and is written for GPUs (NCCL, mixed precision, pinned memory); no GPU has run it yet.
"""

from __future__ import annotations

import math
import time
from contextlib import nullcontext
from typing import Literal

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ..data.dataset import StepSampler, step_loader
from ..data.order import GlobalOrder
from ..errors import NonFiniteError
from ..exit_codes import Exit
from ..models.load import loss_function
from .evaluate import Evaluation
from .job import Job, evaluate_and_keep_best, save, save_and_stop, start_state
from .plan import plan_training
from .summary import loss_summary

SMALLEST_SCALE = 1.0  # of fp16 gradients: where even this overflows, the run is lost


def train(job: Job) -> Literal[Exit.DONE, Exit.STOPPED_SAVED, Exit.STOPPED_STALE]:
    """Train to the last step or to a request to stop; every rank returns the same.

    Raises ConfigurationError, CheckpointError, NonFiniteError, FencedError, StoreError, and what a lost peer
    makes torch.distributed raise (`world.is_peer_loss`).
    """
    training, world, device = job.training, job.world, job.world.device
    plan = plan_training(training, world.size, len(job.train_split))
    order = GlobalOrder(len(job.train_split), training.global_batch_size, training.seed)
    state = start_state(job, plan, order)
    world.wait()  # DDP's first collective has only the time-out of a step: begin it together
    on_gpu = device.type == "cuda"
    ddp = DistributedDataParallel(
        state.model, device_ids=[world.local_rank] if on_gpu else None, gradient_as_bucket_view=True
    )
    loss_of = loss_function(state.model)
    accumulation = training.gradient_accumulation
    sampler = StepSampler(order, world.rank, world.size, accumulation, state.step, plan.total_steps)
    batches = iter(step_loader(job.train_split, sampler, device, job.loader_workers))
    evaluation: Evaluation | None = None
    last_save = time.monotonic()

    while state.step < plan.total_steps:
        began, waited = time.monotonic(), 0.0
        loss_sum = torch.zeros((), device=device)
        for micro_step in range(accumulation):
            asked = time.monotonic()
            images, labels = next(batches)
            waited += time.monotonic() - asked
            images = images.to(device, non_blocking=True).float() / 255
            targets = labels.to(device, non_blocking=True)
            # Ranks sum gradients in the last micro-step only; no_sync must hold for the forward pass too.
            with nullcontext() if micro_step == accumulation - 1 else ddp.no_sync():
                with job.precision.autocast():
                    loss = loss_of(ddp(images), targets) / accumulation
                state.scaler.scale(loss).backward()
            loss_sum += loss.detach()

        # One exchange before the weights change: is every loss a number, must anybody stop, is a save due?
        save_due = world.rank == 0 and time.monotonic() - last_save >= training.checkpoint.every_seconds
        words = world.gather([float(loss_sum), waited, job.stop.weight(), save_due])
        mean_loss = float(words[:, 0].mean())
        _, longest_wait, stop_weight, save_wanted = words.max(dim=0).values.tolist()
        if not math.isfinite(mean_loss):
            job.events.write("step", step=state.step + 1, loss=None, non_finite=True)
            ranks = [rank for rank, loss in enumerate(words[:, 0].tolist()) if not math.isfinite(loss)]
            raise NonFiniteError(f"loss of step {state.step + 1} is not finite on ranks {ranks}; not saved")

        state.scaler.unscale_(state.optimizer)
        if training.clip_norm is not None:
            nn.utils.clip_grad_norm_(state.model.parameters(), training.clip_norm)
        state.scaler.step(state.optimizer)
        state.scaler.update()
        state.optimizer.zero_grad(set_to_none=True)
        if state.scaler.is_enabled() and state.scaler.get_scale() < SMALLEST_SCALE:
            raise NonFiniteError(
                f"fp16 gradients overflow at any scale, step {state.step + 1}; use bf16 or fp32"
            )
        rate = state.scheduler.get_last_lr()[0]
        state.scheduler.step()
        state.step += 1
        state.losses.append(mean_loss)
        job.events.write(
            "step",
            step=state.step,
            loss=mean_loss,
            samples=state.step * training.global_batch_size,
            seconds=time.monotonic() - began,
            data_wait_seconds=longest_wait,
            learning_rate=rate,
        )

        done = state.step == plan.total_steps
        if done or (training.eval_every_steps and state.step % training.eval_every_steps == 0):
            evaluation = evaluate_and_keep_best(job, state, order)
        if stop_weight and not done:
            return save_and_stop(job, state, order, int(stop_weight))
        if save_wanted:
            save(job, state, order, "periodic")
            last_save = time.monotonic()

    if evaluation is None:  # resumed at the very end
        evaluation = evaluate_and_keep_best(job, state, order)
    save(job, state, order, "final")
    first_loss, last_loss = loss_summary(state.losses)
    job.events.write(
        "finished",
        step=state.step,
        epochs=order.epochs_at(state.step),
        first_loss=first_loss,
        last_loss=last_loss,
        eval_loss=evaluation.loss if evaluation else None,
        eval_accuracy=evaluation.accuracy if evaluation else None,
    )
    return Exit.DONE
