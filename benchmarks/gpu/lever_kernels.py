"""Triton kernels of the levers: what the product's kernels do, in fewer passes or for fewer bits."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from batchocr.engine.backend.kernels.launch import kernel
from batchocr.engine.backend.kernels.norm import normed_row, row_constants
from batchocr.engine.backend.kernels.quantize import _empty_rows, _store_quantized
from batchocr.engine.backend.kernels.rotary import _angles, _constants, _heads, _load_angles


def carried_layer_norm(x: Tensor, carried: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """The LayerNorm of x + carried, of which x stays as it is.

    x: contiguous [rows, width ≤ 8192]. carried: float32 [width]. Moves x twice, where `add_layer_norm_` moves four
    widths a row.
    """
    assert x.is_contiguous() and carried.dtype == torch.float32
    out = torch.empty_like(x)
    rows, width = x.shape
    _carried_layer_norm_kernel.launch((rows, 1, 1), (x, carried, weight, bias, out), (eps,), (), row_constants(width))
    return out


def rotary_quantize(qkv: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate q and k as `rotary_` does, and return all three as float8_e4m3fn, without a scale: what is beyond 448
    becomes 448.

    qkv: contiguous [tokens, 3, heads, head_dim]. cos, sin: float32 [tokens, head_dim / 2]. Reads three and writes one
    and a half widths of q a token, where `rotary_` moves four.
    """
    assert qkv.is_contiguous()
    tokens, _, heads, head_dim = qkv.shape
    out = torch.empty_like(qkv, dtype=torch.float8_e4m3fn)
    tensors = (qkv, _angles(cos), _angles(sin), out)
    _rotary_quantize_kernel.launch((tokens, 1, 1), tensors, (), (), _constants(heads, None, head_dim))
    return out


def rms_norm_quantize(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """`rms_norm` of x as `quantize_rows` returns it. x: contiguous [rows, width ≤ 8192]."""
    assert x.is_contiguous()
    rows, width = x.shape
    out, scale = _empty_rows(x)
    _rms_norm_quantize_kernel.launch((rows, 1, 1), (x, weight, out, scale), (eps,), (), row_constants(width))
    return out, scale


def silu_mul_quantize(gate_up: Tensor) -> tuple[Tensor, Tensor]:
    """silu(gate) · up as `quantize_rows` returns it. gate_up: contiguous [rows, 2 · width], width ≤ 8192."""
    assert gate_up.is_contiguous()
    rows, width = gate_up.shape[0], gate_up.shape[1] // 2
    out = gate_up.new_empty((rows, width), dtype=torch.float8_e4m3fn)
    scale = gate_up.new_empty((rows, 1), dtype=torch.float32)
    _silu_mul_quantize_kernel.launch((rows, 1, 1), (gate_up, out, scale), (), (), row_constants(width))
    return out, scale


@kernel(numbers=["eps"])
def _carried_layer_norm_kernel(x, carried, weight, bias, out, eps, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    exists = columns < WIDTH
    row = tl.program_id(0).to(tl.int64) * WIDTH
    values = tl.load(x + row + columns, mask=exists, other=0.0).to(tl.float32)
    values += tl.load(carried + columns, mask=exists, other=0.0)
    tl.store(out + row + columns, normed_row(values, weight, bias, eps, WIDTH, BLOCK), mask=exists)


@kernel()
def _rotary_quantize_kernel(
    qkv,
    cos,
    sin,
    out,
    HEADS: tl.constexpr,
    HALF: tl.constexpr,
    HEADS_BLOCK: tl.constexpr,
    HALF_BLOCK: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    cosines, sines = _load_angles(cos, sin, token, HALF, HALF_BLOCK)
    places, exists = _heads(HEADS, HALF, HEADS_BLOCK, HALF_BLOCK)
    for part in tl.static_range(3):
        at = (token * 3 + part) * (HEADS * 2 * HALF) + places
        first = tl.load(qkv + at, mask=exists, other=0.0).to(tl.float32)
        second = tl.load(qkv + at + HALF, mask=exists, other=0.0).to(tl.float32)
        if part < 2:
            turned = first * cosines - second * sines
            second = second * cosines + first * sines
            first = turned
        tl.store(out + at, _in_range(first).to(tl.float8e4nv), mask=exists)
        tl.store(out + at + HALF, _in_range(second).to(tl.float8e4nv), mask=exists)


@triton.jit
def _in_range(values):
    return tl.minimum(tl.maximum(values, -448.0), 448.0)


@kernel(numbers=["eps"])
def _rms_norm_quantize_kernel(x, weight, out, scale, eps, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    exists = columns < WIDTH
    row = tl.program_id(0).to(tl.int64)
    values = tl.load(x + row * WIDTH + columns, mask=exists, other=0.0).to(tl.float32)
    factor = tl.rsqrt(tl.sum(values * values, axis=0) / WIDTH + eps)
    values = values * factor * tl.load(weight + columns, mask=exists, other=0.0).to(tl.float32)
    values = values.to(x.dtype.element_ty).to(tl.float32)
    _store_quantized(values, out + row * WIDTH, scale + row, WIDTH, BLOCK)


@kernel()
def _silu_mul_quantize_kernel(gate_up, out, scale, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    exists = columns < WIDTH
    row = tl.program_id(0).to(tl.int64)
    at = gate_up + row * (2 * WIDTH) + columns
    gate = tl.load(at, mask=exists, other=0.0).to(tl.float32)
    values = gate * tl.sigmoid(gate) * tl.load(at + WIDTH, mask=exists, other=0.0).to(tl.float32)
    values = values.to(gate_up.dtype.element_ty).to(tl.float32)
    _store_quantized(values, out + row * WIDTH, scale + row, WIDTH, BLOCK)
