"""What the SDK tells the engine beside the resources."""

from __future__ import annotations

import os

import pulumi.log

SDK_DEBUG = pulumi.log.debug
DEBUG_VARIABLE = (
    "GPU_TRAINING_SDK_DEBUG"  # set: the SDK's debug messages go to the engine, for `pulumi --debug`
)


def without_debug_messages() -> None:
    """Keep the SDK's debug messages from the engine.

    The SDK sends four or five a resource, each by a blocking call, whether or not anybody asked for them (pulumi
    3.250, log.py); with twenty groups they are a quarter of a preview's time.
    """
    if not os.environ.get(DEBUG_VARIABLE):
        pulumi.log.debug = _nobody_asked


def _nobody_asked(*message: object, **context: object) -> None:
    """In place of `pulumi.log.debug`."""
