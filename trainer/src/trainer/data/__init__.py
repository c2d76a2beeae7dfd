"""Datasets: published once and immutable, synced and verified on every node, read in one global order."""
