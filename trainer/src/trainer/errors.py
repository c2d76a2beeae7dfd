"""Faults that end a process with a named exit code and one line for people; everything else is a bug (70)."""

from __future__ import annotations

from .exit_codes import Exit


class Fault(Exception):
    """What is wrong, where, and what to do, in one line. ``exit_code`` is what the process ends with."""

    exit_code = Exit.BUG


class ConfigurationError(Fault):
    exit_code = Exit.CONFIGURATION


class BenchmarkFailed(Fault):
    """A benchmark broke off: which device, and what was said last."""

    exit_code = Exit.DEVICE


class DriverError(Fault):
    """The driver, the container runtime, or what connects the devices."""

    exit_code = Exit.DRIVER


class DatasetError(Fault):
    """A dataset version is missing or its bytes are not those that were published."""

    exit_code = Exit.DATASET


class StoreError(Fault):
    """S3, credentials or clock; may pass."""

    exit_code = Exit.S3


class NonFiniteError(Fault):
    exit_code = Exit.NON_FINITE


class OutOfMemoryError(Fault):
    exit_code = Exit.OUT_OF_MEMORY


class PeerLostError(Fault):
    exit_code = Exit.PEER_LOST


class FencedError(PeerLostError):
    """A newer generation owns the run: this one must not write any more."""


class CheckpointError(Fault):
    exit_code = Exit.CHECKPOINT
