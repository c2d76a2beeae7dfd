"""The AWS API of the local cloud: moto on loopback, with a thin layer for what moto lacks and nodes call.

`additions.py` holds the one table of that layer. The state is in memory: a cloud whose process ends is gone,
and the next one is a new, empty cloud.
"""
