"""The activations between two linear layers, in one pass over the product of the first."""

from __future__ import annotations

import functools

import triton
import triton.language as tl
from torch import Tensor

from batchocr.engine.backend.kernels.launch import Constants, kernel

# A tile of 4,096 values is 32 per thread: four 16-byte loads in flight, and its part of the bias loaded once.
_ROWS = 4
_COLUMNS = 1024
_WARPS = 4


def quick_gelu_bias_(x: Tensor, bias: Tensor) -> Tensor:
    """Set x to y · sigmoid(1.702 y) with y = x + bias, and return it.

    x: contiguous [rows, width]. bias: [width]. Moves x twice. One program per tile of 4 rows and 1,024 columns.
    """
    return _gelu_bias_(x, bias, is_quick=True)


def gelu_tanh_bias_(x: Tensor, bias: Tensor) -> Tensor:
    """Set x to the GELU, approximated by a tanh, of x + bias; otherwise as `quick_gelu_bias_`."""
    return _gelu_bias_(x, bias, is_quick=False)


def _gelu_bias_(x: Tensor, bias: Tensor, *, is_quick: bool) -> Tensor:
    assert x.is_contiguous()
    rows, width = x.shape
    _gelu_bias_kernel.launch(_grid(rows, width), (x, bias), (rows,), (), _gelu_constants(width, is_quick))
    return x


def silu_mul(gate_up: Tensor) -> Tensor:
    """Return silu(gate) · up as [rows, width].

    gate_up: contiguous [rows, 2 · width], gate first. Reads gate_up once and writes half as much. One program per
    tile of 4 rows and 1,024 columns of the output.
    """
    assert gate_up.is_contiguous()
    rows, width = gate_up.shape[0], gate_up.shape[1] // 2
    out = gate_up.new_empty(rows, width)
    _silu_mul_kernel.launch(_grid(rows, width), (gate_up, out), (rows,), (), _constants(width))
    return out


@functools.cache
def _constants(width: int) -> Constants:
    return Constants(WIDTH=width, ROWS=_ROWS, COLUMNS=_COLUMNS, num_warps=_WARPS, enable_fp_fusion=True)


@functools.cache
def _gelu_constants(width: int, is_quick: bool) -> Constants:
    return Constants(**_constants(width).by_name, QUICK=is_quick)


def _grid(rows: int, width: int) -> tuple[int, int, int]:
    return -(-rows // _ROWS) * -(-width // _COLUMNS), 1, 1


@triton.jit
def _tile(num_rows, WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """This program's rows, int64 [ROWS, 1], its columns [COLUMNS], and a mask of the values that exist."""
    tiles_across: tl.constexpr = (WIDTH + COLUMNS - 1) // COLUMNS
    program = tl.program_id(0)
    rows = (program // tiles_across).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    columns = program % tiles_across * COLUMNS + tl.arange(0, COLUMNS)
    return rows, columns, (rows < num_rows) & (columns < WIDTH)


@kernel(numbers=["num_rows"])
def _gelu_bias_kernel(
    x, bias, num_rows, WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, QUICK: tl.constexpr
):
    rows, columns, exists = _tile(num_rows, WIDTH, ROWS, COLUMNS)
    at = x + rows * WIDTH + columns
    y = tl.load(at, mask=exists, other=0.0).to(tl.float32)
    y += tl.load(bias + columns, mask=columns < WIDTH, other=0.0).to(tl.float32)
    if QUICK:
        slope = 1.702 * y
    else:  # tanh(z) = 2 · sigmoid(2 z) - 1, with z = √(2/π) · (y + 0.044715 y³)
        slope = 1.5957691216057308 * (y + 0.044715 * y * y * y)
    tl.store(at, y * tl.sigmoid(slope), mask=exists)


@kernel(numbers=["num_rows"])
def _silu_mul_kernel(gate_up, out, num_rows, WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    rows, columns, exists = _tile(num_rows, WIDTH, ROWS, COLUMNS)
    at = gate_up + rows * (2 * WIDTH) + columns
    gate = tl.load(at, mask=exists, other=0.0).to(tl.float32)
    up = tl.load(at + WIDTH, mask=exists, other=0.0).to(tl.float32)
    tl.store(out + rows * WIDTH + columns, gate * tl.sigmoid(gate) * up, mask=exists)
