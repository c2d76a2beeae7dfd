"""Benchmarks that a node is judged by."""
