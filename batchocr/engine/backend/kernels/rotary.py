"""Rotary embedding in place in the qkv product, for the language model together with the write into the KV cache.

Working in place costs as much traffic as copying, but no extra memory: the rotated q and k of a batch of pages stay
where they are, and attention kernels take them as strided views.
"""

from __future__ import annotations

import functools

import torch
import triton
import triton.language as tl
from torch import Tensor

from batchocr.engine.backend.kernels.launch import Constants, kernel

# A 16-byte vector of bfloat16 from each half of a head.
_PAIRS_A_THREAD = 8


def rotary_(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Rotate q and k in place, pairing the two halves of every head. Returns both.

    q, k: [tokens, heads, head_dim], views with any stride between tokens. cos, sin: float32 [tokens, head_dim / 2].
    Moves q and k twice. One program per token, which loads its angles once for all heads.
    """
    tokens, heads, head_dim = q.shape
    assert k.shape == q.shape
    _rotary_kernel.launch(
        (tokens, 1, 1),
        (q, k, _angles(cos), _angles(sin)),
        (),
        (_token_stride(q, head_dim), _token_stride(k, head_dim)),
        _constants(heads, None, head_dim),
    )
    return q, k


def rotary_store_(
    q: Tensor, k: Tensor, v: Tensor, cos: Tensor, sin: Tensor, cache: Tensor, slots: Tensor
) -> tuple[Tensor, Tensor]:
    """Rotate q and k in place, and write each token's rotated key and its value into its slot of the cache. Returns q
    and k.

    q: [tokens, heads, head_dim]; k, v: [tokens, kv_heads, head_dim]; views as in `rotary_`. cos, sin: float32 [tokens,
    head_dim / 2]. cache: [2, blocks, block_size, kv_heads, head_dim], each half contiguous. slots: int64 [tokens],
    block · block_size + offset. Moves q twice, k three times and v twice. One program per token.
    """
    tokens, heads, head_dim = q.shape
    block_size, kv_heads, cache_dim = cache.shape[2:]
    values, *inside = cache.stride()
    assert inside == [block_size * kv_heads * head_dim, kv_heads * head_dim, head_dim, 1]
    assert k.shape == v.shape == (tokens, kv_heads, cache_dim)
    _rotary_store_kernel.launch(
        (tokens, 1, 1),
        (q, k, v, _angles(cos), _angles(sin), cache, slots),
        (),
        (_token_stride(q, head_dim), _token_stride(k, head_dim), _token_stride(v, head_dim), values),
        _constants(heads, kv_heads, head_dim),
    )
    return q, k


@functools.cache
def _constants(heads: int, kv_heads: int | None, head_dim: int) -> Constants:
    """Powers of two hold the heads and half a head; a token's heads are shared by the warps."""
    heads_block, half_block = triton.next_power_of_2(heads), triton.next_power_of_2(head_dim // 2)
    blocks = {"HEADS_BLOCK": heads_block, "HALF_BLOCK": half_block}
    counts = {"HEADS": heads, "HALF": head_dim // 2}
    if kv_heads is not None:
        counts["KV_HEADS"], blocks["KV_HEADS_BLOCK"] = kv_heads, triton.next_power_of_2(kv_heads)
    warps = max(1, heads_block * half_block // (32 * _PAIRS_A_THREAD))
    return Constants(**counts, **blocks, num_warps=warps, enable_fp_fusion=True)


def _token_stride(x: Tensor, head_dim: int) -> int:
    stride, *heads = x.stride()
    assert heads == [head_dim, 1]
    return stride


def _angles(x: Tensor) -> Tensor:
    assert x.is_contiguous() and x.dtype == torch.float32
    return x


@triton.jit
def _heads(HEADS: tl.constexpr, HALF: tl.constexpr, HEADS_BLOCK: tl.constexpr, HALF_BLOCK: tl.constexpr):
    """Offsets of the first half of each of a token's heads, [HEADS_BLOCK, HALF_BLOCK], and which of them exist."""
    heads = tl.arange(0, HEADS_BLOCK)[:, None]
    columns = tl.arange(0, HALF_BLOCK)
    return heads * (2 * HALF) + columns, (heads < HEADS) & (columns < HALF)


@triton.jit
def _turn(at, exists, cos, sin, HALF: tl.constexpr):
    """Rotate the values at these addresses and return them. A thread stores only where it loaded, so no value is
    lost."""
    first = tl.load(at, mask=exists, other=0.0).to(tl.float32)
    second = tl.load(at + HALF, mask=exists, other=0.0).to(tl.float32)
    turned_first = first * cos - second * sin
    turned_second = second * cos + first * sin
    tl.store(at, turned_first, mask=exists)
    tl.store(at + HALF, turned_second, mask=exists)
    return turned_first, turned_second


@triton.jit
def _load_angles(cos, sin, token, HALF: tl.constexpr, HALF_BLOCK: tl.constexpr):
    columns = tl.arange(0, HALF_BLOCK)
    at = token * HALF + columns
    return tl.load(cos + at, mask=columns < HALF, other=0.0), tl.load(sin + at, mask=columns < HALF, other=0.0)


@kernel()
def _rotary_kernel(
    q,
    k,
    cos,
    sin,
    q_stride,
    k_stride,
    HEADS: tl.constexpr,
    HALF: tl.constexpr,
    HEADS_BLOCK: tl.constexpr,
    HALF_BLOCK: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    cosines, sines = _load_angles(cos, sin, token, HALF, HALF_BLOCK)
    places, exists = _heads(HEADS, HALF, HEADS_BLOCK, HALF_BLOCK)
    _turn(q + token * q_stride + places, exists, cosines, sines, HALF)
    _turn(k + token * k_stride + places, exists, cosines, sines, HALF)


@kernel()
def _rotary_store_kernel(
    q,
    k,
    v,
    cos,
    sin,
    cache,
    slots,
    q_stride,
    k_stride,
    v_stride,
    values_offset,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HALF: tl.constexpr,
    HEADS_BLOCK: tl.constexpr,
    KV_HEADS_BLOCK: tl.constexpr,
    HALF_BLOCK: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    cosines, sines = _load_angles(cos, sin, token, HALF, HALF_BLOCK)
    places, exists = _heads(HEADS, HALF, HEADS_BLOCK, HALF_BLOCK)
    _turn(q + token * q_stride + places, exists, cosines, sines, HALF)

    places, exists = _heads(KV_HEADS, HALF, KV_HEADS_BLOCK, HALF_BLOCK)
    key_first, key_second = _turn(k + token * k_stride + places, exists, cosines, sines, HALF)
    value = v + token * v_stride + places
    value_first = tl.load(value, mask=exists)
    value_second = tl.load(value + HALF, mask=exists)

    slot = cache + tl.load(slots + token) * (KV_HEADS * 2 * HALF) + places
    tl.store(slot, key_first, mask=exists)
    tl.store(slot + HALF, key_second, mask=exists)
    tl.store(slot + values_offset, value_first, mask=exists)
    tl.store(slot + values_offset + HALF, value_second, mask=exists)
