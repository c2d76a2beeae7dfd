"""The documents that nodes, workers, researchers and the infrastructure program exchange.

Every document is JSON with camelCase keys. Unknown keys are refused: a reader that ignores what it does
not know would run half of what the writer asked for.
"""
