"""GPU against CPU, both measured now: there is no published figure that would fit this machine's cores. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from ..contracts.base import Document
from ..selfcheck.report import MatmulFigure


class AgainstCpu(Document):
    """The fastest GPU's products of one dtype to those of all CPU cores together in fp32."""

    dtype: str
    gpu: str
    gpu_tflops: float
    gpu_n: int
    cpu_tflops: float
    cpu_n: int  # smaller where the CPU's time box ends before the GPU's size
    cpu_cores: int
    ratio: float


def against_cpu(gpus: Sequence[MatmulFigure], cpu: MatmulFigure, cores: int) -> list[AgainstCpu]:
    """fp32 against fp32, and the GPU's fastest dtype."""
    if not gpus:
        return []
    ranked = sorted(gpus, key=lambda figure: -figure.tflops_median)
    single = next((figure for figure in ranked if figure.dtype == "fp32"), ranked[0])
    chosen = [single] if single is ranked[0] else [single, ranked[0]]
    return [
        AgainstCpu(
            dtype=figure.dtype,
            gpu=figure.device,
            gpu_tflops=figure.tflops_median,
            gpu_n=figure.n,
            cpu_tflops=cpu.tflops_median,
            cpu_n=cpu.n,
            cpu_cores=cores,
            ratio=figure.tflops_median / cpu.tflops_median,
        )
        for figure in chosen
    ]
