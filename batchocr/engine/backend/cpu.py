"""CPU operations: matrix products through oneDNN, with packed weights and the operation that follows fused in;
resizing by Pillow; decode attention that reads the cache in place."""

from __future__ import annotations

import math
import mmap
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Final, Literal

import torch
from PIL import Image
from torch import Tensor

from batchocr.engine.backend.base import Activation, Affine, Linear, PagedContext, ResizePlan, Rows, Segments
from batchocr.engine.backend.cpu_paged import Places, attend
from batchocr.engine.backend.reference import Ops
from batchocr.engine.backend.resize import cut_patches
from batchocr.machine import multiplies_bfloat16

_QUICK_GELU = 1.702

PostOp = Literal["none", "swish", "gelu", "gelu_tanh"]
_GELUS: Final[Mapping[PostOp, tuple[str, str]]] = {"gelu": ("gelu", "none"), "gelu_tanh": ("gelu", "tanh")}
"""The name of the activation in oneDNN: its operation and its algorithm."""


class CpuOps(Ops):
    """The operations of a CPU; they need a torch with oneDNN.

    Measured on an AMD EPYC with AVX-512 against `F.linear` (MKL): packed weights take a third of the time for the few
    rows of a decode step and 90 % of it for thousands; an activation or residual fused into the product costs nothing,
    while a separate one passes through memory once more.
    """

    name = "cpu"
    kv_heads_apart = True

    def __init__(self) -> None:
        super().__init__(torch.device("cpu"))
        self._places: Places | None = None
        # Pillow releases the GIL while it resizes. Torch computes nothing in these threads: it would start OpenMP ones
        # for each, and with more of them than cores, OpenMP lets all that wait sleep at once.
        self._threads = ThreadPoolExecutor(torch.get_num_threads(), thread_name_prefix="batchocr-resize")

    def linear(self, layer: Affine) -> Linear:
        return _Packed(layer)

    def mlp(self, inner: Affine, outer: Affine, activation: Activation) -> Linear:
        match activation:
            case "quick_gelu":
                # quick_gelu(x) = swish(1.702 x) / 1.702, and oneDNN has swish.
                scaled = Affine(inner.weight * _QUICK_GELU, None if inner.bias is None else inner.bias * _QUICK_GELU)
                unscaled = Affine(outer.weight / _QUICK_GELU, outer.bias)
                first, last = _Packed(scaled, "swish"), _Packed(unscaled)
            case "gelu" | "gelu_tanh":
                first, last = _Packed(inner, activation), _Packed(outer)
            case "silu_mul":
                return _gated_mlp(inner, outer)
        return lambda x, residual=None: last(first(x), residual)

    def zeros(self, shape: Sequence[int], like: Tensor) -> Tensor:
        # The system gives out this memory where it is first written to, which most of a KV cache never is.
        memory = mmap.mmap(-1, math.prod(shape) * like.itemsize, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        return torch.frombuffer(memory, dtype=like.dtype).view(*shape)

    def patches(
        self, images: Sequence[Tensor], plans: Sequence[ResizePlan], patch_size: int, merge_size: int
    ) -> Tensor:
        resized = self._threads.map(_resize, images, plans)
        return torch.cat([cut_patches(image, patch_size, merge_size) for image in resized])

    def attention(self, q: Tensor, k: Tensor, v: Tensor, segments: Segments, causal: bool) -> Tensor:
        dtype = _product_dtype(q.dtype)
        return super().attention(q.to(dtype), k.to(dtype), v.to(dtype), segments, causal).to(q.dtype)

    def paged_attention(self, q: Tensor, cache: Tensor, context: PagedContext) -> Tensor:
        places = self._places
        if places is None or places.context is not context:
            places = self._places = Places.find(context, block_size=cache.shape[2])
        return attend(q.to(_product_dtype(q.dtype)), cache, places).to(q.dtype)


class _Packed:
    """A linear layer whose weights are packed in the order oneDNN wants.

    On CPUs without units for bfloat16 such a layer multiplies in float32, and rounds its output to bfloat16: nine times
    as fast there as `F.linear` in bfloat16 (AMD EPYC with AVX2), and four times as fast as oneDNN in bfloat16 (a Xeon
    without its newer units).
    """

    def __init__(self, layer: Affine, post_op: PostOp = "none") -> None:
        self._dtype = layer.weight.dtype
        self._product_dtype = _product_dtype(self._dtype)
        weight = layer.weight.to(self._product_dtype).contiguous()
        self._weight: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight)
        self._bias = None if layer.bias is None else layer.bias.to(self._product_dtype)
        self._post_op = post_op

    def __call__(self, x: Rows, residual: Tensor | None = None) -> Tensor:
        assert isinstance(x, Tensor)
        if residual is not None:
            return self._with(residual, "add", x)
        operation, algorithm = _GELUS.get(self._post_op, (self._post_op, ""))
        x = x.to(self._product_dtype)
        product: Tensor = torch.ops.mkldnn._linear_pointwise.default(
            x, self._weight, self._bias, operation, [], algorithm
        )
        return product.to(self._dtype)

    def times(self, x: Tensor, factor: Tensor) -> Tensor:
        """(x · weightᵀ + bias) · factor, element by element."""
        return self._with(factor, "mul", x)

    def _with(self, other: Tensor, operation: Literal["add", "mul"], x: Tensor) -> Tensor:
        x, other = x.to(self._product_dtype), other.to(self._product_dtype)
        product: Tensor = torch.ops.mkldnn._linear_pointwise.binary(x, other, self._weight, self._bias, operation)
        return product.to(self._dtype)


def _gated_mlp(inner: Affine, outer: Affine) -> Linear:
    weights = inner.weight.chunk(2)
    biases = (None, None) if inner.bias is None else inner.bias.chunk(2)
    first, second = (Affine(weight, bias) for weight, bias in zip(weights, biases, strict=True))
    gate, up, down = _Packed(first, "swish"), _Packed(second), _Packed(outer)

    def run(x: Rows, residual: Tensor | None = None) -> Tensor:
        assert isinstance(x, Tensor)
        return down(up.times(x, gate(x)), residual)

    return run


@cache
def _product_dtype(dtype: torch.dtype) -> torch.dtype:
    """The type in which this CPU multiplies matrices of a type."""
    return torch.float32 if dtype == torch.bfloat16 and not multiplies_bfloat16() else dtype


def _resize(image: Tensor, plan: ResizePlan) -> Tensor:
    """Resize with Pillow itself: the definition, and on the host several times as fast as the reference in torch."""
    for height, width in plan:
        if image.shape[:2] != (height, width):
            source = Image.frombuffer("RGB", (image.shape[1], image.shape[0]), image.numpy(), "raw", "RGB", 0, 1)
            resized = source.resize((width, height), Image.Resampling.BICUBIC)
            image = torch.frombuffer(bytearray(resized.tobytes()), dtype=torch.uint8).view(height, width, 3)
    return image
