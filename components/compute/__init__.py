"""GPU groups: what a node is, how its capacity is bought and what it may do."""
