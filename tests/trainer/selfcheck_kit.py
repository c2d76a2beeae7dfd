"""What tests of the self-check share."""

from __future__ import annotations

from trainer.contracts.node_document import Promise
from trainer.selfcheck.torch_build import TorchBuild

HEALTHY_TORCH = TorchBuild("2.15.0+cu132", "13.2", ("sm_75", "sm_80", "sm_90", "sm_100"))


def promise(gpus: int = 8, model: str = "H100", memory: float = 80.0) -> Promise:
    return Promise(
        instance_type="p5.48xlarge",
        accelerator="nvidia",
        gpu_model=model,
        gpu_count=gpus,
        gpu_memory_gib=memory,
    )
