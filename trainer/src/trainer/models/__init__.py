"""Models: a few built in, and anything that a user's wheel brings."""
