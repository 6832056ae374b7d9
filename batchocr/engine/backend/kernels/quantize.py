"""Converts activations to 8-bit floating point, with one scale per row: alone, or in the pass that computes them."""

from __future__ import annotations

import functools

import torch
import triton
import triton.language as tl
from torch import Tensor

from batchocr.engine.backend.kernels.launch import Constants, kernel
from batchocr.engine.backend.kernels.norm import add_row, normed_row, row_constants


def _empty_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """Room for x's quantised rows and their scales."""
    return torch.empty_like(x, dtype=torch.float8_e4m3fn), x.new_empty((x.shape[0], 1), dtype=torch.float32)


def quantize_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return x / scale as float8_e4m3fn [rows, width], and each row's scale, float32 [rows, 1], which maps its largest
    magnitude to 448.

    x: contiguous [rows, width ≤ 8192]. Reads x once and writes half as much. One program per row, which stays in
    registers between its maximum and its use.
    """
    assert x.is_contiguous()
    rows, width = x.shape
    out, scale = _empty_rows(x)
    _quantize_kernel.launch((rows, 1, 1), (x, out, scale), (), (), row_constants(width))
    return out, scale


def add_layer_norm_quantize_(
    residual: Tensor, product: Tensor, weight: Tensor, bias: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    """Add the product to the residual, and return the sum's LayerNorm as `quantize_rows` does.

    residual, product: contiguous bfloat16 [rows, width ≤ 8192]. weight, bias: [width]. Reads both, writes one and half
    of one: 3.5 widths a row, where sum, norm and `quantize_rows` apart move 6.5. One program per row.
    """
    assert residual.is_contiguous() and product.is_contiguous() and product.shape == residual.shape
    rows, width = residual.shape
    out, scale = _empty_rows(residual)
    tensors = (residual, product, weight, bias, out, scale)
    _add_layer_norm_quantize_kernel.launch((rows, 1, 1), tensors, (eps,), (), row_constants(width))
    return out, scale


def gelu_bias_quantize(x: Tensor, bias: Tensor, quick: bool) -> tuple[Tensor, Tensor]:
    """Return gelu(x + bias) as `quantize_rows` does: the exact GELU (erf), or y · sigmoid(1.702 y) if quick.

    x: contiguous bfloat16 [rows, width ≤ 8192]. bias: [width]. Reads x once and writes half as much, where activation
    and `quantize_rows` apart move more than twice of that. One program per row.
    """
    assert x.is_contiguous()
    rows, width = x.shape
    out, scale = _empty_rows(x)
    _gelu_bias_quantize_kernel.launch((rows, 1, 1), (x, bias, out, scale), (), (), _gelu_constants(width, quick))
    return out, scale


@functools.cache
def _gelu_constants(width: int, quick: bool) -> Constants:
    # Finding a row's maximum is faster with fewer warps, although each holds more of the row.
    return Constants(**row_constants(width).by_name | {"num_warps": 4}, QUICK=quick)


@kernel()
def _quantize_kernel(x, out, scale, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    row = tl.program_id(0).to(tl.int64)
    values = tl.load(x + row * WIDTH + columns, mask=columns < WIDTH, other=0.0).to(tl.float32)
    _store_quantized(values, out + row * WIDTH, scale + row, WIDTH, BLOCK)


@kernel(numbers=["eps"])
def _add_layer_norm_quantize_kernel(
    residual, product, weight, bias, out, scale, eps, WIDTH: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    values = add_row(residual + row * WIDTH, product + row * WIDTH, WIDTH, BLOCK)
    values = normed_row(values, weight, bias, eps, WIDTH, BLOCK)
    # Rounded as the norm alone would be, so that fusing changes no result.
    values = values.to(residual.dtype.element_ty).to(tl.float32)
    _store_quantized(values, out + row * WIDTH, scale + row, WIDTH, BLOCK)


@kernel()
def _gelu_bias_quantize_kernel(x, bias, out, scale, WIDTH: tl.constexpr, BLOCK: tl.constexpr, QUICK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    exists = columns < WIDTH
    row = tl.program_id(0).to(tl.int64)
    y = tl.load(x + row * WIDTH + columns, mask=exists, other=0.0).to(tl.float32)
    y += tl.load(bias + columns, mask=exists, other=0.0).to(tl.float32)
    if QUICK:
        y = y * tl.sigmoid(1.702 * y)
    else:
        y = y * 0.5 * (1.0 + tl.erf(y * 0.7071067811865476))
    _store_quantized(y.to(x.dtype.element_ty).to(tl.float32), out + row * WIDTH, scale + row, WIDTH, BLOCK)


@triton.jit
def _store_quantized(values, out, scale, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """Store a row, float32 [BLOCK] with zeros behind the width, in 8 bits, and its scale."""
    columns = tl.arange(0, BLOCK)
    # A row of zeros must stay zero.
    largest = tl.maximum(tl.max(tl.abs(values), axis=0), 1e-12)
    tl.store(scale, largest / 448.0)
    tl.store(out + columns, (values * (448.0 / largest)).to(tl.float8e4nv), mask=columns < WIDTH)
