"""The documents that nodes, workers, researchers and the infrastructure program exchange.

Every document is JSON with camelCase keys. Unknown keys are refused: a reader that ignores what it does
not know would run half of what the writer asked for. The two that the infrastructure program writes, the node
document and ``cluster.json``, are the exception (``ProgramDocument``): an older trainer must be able to read them.
"""
