"""Operations with one thing changed that may make the engine faster, to measure before the product gets any of it.

Each function takes the operations that were chosen for the GPU and returns those of a variant; a model that is loaded
with them has the lever in it. Raises UsageError or ImportError where the lever needs what is not there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from importlib import import_module
from typing import Any, NamedTuple

import torch
from torch import Tensor

from batchocr.engine.backend.base import Affine, Linear, QuantizedRows, Rows, Segments
from batchocr.engine.backend.cuda import Attention, CudaOps, PlainLinear, _CudaMlp
from batchocr.engine.backend.fp8 import LARGEST, Fp8Linear, QuantizeRows, fits_fp8
from batchocr.engine.backend.reference import Ops
from batchocr.errors import UsageError

_MOST_OUTPUTS_IN_FP8 = 1 << 16
"""Of a linear layer: the output weights of the language model, which decide about tokens, have more."""
_MOST_DECODED_ROWS = 512


def sm_margin(count: int) -> Callable[[Ops], Ops]:
    """FA3 leaves so many multiprocessors to what runs beside the ViT's attention."""
    return lambda ops: replace(_on_gpu(ops), attention=_fa3(sm_margin=count))


def free_sms(count: int) -> Callable[[Ops], Ops]:
    """FA3 and the ViT's products leave so many multiprocessors to what runs beside them."""
    return lambda ops: FreeSms(**_fields(_on_gpu(sm_margin(count)(ops))), count=count)


