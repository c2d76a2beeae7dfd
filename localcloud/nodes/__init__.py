"""Nodes of the local cloud: each instance of an Auto Scaling group is a process tree in a folder of its own.

`driver.py` decides as EC2 and a node's systemd would, `process.py` does it, `init.py` is each node's first
process.
"""
