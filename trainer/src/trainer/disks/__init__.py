"""A node's disks, put together by root before the agent starts: scratch space, the file system, mounted buckets."""