def fp8_attention(ops: Ops) -> Ops:
    """The ViT's attention in e4m3; q, k and v are quantised where q and k are rotated, without a scale."""
    from benchmarks.gpu.lever_kernels import rotary_quantize

    def rotary(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        quantized_q, quantized_k, _ = rotary_quantize(_product_of(q), cos, sin).unbind(1)
        return quantized_q, quantized_k

    attend = _fa3()
    return replace(
        _on_gpu(ops),
        rotary=rotary,
        attention=lambda q, k, v, segments, causal: attend(q, k, _product_of(q)[:, 2], segments, causal),
    )


def scaled_fp8_attention(ops: Ops) -> Ops:
    """The ViT's attention in e4m3 with a scale for each head of a batch, in plain torch: slow, to see what scales are
    good for."""

    def attend(q: Tensor, k: Tensor, v: Tensor, segments: Segments, causal: bool) -> Tensor:
        (q, q_scale), (k, k_scale), (v, v_scale) = map(_scaled, (q, k, v))
        scales = [scale.expand(len(segments.lengths), -1) for scale in (q_scale, k_scale, v_scale)]
        descales = dict(zip(("q_descale", "k_descale", "v_descale"), scales, strict=True))
        return _fa3(**descales)(q, k, v, segments, causal)

    _fa3()
    return replace(_on_gpu(ops), attention=attend)


def fp8_products(ops: Ops) -> Ops:
    """Linear layers in fp8: of the ViT, those of `--vit-dtype fp8`."""
    return _on_gpu(ops).with_fp8()


def fp8_language(ops: Ops) -> Ops:
    """The language model's linear layers in fp8, but for its output weights; each input quantised in a pass of its
    own."""
    return Fp8Language(**_fields(_on_gpu(ops).with_fp8()))


def fused_fp8_language(ops: Ops) -> Ops:
    """The language model's linear layers in fp8, but for its output weights; norms and activations quantise what they
    compute, and only attention's result is quantised in a pass of its own."""
    from benchmarks.gpu.lever_kernels import rms_norm_quantize, silu_mul_quantize

    plain = _on_gpu(ops).rms_norm

    def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Any:
        return _NormedRows(*rms_norm_quantize(x, weight, eps), plain=lambda: plain(x, weight, eps))

    changed = replace(
        _on_gpu(ops).with_fp8(),
        rms_norm=rms_norm,
        silu_mul=lambda gate_up: QuantizedRows(*silu_mul_quantize(gate_up)),  # type: ignore[arg-type, return-value]
    )
    return Fp8Language(**_fields(changed))


def fp8_prefill(ops: Ops) -> Ops:
    """The language model's linear layers in fp8 in prefill, and as they are in decode steps, which smaller weights may
    save less than more kernels cost them."""
    return Fp8Prefill(**_fields(_on_gpu(ops).with_fp8()))


def residual_in_products(ops: Ops) -> Ops:
    """The ViT's sums are made by its products: see `ResidualInProducts`."""
    return ResidualInProducts(**_fields(_on_gpu(ops)))


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeSms(CudaOps):
    """Linear layers that leave `count` multiprocessors free, as far as cuBLASLt can be told."""

    count: int

    def linear(self, layer: Affine) -> Linear:
        if self.in_fp8 and self.fp8 and fits_fp8(layer):
            return _Fp8OnFewer(layer, self.fp8.quantize_rows, self.count)
        return _PlainOnFewer(layer, self.count)


class _PlainOnFewer(PlainLinear):
    def __init__(self, layer: Affine, count: int) -> None:
        # Without a bias, torch takes another interface of cuBLAS, which cannot be told.
        bias = layer.weight.new_zeros(len(layer.weight)) if layer.bias is None else layer.bias
        super().__init__(Affine(layer.weight, bias))
        self._count = count

    def __call__(self, x: Rows, residual: Tensor | None = None) -> Tensor:
        with _products_leave(self._count):
            return super().__call__(x, residual)


class _Fp8OnFewer(Fp8Linear):
    def __init__(self, layer: Affine, quantize: QuantizeRows, count: int) -> None:
        super().__init__(layer, quantize)
        self._count = count

    def __call__(self, x: Rows, residual: Tensor | None = None) -> Tensor:
        with _products_leave(self._count):
            return super().__call__(x, residual)


@contextmanager
def _products_leave(count: int) -> Iterator[None]:
    torch._C._set_sm_carveout_experimental(count)
    try:
        yield
    finally:
        torch._C._set_sm_carveout_experimental(None)


class Fp8Language(CudaOps):
    """Operations of a language model whose output weights stay as they are."""

    def linear(self, layer: Affine) -> Linear:
        return _OutputWeights(layer) if len(layer.weight) > _MOST_OUTPUTS_IN_FP8 else super().linear(layer)


class Fp8Prefill(CudaOps):
    """Operations of a language model whose layers are in fp8 for more rows than a decode step has."""

    def linear(self, layer: Affine) -> Linear:
        if len(layer.weight) > _MOST_OUTPUTS_IN_FP8:
            return PlainLinear(layer)
        few, many = PlainLinear(layer), super().linear(layer)
        return lambda x, residual=None: (many if len(x) > _MOST_DECODED_ROWS else few)(x, residual)


class _OutputWeights(PlainLinear):
    def __call__(self, x: Rows, residual: Tensor | None = None) -> Tensor:
        return super().__call__(x.plain() if isinstance(x, _NormedRows) else x, residual)


@dataclass(frozen=True, slots=True)
class _NormedRows(QuantizedRows):
    """plain: returns the rows before they were quantised."""

    plain: Callable[[], Tensor]


class _Carried(NamedTuple):
    """What a ViT adds up from layer to layer: rows + carried."""

    rows: Tensor
    carried: Tensor
    """float32 [width]: the sum of the biases of all layers that were added to the rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidualInProducts(CudaOps):
    """The products before the ViT's norms are added to the residual by cuBLAS; their biases are carried to the norms.

    A norm's inputs then cost four widths of a row instead of five: the residual is read and written by the product, and
    read by the norm, which writes. For the 64 norms of a dense page of 17,900 patches that is 2.9 GB less of 14.7, or
    1 ms at 2.8 TB/s; and what the product moves is hidden as far as it computes meanwhile. In bfloat16 only, because
    products in fp8 add nothing.
    """

    sums: dict[int, Tensor] = field(default_factory=dict)
    """What is carried behind each layer, by its id, once it was needed."""

    def then_layer_norm(
        self, layer: Linear, x: Rows, residual: Any, *, norm: Affine, eps: float, following: Linear | None
    ) -> tuple[Any, Rows]:
        from benchmarks.gpu.lever_kernels import carried_layer_norm

        outer = layer
        if isinstance(layer, _CudaMlp):
            x, outer = layer.activate(layer.inner(x), layer.inner_bias), layer.outer
        assert isinstance(outer, PlainLinear) and isinstance(x, Tensor) and norm.bias is not None
        assert outer._bias is not None
        rows, carried = residual if isinstance(residual, _Carried) else (residual, torch.zeros_like(norm.bias).float())
        rows.addmm_(x, outer._weight.t())
        if id(layer) not in self.sums:
            self.sums[id(layer)] = carried + outer._bias.float()
        total = self.sums[id(layer)]
        return _Carried(rows, total), carried_layer_norm(rows, total, norm.weight, norm.bias, eps)


def _on_gpu(ops: Ops) -> CudaOps:
    if not isinstance(ops, CudaOps):
        raise UsageError("needs an NVIDIA GPU")
    return ops


def _fields(ops: CudaOps) -> dict[str, Any]:
    return {each.name: getattr(ops, each.name) for each in fields(ops)}


def _fa3(**options: Any) -> Attention:
    """FA3's attention with these options, of the first package that has it. Raises ImportError if none does."""
    try:
        attend = import_module("sgl_kernel.flash_attn").flash_attn_varlen_func
    except ImportError:
        attend = import_module("fa3_fwd_interface").flash_attn_varlen_func

    def attention(q: Tensor, k: Tensor, v: Tensor, segments: Segments, causal: bool) -> Tensor:
        ends, longest = segments.cu_seqlens, segments.max_length
        out: Tensor = attend(q, k, v, ends, ends, longest, longest, causal=causal, **options)
        return out

    return attention


def _product_of(q: Tensor) -> Tensor:
    """The qkv product [tokens, 3, heads, head_dim] whose first third q is."""
    tokens, heads, head_dim = q.shape
    width = heads * head_dim
    return q.as_strided((tokens, 3, heads, head_dim), (3 * width, width, head_dim, 1))


def _scaled(x: Tensor) -> tuple[Tensor, Tensor]:
    """x [tokens, heads, head_dim] in e4m3, and each head's scale, float32 [heads]."""
    scale = x.abs().amax(dim=(0, 2)).float().clamp(min=1e-12) / LARGEST
    return (x / scale.unsqueeze(1)).to(torch.float8_e4m3fn), scale
