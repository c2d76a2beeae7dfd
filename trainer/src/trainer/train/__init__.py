"""The training itself: loop, checkpoints, evaluation, stop requests."""
