"""CPU operations: matrix products through oneDNN, with packed weights and the operation that follows fused in;
resizing by Pillow; decode attention that reads the cache in place."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

import torch
from PIL import Image
from torch import Tensor

from batchocr.engine.backend.base import Activation, Affine, Linear, Mlp, PagedContext, ResizePlan, Rows
from batchocr.engine.backend.cpu_cores import Cores
from batchocr.engine.backend.cpu_paged import Places, attend
from batchocr.engine.backend.reference import ReferenceOps
from batchocr.engine.backend.resize import cut_patches

_QUICK_GELU = 1.702

PostOp = Literal["none", "swish", "gelu"]


class CpuOps(ReferenceOps):
    """Implements `backend.base.Ops`. Needs a torch with oneDNN.

    Measured on an AMD EPYC with AVX-512 against `F.linear` (MKL): packed weights take a third of the time for the few
    rows of a decode step and 90 % of it for thousands; an activation or residual fused into the product costs nothing,
    while a separate one passes through memory once more.
    """

    name = "cpu"
    kv_heads_apart = True

    def __init__(self) -> None:
        super().__init__(torch.device("cpu"))
        self._cores = Cores()
        self._places: Places | None = None
        # Pillow releases the GIL while it resizes.
        self._threads = ThreadPoolExecutor(self._cores.all, thread_name_prefix="batchocr-resize")

    def linear(self, layer: Affine) -> Linear:
        return self._packed(layer)

    def mlp(self, inner: Affine, outer: Affine, activation: Activation) -> Mlp:
        match activation:
            case "quick_gelu":
                # quick_gelu(x) = swish(1.702 x) / 1.702, and oneDNN has swish.
                scaled = Affine(inner.weight * _QUICK_GELU, None if inner.bias is None else inner.bias * _QUICK_GELU)
                unscaled = Affine(outer.weight / _QUICK_GELU, outer.bias)
                return _CpuMlp(self._packed(scaled, "swish"), self._packed(unscaled))
            case "gelu":
                return _CpuMlp(self._packed(inner, "gelu"), self._packed(outer))
            case "silu_mul":
                gate, up = _halves(inner)
                return _CpuGatedMlp(self._packed(gate, "swish"), self._packed(up), self._packed(outer))

    def _packed(self, layer: Affine, post_op: PostOp = "none") -> _Packed:
        return _Packed(layer, self._cores, post_op)

    def patches(
        self, images: Sequence[Tensor], plans: Sequence[ResizePlan], patch_size: int, merge_size: int
    ) -> Tensor:
        def one(image: Tensor, plan: ResizePlan) -> Tensor:
            for size in plan:
                image = _resize(image, size)
            return cut_patches(image, patch_size, merge_size)

        return torch.cat(list(self._threads.map(one, images, plans)))

    def paged_attention(self, q: Tensor, cache: Tensor, context: PagedContext) -> Tensor:
        places = self._places
        if places is None or places.context is not context:
            places = self._places = Places.find(context, block_size=cache.shape[2])
        with self._cores.shared_by(2 * q[0].numel() * places.mean_length):
            return attend(q, cache, places)


class _Packed:
    """A linear layer whose weights are packed in the order oneDNN wants.

    oneDNN multiplies bfloat16 only on CPUs with AVX-512. On others such a layer multiplies in float32, and rounds its
    output to bfloat16: nine times as fast there as `F.linear` in bfloat16 (AMD EPYC with AVX2).
    """

    def __init__(self, layer: Affine, cores: Cores, post_op: PostOp) -> None:
        self._dtype = layer.weight.dtype
        self._product_dtype = _product_dtype(self._dtype)
        weight = layer.weight.to(self._product_dtype).contiguous()
        self._weight: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight)
        self._bias = None if layer.bias is None else layer.bias.to(self._product_dtype)
        self._num_weights = layer.weight.numel()
        self._cores = cores
        self._post_op = post_op

    def __call__(self, x: Rows, residual: Tensor | None = None) -> Tensor:
        assert isinstance(x, Tensor)
        if residual is not None:
            return self._with(residual, "add", x)
        algorithm = "none" if self._post_op == "gelu" else ""
        with self._cores.shared_by(len(x) * self._num_weights):
            product: Tensor = torch.ops.mkldnn._linear_pointwise(
                x.to(self._product_dtype), self._weight, self._bias, self._post_op, [], algorithm
            )
        return product.to(self._dtype)

    def times(self, x: Tensor, factor: Tensor) -> Tensor:
        """(x · weightᵀ + bias) · factor, element by element."""
        return self._with(factor, "mul", x)

    def _with(self, other: Tensor, operation: Literal["add", "mul"], x: Tensor) -> Tensor:
        x, other = x.to(self._product_dtype), other.to(self._product_dtype)
        with self._cores.shared_by(len(x) * self._num_weights):
            product: Tensor = torch.ops.mkldnn._linear_pointwise(x, other, self._weight, self._bias, operation)
        return product.to(self._dtype)


def _product_dtype(dtype: torch.dtype) -> torch.dtype:
    """The type in which this CPU multiplies matrices of a type."""
    multiplies_bfloat16: bool = torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return torch.float32 if dtype == torch.bfloat16 and not multiplies_bfloat16 else dtype


@dataclass(frozen=True, slots=True)
class _CpuMlp:
    inner: _Packed
    outer: _Packed

    def __call__(self, x: Rows, residual: Tensor | None = None) -> Tensor:
        return self.outer(self.inner(x), residual)


@dataclass(frozen=True, slots=True)
class _CpuGatedMlp:
    gate: _Packed
    up: _Packed
    down: _Packed

    def __call__(self, x: Rows, residual: Tensor | None = None) -> Tensor:
        assert isinstance(x, Tensor)
        return self.down(self.up.times(x, self.gate(x)), residual)


def _halves(layer: Affine) -> tuple[Affine, Affine]:
    """The two layers stacked in one weight matrix."""
    first, second = layer.weight.chunk(2)
    first_bias, second_bias = (None, None) if layer.bias is None else layer.bias.chunk(2)
    return Affine(first, first_bias), Affine(second, second_bias)


def _resize(image: Tensor, size: tuple[int, int]) -> Tensor:
    """Resize with Pillow itself: the definition, and on the host several times as fast as the same in torch."""
    height, width = size
    if image.shape[:2] == size:
        return image
    source = Image.frombuffer("RGB", (image.shape[1], image.shape[0]), image.numpy(), "raw", "RGB", 0, 1)
    resized = source.resize((width, height), Image.Resampling.BICUBIC)
    return torch.frombuffer(bytearray(resized.tobytes()), dtype=torch.uint8).view(height, width, 3)
