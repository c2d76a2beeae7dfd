"""The training loop; one step reads top to bottom.

Runs on CPUs (gloo) and is written for GPUs (NCCL, mixed precision, pinned memory); no GPU has run it yet.
"""

from __future__ import annotations

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
from .exchange import SAVE_REASONS, RankWords, exchange
from .job import Job, evaluate_and_keep_best, save, save_and_stop, start_state
from .plan import plan_training
from .state import seed_step
from .stragglers import BusyClock, Stragglers
from .summary import loss_summary

SMALLEST_SCALE = 1.0  # of fp16 gradients: where even this overflows, the run is lost


def train(job: Job) -> Literal[Exit.DONE, Exit.STOPPED_SAVED, Exit.STOPPED_STALE]:
    """Train to the last step or to a request to stop; every rank returns the same.

    Raises ConfigurationError, CheckpointError, NonFiniteError, FencedError, StoreError, and what a lost peer
    makes torch.distributed raise (`world.is_peer_loss`).
    """
    training, world, device = job.training, job.world, job.world.device
    plan = plan_training(training, world.size, len(job.train_split), job.whole_world)
    batch_size, accumulation = training.global_batch_size, plan.accumulation
    order = GlobalOrder(len(job.train_split), batch_size, training.seed)
    state = start_state(job, plan, order)
    world.wait()  # DDP's first collective has only the time-out of a step: begin it together
    on_gpu = device.type == "cuda"
    ddp = DistributedDataParallel(
        state.model, device_ids=[world.local_rank] if on_gpu else None, gradient_as_bucket_view=True
    )
    loss_of = loss_function(state.model)
    sampler = StepSampler(order, world.rank, world.size, accumulation, state.step, plan.total_steps)
    batches = iter(step_loader(job.train_split, sampler, device, job.loader_workers))
    busy = BusyClock(device)
    stragglers = Stragglers([len(order.rank_batch(0, rank, world.size)) for rank in range(world.size)])
    last_save = time.monotonic()

    while state.step < plan.total_steps:
        due = training.eval_every_steps and state.step % training.eval_every_steps == 0
        if (
            due and state.evaluated_step < state.step
        ):  # here, so that a resume catches up on what a stop cut off
            evaluate_and_keep_best(job, state, order)

        began, waited, sample_sum = time.monotonic(), 0.0, 0
        busy.start()
        seed_step(training.seed, state.step, world.rank)
        loss_sum = torch.zeros((), device=device)
        for micro_step in range(accumulation):
            asked = time.monotonic()
            batch = next(batches)
            waited += time.monotonic() - asked
            sample_sum += int(batch.numbers.sum())
            images = batch.images.to(device, non_blocking=True).float() / 255
            targets = batch.labels.to(device, non_blocking=True)
            job.dropout.begin(state.step, batch.numbers.to(device, non_blocking=True))
            is_last = micro_step == accumulation - 1
            # Ranks sum gradients in the last micro-step only; no_sync must hold for the forward pass too.
            with nullcontext() if is_last else ddp.no_sync():
                with job.precision.autocast():
                    # DDP takes the mean over ranks: weighted so, it is the mean over the global batch's samples,
                    # however unevenly they are spread over ranks and micro-batches.
                    loss = loss_of(ddp(images), targets) * (len(targets) * world.size / batch_size)
                if is_last:
                    busy.stop()  # from here on a rank waits for the others
                state.scaler.scale(loss).backward()
            loss_sum += loss.detach()

        # One exchange before the weights change: is every loss a number, must anybody stop, is a save due?
        save_due = world.rank == 0 and time.monotonic() - last_save >= training.checkpoint.every_seconds
        words = exchange(
            world,
            RankWords(
                loss=float(loss_sum),
                sample_sum=sample_sum,
                waited_seconds=waited,
                busy_seconds=busy.seconds(),
                stop_weight=job.stop.weight(),
                save_weight=2 if job.stop.take_save() else int(save_due),
            ),
        )
        if words.ranks_without_a_number:
            job.events.write("step", step=state.step + 1, loss=None, non_finite=True)
            raise NonFiniteError(
                f"loss of step {state.step + 1} is not finite on ranks {words.ranks_without_a_number}; not saved"
            )

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
        state.losses.append(words.mean_loss)
        job.events.write(
            "step",
            step=state.step,
            loss=words.mean_loss,
            samples=state.step * batch_size,
            sample_sum=words.sample_sum,
            seconds=time.monotonic() - began,
            data_wait_seconds=words.waited_seconds,
            learning_rate=rate,
        )
        slow = stragglers.take(words.busy_seconds) if world.rank == 0 else None
        if slow:
            job.events.write("straggler", step=state.step, slow_rank=slow.rank, ratio=slow.ratio)

        if state.step == plan.total_steps:
            break
        if words.stop_weight:
            return save_and_stop(job, state, order, words.stop_weight)
        if words.save_weight:
            save(job, state, order, SAVE_REASONS[words.save_weight - 1])
            last_save = time.monotonic()

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
