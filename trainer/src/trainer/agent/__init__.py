"""The agent: one process per node, below which the training's workers run. It never imports torch."""
