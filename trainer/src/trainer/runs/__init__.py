"""Starting, watching, stopping and fetching runs: S3 calls with a researcher's rights."""
