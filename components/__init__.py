"""Pulumi components for GPU training on AWS. Plans decide, components only declare."""
