"""GPU training on one node or many: verifies itself, trains, survives interruption, exports metrics."""

__version__ = "0.1.0"
