"""One square matrix product of one dtype: operands, the product itself, its error against float64, its bits."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

DTYPES = ("fp32", "tf32", "fp16", "bf16", "fp8")
TILE = 128  # rows and columns that are compared with float64
# Allowed |C - R| / (|row of A| |column of B|): output rounding of fp16 and bf16, input rounding of tf32 (2^-11, both
# sides), accumulated rounding of fp32. fp8 is compared with the product of the numbers it was rounded to, so that what
# remains is its bf16 output. A flipped high bit of one product is far above each of them.
TOLERANCE = {"fp32": 2.0**-20, "tf32": 2.0**-9, "fp16": 2.0**-10, "bf16": 2.0**-7, "fp8": 2.0**-7}
# Standard normal numbers times this use the range of e4m3 (448 at most) and never saturate it: numbers drawn over its
# whole range end at its largest, and the product says nothing (gpu-fryer). A power of two: exact to undo.
FP8_SCALE = 64.0


@dataclass
class Product:
    """C = A B with A, B [n, n] of standard normal numbers; ``b`` is a transposed view, as weights are."""

    dtype: str
    a: torch.Tensor
    b: torch.Tensor
    c: torch.Tensor
    scale: torch.Tensor | None = None  # fp8: what the operands are to be multiplied with

    @classmethod
    def random(cls, n: int, dtype: str, device: str, seed: int) -> Product:
        """The same numbers on every device of one kind."""
        import torch

        kinds = {"fp32": torch.float32, "tf32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}

        def operand(seed: int) -> torch.Tensor:
            generator = torch.Generator(device=device).manual_seed(seed)
            numbers = torch.randn(n, n, generator=generator, device=device, dtype=torch.float32)
            if dtype == "fp8":
                return (numbers * FP8_SCALE).to(torch.float8_e4m3fn)
            return numbers.to(kinds[dtype])

        out = kinds.get(dtype, torch.bfloat16)
        scale = torch.tensor(1 / FP8_SCALE, device=device) if dtype == "fp8" else None
        return cls(
            dtype, operand(seed), operand(seed + 1).t(), torch.empty(n, n, dtype=out, device=device), scale
        )

    @property
    def n(self) -> int:
        return self.a.shape[0]

    def run(self) -> None:
        """Into ``c``: the same buffer each time, since its alignment may choose the kernel."""
        import torch

        if self.scale is None:
            torch.matmul(self.a, self.b, out=self.c)
        else:
            scaled_mm: Any = torch._scaled_mm  # type: ignore[reportPrivateImportUsage]  the one way to fp8 there is
            scaled_mm(
                self.a, self.b, scale_a=self.scale, scale_b=self.scale, out_dtype=torch.bfloat16, out=self.c
            )

    def spoil(self) -> None:
        """Random bits into ``c``, so that a product that is not done does not look like one."""
        self._bits().random_()

    def same_as(self, other: torch.Tensor) -> bool:
        """Bit by bit: NaN is equal to itself, and -0 is not 0."""
        import torch

        return bool(torch.equal(self._bits(), self._bits(other)))

    def digest(self) -> str:
        """Of the bits of ``c``: two GPUs of one kind give the same."""
        return hashlib.sha256(self._bits().cpu().numpy().data).hexdigest()

    def done(self) -> bool:
        import torch

        return bool(torch.isfinite(self.c).all()) and bool((self.c != 0).any())

    def error(self) -> float:
        undo = 1.0 if self.scale is None else 1 / FP8_SCALE
        return normalised_error(self.a, self.b, self.c, undo)

    def _bits(self, tensor: torch.Tensor | None = None) -> Any:
        import torch

        tensor = self.c if tensor is None else tensor
        return tensor.view(torch.int32 if tensor.element_size() == 4 else torch.int16)


def normalised_error(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, undo: float = 1.0) -> float:
    """Largest |C - R| / (|row of A| |column of B|) over the tile in the middle, R = A B in float64.

    ``a`` [m, k], ``b`` [k, n], both to be multiplied with ``undo``; ``c`` [m, n]. A value that is no number gives
    infinity.
    """
    rows = slice(max(0, (a.shape[0] - TILE) // 2), (a.shape[0] + TILE) // 2)
    columns = slice(max(0, (b.shape[1] - TILE) // 2), (b.shape[1] + TILE) // 2)
    left, right = a[rows].float().double() * undo, b[:, columns].float().double() * undo
    difference = (c[rows, columns].double() - left @ right).abs()
    scale = left.norm(dim=1, keepdim=True) * right.norm(dim=0, keepdim=True)
    error = float((difference / scale).max())
    return error if error == error else float("inf")  # NaN is not equal to itself
