"""Linear layers in 8-bit integers on a CPU: a scale for each output of the weights, and one for each row of
activations, found as it comes.

Rows go through a layer, or a whole MLP, in groups that the cores' caches hold: for thousands of rows, the passes around
the product would otherwise take as long as the product itself.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from batchocr.engine.backend.base import Affine, Linear, Rows

_LARGEST = 127
_ZERO_POINT = 128
"""Added to the values of activations: oneDNN is fast for unsigned ones on every CPU with VNNI."""
_FINER = 2 * _LARGEST
_ALIGNMENT = 16
_ROWS_PER_CORE = 128
_TINY = 1e-12


def fits_int8(layer: Affine) -> bool:
    """Whether oneDNN is fast for a layer of this shape. The patch projection, with 588 inputs, is none: its inputs are
    bytes, which int8 would round."""
    return layer.weight.shape[1] % _ALIGNMENT == 0


class Int8Linear:
    """Implements `backend.base.Linear`, in bfloat16 around a product in int8."""

    def __init__(self, layer: Affine, *, in_two_parts: bool) -> None:
        """in_two_parts: multiply what rounding takes from the activations as well, as further rows. Then only the
        weights are rounded. With few rows it costs next to nothing, as the time goes into reading the weights."""
        weight = layer.weight.float()
        self._scales = torch.linalg.vector_norm(weight, torch.inf, dim=1).clamp_(min=_TINY) / _LARGEST
        values = (weight / self._scales.unsqueeze(1)).round_().to(torch.int8)
        self._weight: Tensor = torch.ops.onednn.qlinear_prepack(values, None)
        self._zero_points = torch.zeros(len(values), dtype=torch.int64)
        self._bias = layer.bias
        self._in_two_parts = in_two_parts
        self.out_width = len(values)

    def __call__(self, x: Rows, residual: Tensor | None = None) -> Tensor:
        assert isinstance(x, Tensor)
        return in_groups(self._some, x, residual, self.out_width)

    def _some(self, x: Tensor, residual: Tensor | None) -> Tensor:
        product, scales = self._exact(x) if self._in_two_parts else self._rounded(x)
        total = product.mul_(scales) if self._bias is None else torch.addcmul(self._bias, product, scales)
        return total.to(x.dtype) if residual is None else residual.add_(total)

    def _rounded(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The product without the rows' scales, and these."""
        scales = row_scales(x)
        return self._product(x.div(scales).round_()), scales

    def _exact(self, x: Tensor) -> tuple[Tensor, Tensor]:
        scales = row_scales(x)
        values = x.float().div_(scales)
        rounded, rest = both = torch.empty(2, *x.shape)
        torch.round(values, out=rounded)
        torch.sub(values, rounded, out=rest).mul_(_FINER).round_()
        rounded, rest = self._product(both.flatten(0, 1)).chunk(2)
        return rounded.add_(rest, alpha=1 / _FINER), scales

    def _product(self, values: Tensor) -> Tensor:
        """values: whole numbers from -127 to 127, overwritten. Returns values · weightᵀ with the weights' scales, in
        bfloat16 if the values are and oneDNN is fast for it; otherwise in float32."""
        qx = values.add_(_ZERO_POINT).to(torch.uint8)
        dtype = values.dtype if torch.ops.mkldnn._is_mkldnn_bf16_supported() else torch.float32
        product: Tensor = torch.ops.onednn.qlinear_pointwise(
            qx, 1.0, _ZERO_POINT, self._weight, self._scales, self._zero_points, None, 1.0, 0, dtype,
            "none", [], "",
        )  # fmt: skip
        return product


def int8_mlp(inner: Int8Linear, outer: Int8Linear, activation: Callable[[Tensor], Tensor]) -> Linear:
    """outer(activation(inner(x))), for some rows at a time."""

    def some(x: Tensor, residual: Tensor | None) -> Tensor:
        return outer(activation(inner(x)), residual)

    def run(x: Rows, residual: Tensor | None = None) -> Tensor:
        assert isinstance(x, Tensor)
        return in_groups(some, x, residual, outer.out_width)

    return run


def row_scales(x: Tensor) -> Tensor:
    """x: [rows, width]. Returns what its rows are divided by, [rows, 1] of the same type."""
    # In bfloat16 a scale may be too small by 1/256. Even then no value is rounded to 128.
    return (x.abs().amax(dim=1, keepdim=True).float() / (_LARGEST - 0.5)).clamp_(min=_TINY).to(x.dtype)


def in_groups(
    run: Callable[[Tensor, Tensor | None], Tensor], x: Tensor, residual: Tensor | None, out_width: int
) -> Tensor:
    """run(x, residual), for some rows at a time. run: may overwrite the residual, and return it."""
    size = max(2, torch.get_num_threads()) * _ROWS_PER_CORE
    if len(x) <= size:
        return run(x, residual)
    out = x.new_empty(len(x), out_width) if residual is None else residual
    for rows, place in zip(torch.split(x, size), torch.split(out, size), strict=True):
        result = run(rows, None if residual is None else place)
        if result is not place:
            place.copy_(result)
    return out
