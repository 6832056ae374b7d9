"""On a CPU: products through oneDNN, with packed weights and whatever follows them fused in; Pillow resizes."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

import torch
from PIL import Image
from torch import Tensor

from batchocr.backend.base import Activation, Affine, Linear, Mlp, ResizePlan
from batchocr.backend.reference import ReferenceOps
from batchocr.backend.resize import cut_patches

_QUICK_GELU = 1.702

PostOp = Literal["none", "swish", "gelu"]


class CpuOps(ReferenceOps):
    """Implements `backend.base.Ops`. Needs a torch with oneDNN.

    Measured on an AMD EPYC with AVX-512, beside `F.linear` (MKL): the packed weights take a third of the time for the
    few rows of a decode step and 90 % of it for thousands; an activation or residual inside the product costs nothing,
    where one after it goes through memory once more.
    """

    name = "cpu"

    def __init__(self) -> None:
        super().__init__(torch.device("cpu"))
        # Pillow lets go of the interpreter while it resizes.
        self._threads = ThreadPoolExecutor(torch.get_num_threads(), thread_name_prefix="batchocr-resize")

    def linear(self, layer: Affine) -> Linear:
        return _Packed(layer)

    def mlp(self, inner: Affine, outer: Affine, activation: Activation) -> Mlp:
        match activation:
            case "quick_gelu":
                # quick_gelu(x) = swish(1.702 x) / 1.702, and oneDNN has swish.
                scaled = Affine(inner.weight * _QUICK_GELU, None if inner.bias is None else inner.bias * _QUICK_GELU)
                return _Mlp(_Packed(scaled, "swish"), _Packed(Affine(outer.weight / _QUICK_GELU, outer.bias)))
            case "gelu":
                return _Mlp(_Packed(inner, "gelu"), _Packed(outer))
            case "silu_mul":
                return _GatedMlp.pack(inner, outer)

    def patches(
        self, images: Sequence[Tensor], plans: Sequence[ResizePlan], patch_size: int, merge_size: int
    ) -> Tensor:
        def one(image: Tensor, plan: ResizePlan) -> Tensor:
            for size in plan:
                image = _resize(image, size)
            return cut_patches(image, patch_size, merge_size)

        return torch.cat(list(self._threads.map(one, images, plans)))


class _Packed:
    """A linear layer whose weights lie in the order oneDNN wants them."""

    def __init__(self, layer: Affine, post_op: PostOp = "none") -> None:
        self._weight: Tensor = torch.ops.mkldnn._reorder_linear_weight(layer.weight.contiguous())
        self._bias = layer.bias
        self._post_op = post_op

    def __call__(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        product: Tensor
        if residual is None:
            algorithm = "none" if self._post_op == "gelu" else ""
            product = torch.ops.mkldnn._linear_pointwise(x, self._weight, self._bias, self._post_op, [], algorithm)
        else:
            product = torch.ops.mkldnn._linear_pointwise(x, residual, self._weight, self._bias, "add")
        return product

    def times(self, x: Tensor, factor: Tensor) -> Tensor:
        """(x · weightᵀ + bias) · factor, value by value."""
        product: Tensor = torch.ops.mkldnn._linear_pointwise(x, factor, self._weight, self._bias, "mul")
        return product


@dataclass(frozen=True, slots=True)
class _Mlp:
    inner: _Packed
    outer: _Packed

    def __call__(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        return self.outer(self.inner(x), residual)


@dataclass(frozen=True, slots=True)
class _GatedMlp:
    gate: _Packed
    up: _Packed
    down: _Packed

    @classmethod
    def pack(cls, gate_up: Affine, down: Affine) -> _GatedMlp:
        gate_weight, up_weight = gate_up.weight.chunk(2)
        gate_bias, up_bias = (None, None) if gate_up.bias is None else gate_up.bias.chunk(2)
        return cls(_Packed(Affine(gate_weight, gate_bias), "swish"), _Packed(Affine(up_weight, up_bias)), _Packed(down))

    def __call__(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        return self.down(self.up.times(x, self.gate(x)), residual)


def _resize(image: Tensor, size: tuple[int, int]) -> Tensor:
    """Pillow itself: the definition, and several times as fast on the host as the same arithmetic in torch."""
    height, width = size
    if image.shape[:2] == size:
        return image
    source = Image.frombuffer("RGB", (image.shape[1], image.shape[0]), image.numpy(), "raw", "RGB", 0, 1)
    resized = source.resize((width, height), Image.Resampling.BICUBIC)
    return torch.frombuffer(bytearray(resized.tobytes()), dtype=torch.uint8).view(height, width, 3)
