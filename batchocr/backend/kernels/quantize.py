"""Converts activations to 8-bit floating point, with one scale per row."""

from __future__ import annotations

import functools

import torch
import triton
import triton.language as tl
from torch import Tensor

from batchocr.backend.kernels.launch import Constants, kernel, operator

_VALUES_A_THREAD = 16


def _empty_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x, dtype=torch.float8_e4m3fn), x.new_empty((x.shape[0], 1), dtype=torch.float32)


@operator(mutates_args=(), fake=_empty_rows)
def quantize_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return x / scale as float8_e4m3fn [rows, width], and each row's scale, float32 [rows, 1], which maps its largest
    magnitude to 448.

    x: contiguous [rows, width ≤ 8192]. Reads x once and writes half as much. One program per row, which stays in
    registers between its maximum and its use.
    """
    assert x.is_contiguous()
    rows, width = x.shape
    out, scale = _empty_rows(x)
    _quantize_kernel.launch((rows, 1, 1), (x, out, scale), (), (), _constants(width))
    return out, scale


@functools.cache
def _constants(width: int) -> Constants:
    """A power of two holds a row."""
    assert width <= 8192
    block = triton.next_power_of_2(width)
    return Constants(
        WIDTH=width, BLOCK=block, num_warps=max(1, block // (32 * _VALUES_A_THREAD)), enable_fp_fusion=True
    )


@kernel()
def _quantize_kernel(x, out, scale, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    exists = columns < WIDTH
    row = tl.program_id(0).to(tl.int64)
    values = tl.load(x + row * WIDTH + columns, mask=exists, other=0.0).to(tl.float32)
    # A row of zeros must stay zero.
    largest = tl.maximum(tl.max(tl.abs(values), axis=0), 1e-12)
    tl.store(scale + row, largest / 448.0)
    tl.store(out + row * WIDTH + columns, (values * (448.0 / largest)).to(tl.float8e4nv), mask=exists)
