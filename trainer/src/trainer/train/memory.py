"""Out of memory: which setting to change, and a micro-batch that fits, found before the first step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from ..contracts.run import TrainingConfig
from ..errors import OutOfMemoryError

COPIES = {"adamw": 2, "sgd": 1}  # of the weights, in the optimizer's state from its first step on


def is_out_of_memory(error: BaseException) -> bool:
    """A GPU's, the process', or that of torch's CPU allocator, which has words only."""
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or "can't allocate memory" in str(error)


@contextmanager
def naming_the_setting(training: TrainingConfig, data_size: int, accumulation: int) -> Iterator[None]:
    """Turns running out of memory into OutOfMemoryError (31) that says what to change."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if is_out_of_memory(error):
            raise OutOfMemoryError(
                f"out of memory with {remedy(training, data_size, accumulation)}"
            ) from error
        raise


def remedy(training: TrainingConfig, data_size: int, accumulation: int) -> str:
    micro_batch = _ceil(_ceil(training.global_batch_size, data_size), accumulation)
    where = (
        f"micro-batches of {micro_batch} (globalBatchSize {training.global_batch_size} over {data_size} ranks, "
        f"gradientAccumulation {accumulation}): "
    )
    if micro_batch > 1:
        auto = "" if training.micro_batch == "auto" else ", or training.microBatch: auto"
        return f"{where}set training.gradientAccumulation to {2 * accumulation}{auto}"
    if not training.activation_checkpointing:
        return f"{where}one sample is too much: set training.activationCheckpointing: true"
    return f"{where}one sample is too much: set training.parallel: fsdp, take more nodes or larger GPUs"


def fitting_accumulation(
    attempt: Callable[[int], None],
    agree: Callable[[bool], bool],
    training: TrainingConfig,
    data_size: int,
    accumulation: int,
) -> int:
    """The smallest doubling of ``accumulation`` whose micro-batches fit on every rank. Collective.

    ``attempt`` takes the number of samples of a micro-batch through the model and back; ``agree`` is True where it
    was True on every rank. Raises OutOfMemoryError where not even one sample fits.
    """
    most = training.global_batch_size // data_size
    while True:
        micro_batch = _ceil(_ceil(training.global_batch_size, data_size), accumulation)
        fits = True
        try:
            attempt(micro_batch)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            fits = False
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()
        if agree(fits):
            return accumulation
        if accumulation == most:
            raise OutOfMemoryError(f"out of memory with {remedy(training, data_size, accumulation)}")
        accumulation = min(2 * accumulation, most)


def _ceil(a: int, b: int) -> int:
    return -(-a // b)
