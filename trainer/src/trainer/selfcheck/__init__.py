"""Is this machine fit for training? Devices, torch, a matrix benchmark and the host, in a few seconds."""
