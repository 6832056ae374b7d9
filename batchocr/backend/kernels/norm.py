"""RMSNorm and LayerNorm over the last dimension."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

# Two 16-byte loads of bfloat16: enough in flight, and one or two warps fewer to wait for when a row is summed.
_VALUES_A_THREAD = 16


@torch.library.custom_op("batchocr::rms_norm", mutates_args=())
def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Return x / sqrt(mean(x²) + eps) · weight, rounded once, as torch does.

    x: contiguous [rows, width ≤ 8192]. weight: [width]. Moves x twice. One program per row, which stays in registers
    between the sum and its use: there are many rows, and after a multiprocessor's first the weight is in the L1 cache.
    """
    out = torch.empty_like(x)
    width, block, warps = _geometry(x)
    _rms_norm_kernel[(x.shape[0],)](
        x, weight, out, eps, WIDTH=width, BLOCK=block, num_warps=warps, enable_fp_fusion=True
    )
    return out


@torch.library.custom_op("batchocr::layer_norm", mutates_args=())
def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """Return (x - mean(x)) / sqrt(var(x) + eps) · weight + bias.

    x: contiguous [rows, width ≤ 8192]. weight, bias: [width]. Moves x twice. One program per row, as in `rms_norm`.
    """
    out = torch.empty_like(x)
    width, block, warps = _geometry(x)
    _layer_norm_kernel[(x.shape[0],)](
        x, weight, bias, out, eps, WIDTH=width, BLOCK=block, num_warps=warps, enable_fp_fusion=True
    )
    return out


@rms_norm.register_fake
def _(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return torch.empty_like(x)


@layer_norm.register_fake
def _(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    return torch.empty_like(x)


def _geometry(x: Tensor) -> tuple[int, int, int]:
    """A row's width, the power of two that holds it, and the warps that share it."""
    assert x.is_contiguous() and x.dim() == 2
    width = x.shape[1]
    assert width <= 8192
    block = triton.next_power_of_2(width)
    return width, block, max(1, block // (32 * _VALUES_A_THREAD))


@triton.jit
def _rms_norm_kernel(x, weight, out, eps, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    exists = columns < WIDTH
    row = tl.program_id(0).to(tl.int64) * WIDTH
    values = tl.load(x + row + columns, mask=exists, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(values * values, axis=0) / WIDTH + eps)
    weights = tl.load(weight + columns, mask=exists, other=0.0).to(tl.float32)
    tl.store(out + row + columns, values * scale * weights, mask=exists)


@triton.jit
def _layer_norm_kernel(x, weight, bias, out, eps, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    exists = columns < WIDTH
    row = tl.program_id(0).to(tl.int64) * WIDTH
    values = tl.load(x + row + columns, mask=exists, other=0.0).to(tl.float32)
    centred = tl.where(exists, values - tl.sum(values, axis=0) / WIDTH, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, axis=0) / WIDTH + eps)
    weights = tl.load(weight + columns, mask=exists, other=0.0).to(tl.float32)
    biases = tl.load(bias + columns, mask=exists, other=0.0).to(tl.float32)
    tl.store(out + row + columns, centred * scale * weights + biases, mask=exists)
