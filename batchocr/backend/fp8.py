"""Linear layers in 8-bit floating point: one scale per row of the activations, one per output of the weights."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from batchocr.backend.base import Affine

LARGEST = 448.0
"""The largest value of float8_e4m3fn."""

QuantizeRows = Callable[[Tensor], tuple[Tensor, Tensor]]
"""x [rows, width] → float8_e4m3fn of the same shape, float32 scales [rows, 1]."""

_ALIGNMENT = 16


def fits_fp8(layer: Affine) -> bool:
    """Whether the tensor cores take a matrix of this shape in fp8 (not the patch projection's, with 588 columns)."""
    return all(size % _ALIGNMENT == 0 for size in layer.weight.shape)


def quantize_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """The reference for `QuantizeRows`, in plain torch."""
    scale = x.float().abs().amax(dim=1, keepdim=True).clamp(min=1e-12) / LARGEST
    return (x.float() / scale).to(torch.float8_e4m3fn), scale


class Fp8Linear:
    """Implements `backend.base.Linear`; inputs and outputs keep the model's dtype, bfloat16."""

    def __init__(self, layer: Affine, quantize: QuantizeRows) -> None:
        weight, scale = quantize_rows(layer.weight)
        # [in, out] in column-major order, as the tensor cores need their second matrix.
        self._weight, self._scale = weight.t(), scale.t()
        self._bias = layer.bias
        self._quantize = quantize

    def __call__(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        quantized, scale = self._quantize(x)
        product: Tensor = torch._scaled_mm(
            quantized, self._weight, scale, self._scale, bias=self._bias, out_dtype=x.dtype, use_fast_accum=True
        )
        return product if residual is None else product.add_(residual)
