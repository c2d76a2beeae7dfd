"""The documents that nodes, workers, researchers and the infrastructure program exchange.

Every document is JSON with camelCase keys. Unknown keys are refused: a reader that ignores what it does
not know would run half of what the writer asked for. The exceptions are what an older trainer must be able to
read after a roll-back: what the infrastructure program writes (``ProgramDocument``), and what nodes write about a
run (``NodesDocument``), whose next generation may be of the older release.
"""
