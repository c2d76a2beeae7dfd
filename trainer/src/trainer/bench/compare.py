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
    fastest = max(gpus, key=lambda figure: figure.tflops_median)
    single = [figure for figure in gpus if figure.dtype == "fp32"]
    chosen = [max(single, key=lambda figure: figure.tflops_median)] if single else []
    if fastest not in chosen:
        chosen.append(fastest)
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
