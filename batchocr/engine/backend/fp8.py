"""Linear layers in 8-bit floating point: one scale per row of the activations, one per output of the weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from batchocr.engine.backend.base import Activation, Affine, QuantizedRows, Rows
from batchocr.engine.backend.reference import activate

LARGEST = 448.0
"""The largest value of float8_e4m3fn."""

QuantizeRows = Callable[[Tensor], tuple[Tensor, Tensor]]
"""A function that quantises rows: x [rows, width] → float8_e4m3fn of the same shape, float32 scales [rows, 1]."""

AddLayerNormQuantize = Callable[[Tensor, Tensor, Tensor, Tensor, float], tuple[Tensor, Tensor]]
"""A function of a sum and its LayerNorm: (residual, product, weight, bias, eps) → the quantised LayerNorm of the sum,
which is left in the residual."""

GeluBiasQuantize = Callable[[Tensor, Tensor, bool], tuple[Tensor, Tensor]]
"""A function of an activation: (product, bias, quick) → quantised activation(product + bias), quick_gelu or gelu; the
product may be overwritten."""

_ALIGNMENT = 16


def fits_fp8(layer: Affine) -> bool:
    """Whether the tensor cores take a matrix of this shape in fp8 (not the patch projection's, with 588 columns)."""
    return all(size % _ALIGNMENT == 0 for size in layer.weight.shape)


def quantize_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """The reference for `QuantizeRows`, in plain torch."""
    scale = x.float().abs().amax(dim=1, keepdim=True).clamp(min=1e-12) / LARGEST
    return (x.float() / scale).to(torch.float8_e4m3fn), scale


def add_layer_norm_quantize_(
    residual: Tensor, product: Tensor, weight: Tensor, bias: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    """The reference for `AddLayerNormQuantize`, in plain torch."""
    residual.add_(product)
    return quantize_rows(F.layer_norm(residual, weight.shape, weight, bias, eps))


def gelu_bias_quantize(x: Tensor, bias: Tensor, quick: bool) -> tuple[Tensor, Tensor]:
    """The reference for `GeluBiasQuantize`, in plain torch."""
    activation: Activation = "quick_gelu" if quick else "gelu"
    return quantize_rows(activate(x + bias, activation))


@dataclass(frozen=True, slots=True)
class Fp8Kernels:
    """What was chosen for each operation that quantises."""

    quantize_rows: QuantizeRows
    add_layer_norm_: AddLayerNormQuantize
    gelu_bias: GeluBiasQuantize


class Fp8Linear:
    """Implements `backend.base.Linear`; takes the model's dtype, bfloat16, or quantised rows, and returns bfloat16."""

    def __init__(self, layer: Affine, quantize: QuantizeRows) -> None:
        weight, scale = quantize_rows(layer.weight)
        # [in, out] in column-major order, as the tensor cores need their second matrix.
        self._weight, self._scale = weight.t(), scale.t()
        self._bias = layer.bias
        self._dtype = layer.weight.dtype
        self._quantize = quantize

    def __call__(self, x: Rows, residual: Tensor | None = None) -> Tensor:
        rows = x if isinstance(x, QuantizedRows) else QuantizedRows(*self._quantize(x))
        product: Tensor = torch._scaled_mm(
            rows.values,
            self._weight,
            rows.scales,
            self._scale,
            bias=self._bias,
            out_dtype=self._dtype,
            use_fast_accum=True,
        )
        return product if residual is None else product.add_(residual)
