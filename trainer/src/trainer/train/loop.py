"""The training loop; one step reads top to bottom.

Runs on CPUs (gloo) and is written for GPUs (NCCL, mixed precision, pinned memory); no GPU has run it yet.
"""

from __future__ import annotations

import math
import time
import warnings
from typing import Literal

import torch

from ..data.dataset import StepSampler
from ..errors import NonFiniteError
from ..exit_codes import Exit
from ..models.load import loss_function
from .augment import augment
from .exchange import SAVE_REASONS, RankWords, exchange
from .feed import Feed, as_model_inputs
from .flops import Mfu, peak_flops, training_flops
from .gradients import Update, first_fault, update
from .job import Job, evaluate_and_keep_best, start_state
from .memory import naming_the_setting
from .parallel import divide
from .patience import Patience
from .plan import plan_training
from .prepare import (
    checkpoint_activations,
    compile_model,
    fit_micro_batch,
    replicate,
    start_pipeline,
    without_exchange,
)
from .saving import save, save_and_stop, save_and_wait
from .state import seed_step
from .stragglers import BusyClock, Stragglers
from .summary import loss_summary


def train(job: Job) -> Literal[Exit.DONE, Exit.STOPPED_SAVED, Exit.STOPPED_STALE]:
    """Train to the last step or to a request to stop; every rank returns the same.

    Raises ConfigurationError, CheckpointError, NonFiniteError, OutOfMemoryError, FencedError, StoreError, and what a
    lost peer makes torch.distributed raise (`world.is_peer_loss`).
    """
    training, world, device = job.training, job.world, job.world.device
    grid, whole_world = job.grid, (job.whole_world or world.size) // job.grid.model_size
    plan = plan_training(training, grid.data_size, len(job.train_split), whole_world)
    batch_size = training.global_batch_size
    order = job.train_split.order(batch_size, training.seed)
    loss_of = loss_function(job.model, training.label_smoothing)
    # Of a global batch all of whose targets count, as they nearly always do: what is summed is divided by it at once.
    targets = batch_size * (job.info.sequence_length or 1)
    peaks = world.everybodys(peak_flops(device, job.precision))
    mfu = Mfu(training_flops(job.model, job.info) if all(peaks) else 0.0, peaks)
    # A first step that is left out looks to torch as if optimizer and scheduler came in the wrong order.
    warnings.filterwarnings("ignore", "Detected call of `lr_scheduler.step", UserWarning)
    job.pipeline = start_pipeline(job, plan, grid.data_size / targets)
    divide(job.model, training, grid, root=job.pipeline.stage if job.pipeline else job.model)
    job.model.to(
        device
    )  # after what is divided has gone there piece by piece: no GPU holds all of a divided model
    state = start_state(job, plan, order)
    world.wait()  # the first collective of gradients has only the time-out of a step: begin it together
    with naming_the_setting(training, grid.data_size, plan.accumulation):
        if training.activation_checkpointing:
            checkpoint_activations(job.model, training.model, job.dropout if job.pipeline else None)
        if training.compile:
            compile_model(job, order, plan, loss_of)
        module = replicate(job)
        if training.micro_batch == "auto":
            plan = fit_micro_batch(job, state, order, plan, loss_of)

    def feed_from(step: int) -> Feed:
        sampler = StepSampler(
            order, grid.data_rank, grid.data_size, plan.accumulation, step, plan.total_steps
        )
        return Feed(job.train_split, sampler, device, job.loader_workers)

    feed = feed_from(state.step)
    patience = Patience.of(training)
    busy = BusyClock(device)
    stragglers = Stragglers(
        [len(order.rank_batch(0, rank // grid.model_size, grid.data_size)) for rank in range(world.size)]
    )
    last_save = time.monotonic()
    owed = 0  # the weight of a save that waits for the one under way

    while state.step < plan.total_steps:
        # At a step's start, so that a resume catches up on what a stop cut off.
        due = training.eval_every_steps and state.step % training.eval_every_steps == 0
        if due and state.evaluated_step < state.step:
            evaluate_and_keep_best(job, state, order)

        began, sample_sum, count = time.monotonic(), 0, 0
        busy.start()
        seed_step(training.seed, state.step, grid.data_rank)
        loss_sum = torch.zeros((), device=device)
        with naming_the_setting(training, grid.data_size, plan.accumulation):
            if job.pipeline:
                batches = [feed.take() for _ in range(plan.accumulation)]
                sample_sum, count = (
                    sum(batch.number_sum for batch in batches),
                    sum(batch.count for batch in batches),
                )
                loss_sum = job.pipeline.train(state.step, batches)
                busy.stop()
            else:
                for micro_step in range(plan.accumulation):
                    batch = feed.take()
                    sample_sum, count = sample_sum + batch.number_sum, count + batch.count
                    job.dropout.begin(state.step, batch.numbers)
                    inputs = as_model_inputs(augment(batch.inputs, training.augment, job.dropout))
                    is_last = micro_step == plan.accumulation - 1
                    # Ranks sum gradients in the last micro-step only; that must hold for the forward pass too.
                    with without_exchange(module, not is_last):
                        with job.precision.autocast():
                            loss = loss_of(module(inputs), batch.targets) * batch.count
                        if is_last:
                            busy.stop()  # from here on a rank waits for the others
                        # The ranks' gradients are averaged: so scaled, that is the mean over the global batch's
                        # targets, however unevenly they are spread over ranks and micro-batches.
                        state.scaler.scale(loss * (grid.data_size / targets)).backward()
                    loss_sum += loss.detach()

        # One exchange before the weights change: is every loss a number, must anybody stop, is a save due?
        is_saving = job.saver.check()  # raises what the last save failed with
        save_due = world.rank == 0 and time.monotonic() - last_save >= training.checkpoint.every_seconds
        words = exchange(
            world,
            RankWords(
                loss_sum=float(loss_sum),
                count=count if grid.tells else 0,
                sample_sum=sample_sum if grid.tells else 0,
                waited_seconds=feed.waited(),
                busy_seconds=busy.seconds(),
                stop_weight=job.stop.weight(),
                save_weight=2 if job.stop.take_save() else max(owed, int(save_due)),
                is_saving=int(is_saving),
            ),
        )
        done = Update(math.nan)
        if not words.ranks_without_a_number:
            # Where some targets did not count, which was not known before the last of them was read, correct the mean.
            factor = targets / words.count if words.count else 1.0
            job.saver.let_copy()
            with naming_the_setting(training, grid.data_size, plan.accumulation):
                done = update(state, training.clip_norm, factor, job.pipeline)
        is_number = math.isfinite(done.grad_norm)
        outcome = "overflow" if done.overflow else "number" if is_number else "no number"
        verdict = patience.take(outcome, state.scaler.get_scale())
        if verdict == "stop":
            job.saver.wait()  # what is under way was sound
            job.events.write("step", step=state.step + 1, loss=None, non_finite=True)
            raise NonFiniteError(_why_no_number(state.step + 1, words.ranks_without_a_number, outcome, job))
        state.optimizer.zero_grad(set_to_none=True)
        rate = state.scheduler.get_last_lr()[0]
        state.scheduler.step()
        state.step += 1
        if is_number:
            state.losses.append(words.mean_loss)
        seconds = time.monotonic() - began
        told: dict[str, float] = {} if is_number else {"skipped": True, "non_finite": outcome == "no number"}
        if job.info.sequence_length:
            told["tokens"] = state.step * batch_size * job.info.sequence_length
        if (ratio := mfu.of(batch_size, seconds)) is not None:
            told["mfu"] = ratio
        if device.type == "cuda":
            told["device_peak_bytes"] = torch.cuda.max_memory_allocated(device)
        job.events.write(
            "step",
            step=state.step,
            loss=words.mean_loss,
            samples=state.step * batch_size,
            sample_sum=words.sample_sum,
            seconds=seconds,
            data_wait_seconds=words.waited_seconds,
            learning_rate=rate,
            grad_norm=done.grad_norm,
            **told,
        )
        slow = stragglers.take(words.busy_seconds) if world.rank == 0 else None
        if slow:
            job.events.write("straggler", step=state.step, slow_rank=slow.rank, ratio=slow.ratio)

        if verdict == "roll back":
            job.saver.wait()
            if job.world.from_rank0(job.checkpoints.newest_step) is None:
                raise NonFiniteError(
                    _why_no_number(state.step, words.ranks_without_a_number, outcome, job)
                    + "; there is no checkpoint to go back to"
                )
            state.optimizer.state.clear()  # makes room on the device for what is read
            state = start_state(job, plan, order, after=f"{training.non_finite_limit} steps without a number")
            feed = feed_from(state.step)
            continue
        if state.step == plan.total_steps:
            break
        if words.stop_weight:
            return save_and_stop(job, state, order, words.stop_weight)
        if words.save_weight and words.is_saving:
            if not owed and world.rank == 0:
                waits = (
                    f"the next checkpoint waits for that of step {job.saver.step}, which is still under way"
                )
                job.events.write("note", step=state.step, message=waits)
            owed = words.save_weight
        elif words.save_weight:
            save(job, state, order, SAVE_REASONS[words.save_weight - 1])
            last_save, owed = time.monotonic(), 0

    if mfu.fault:
        job.events.write("note", message=mfu.fault)
    evaluation = evaluate_and_keep_best(job, state, order)
    save_and_wait(job, state, order, "final")
    first_loss, last_loss = loss_summary(state.losses) if state.losses else (None, None)
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


def _why_no_number(step: int, ranks: list[int], outcome: str, job: Job) -> str:
    """In one line: what is not finite, where it is first seen, what to do."""
    fault = first_fault(job.model)
    seen = f", first in the {fault}" if fault else ""
    if outcome == "overflow":
        return f"fp16 gradients overflow at any scale, step {step}{seen}; use bf16 or fp32"
    if ranks:
        return (
            f"loss of step {step} is not finite on ranks {ranks}{seen}; not saved: lower the learning rate, clip, "
            "or look at the data of that step"
        )
    return f"gradient of step {step} is not finite{seen}; not saved: lower the learning rate or clip"
