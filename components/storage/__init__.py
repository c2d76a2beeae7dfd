"""Buckets and the encryption key."""
