"""GPUs as NVML shows them: readings, the floors they must reach, XID errors from the kernel log."""
