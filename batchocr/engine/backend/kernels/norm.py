"""RMSNorm, and LayerNorm of a sum, over the last dimension."""

from __future__ import annotations

import functools

import torch
import triton
import triton.language as tl
from torch import Tensor

from batchocr.engine.backend.kernels.launch import Constants, kernel

# Two 16-byte loads of bfloat16: enough in flight, and one or two warps fewer to wait for when a row is summed.
_VALUES_A_THREAD = 16


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Return x / sqrt(mean(x²) + eps) · weight, rounded once, as torch does.

    x: contiguous [rows, width ≤ 8192]. weight: [width]. Moves x twice. One program per row, which stays in registers
    between the sum and its use: there are many rows, and after a multiprocessor's first the weight is in the L1 cache.
    """
    out = torch.empty_like(x)
    assert x.is_contiguous()
    rows, width = x.shape
    _rms_norm_kernel.launch((rows, 1, 1), (x, weight, out), (eps,), (), row_constants(width))
    return out


def add_layer_norm_(
    residual: Tensor, product: Tensor, weight: Tensor, bias: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    """Add the product to the residual. Returns the residual, which is the sum now, and the sum's LayerNorm:
    (sum - mean) / sqrt(var + eps) · weight + bias.

    residual, product: contiguous [rows, width ≤ 8192]. weight, bias: [width]. Reads both and writes two: 4 widths a
    row, where a sum and a norm apart move 5. One program per row, as in `rms_norm`.
    """
    assert residual.is_contiguous() and product.is_contiguous() and product.shape == residual.shape
    out = torch.empty_like(residual)
    rows, width = residual.shape
    tensors = (residual, product, weight, bias, out)
    _add_layer_norm_kernel.launch((rows, 1, 1), tensors, (eps,), (), row_constants(width))
    return residual, out


@functools.cache
def row_constants(width: int) -> Constants:
    """The launch constants of a program per row, which a power of two holds."""
    assert width <= 8192
    block = triton.next_power_of_2(width)
    warps = max(1, block // (32 * _VALUES_A_THREAD))
    return Constants(WIDTH=width, BLOCK=block, num_warps=warps, enable_fp_fusion=True)


@kernel(numbers=["eps"])
def _rms_norm_kernel(x, weight, out, eps, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    exists = columns < WIDTH
    row = tl.program_id(0).to(tl.int64) * WIDTH
    values = tl.load(x + row + columns, mask=exists, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(values * values, axis=0) / WIDTH + eps)
    weights = tl.load(weight + columns, mask=exists, other=0.0).to(tl.float32)
    tl.store(out + row + columns, values * scale * weights, mask=exists)


@kernel(numbers=["eps"])
def _add_layer_norm_kernel(residual, product, weight, bias, out, eps, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    row = tl.program_id(0).to(tl.int64) * WIDTH
    values = add_row(residual + row, product + row, WIDTH, BLOCK)
    tl.store(out + row + columns, normed_row(values, weight, bias, eps, WIDTH, BLOCK), mask=columns < WIDTH)


@triton.jit
def add_row(residual, product, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """Add the product's row to the residual's. Returns the sum as it was stored, float32 [BLOCK], zeros behind it."""
    columns = tl.arange(0, BLOCK)
    exists = columns < WIDTH
    total = tl.load(residual + columns, mask=exists, other=0.0).to(tl.float32)
    total += tl.load(product + columns, mask=exists, other=0.0).to(tl.float32)
    stored = total.to(residual.dtype.element_ty)
    tl.store(residual + columns, stored, mask=exists)
    return stored.to(tl.float32)


@triton.jit
def normed_row(values, weight, bias, eps, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """The LayerNorm of a row, float32 [BLOCK] with zeros behind the width."""
    columns = tl.arange(0, BLOCK)
    exists = columns < WIDTH
    centred = tl.where(exists, values - tl.sum(values, axis=0) / WIDTH, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, axis=0) / WIDTH + eps)
    weights = tl.load(weight + columns, mask=exists, other=0.0).to(tl.float32)
    biases = tl.load(bias + columns, mask=exists, other=0.0).to(tl.float32)
    return centred * scale * weights + biases
