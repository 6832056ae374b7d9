"""Decode attention over a paged KV cache, split along the sequence (flash-decoding).

Source: Dao et al., Flash-Decoding for long-context inference (2023).
"""

from __future__ import annotations

import functools
import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from batchocr.engine.backend.base import PagedContext
from batchocr.engine.backend.kernels.launch import Constants, kernel

# A tile's keys and values are 16 KiB at a head_dim of 64. The compiler gives half of the five stages to the block
# lookup, so two tiles are held: one loads while the other is processed (with three stages, none does). Six such
# programs fit an sm_90 multiprocessor: 96 KiB in flight, where 4.3 TB/s over 132 of them and a latency of 1 µs need 33.
_TOKENS = 64
_STAGES = 5
_WARPS = 4
# What a part leaves for the second launch, 3.6 KB written and read again, is 5 % of the 64 KiB it attends to.
_SMALLEST_PART = 256
_MOST_PARTS = 32
_SMALLEST_DOT = 16
"""What `tl.dot` needs of each dimension; later Tritons take less for float32."""


def paged_attention(q: Tensor, cache: Tensor, context: PagedContext) -> Tensor:
    """Attend from one new token per sequence to all its cached ones. Returns [sequences, heads, head_dim], contiguous.

    q: [sequences, heads, head_dim], any stride between sequences. cache: [2, blocks, block_size, kv_heads,
    head_dim], keys first, each half contiguous. A sequence of 0 tokens gets zeros.

    Moves each sequence's keys and values once. A program reads one part of one sequence for all query heads of one KV
    head. The number of parts depends on shapes only, so that the launch can be captured; a short sequence has fewer,
    and the surplus programs exit at once. A second launch combines the parts by their weights.
    """
    sequences, heads, head_dim = q.shape
    block_size, kv_heads = cache.shape[2:4]
    block_tables, lengths = context.block_tables, context.lengths
    assert q.stride()[1:] == (head_dim, 1) and cache[0].is_contiguous() and block_tables.stride(1) == 1
    parts = _num_parts(sequences * kv_heads, block_tables.shape[1] * block_size)
    out = q.new_empty(q.shape)
    part_out = q.new_empty((sequences, heads, parts, head_dim), dtype=torch.float32)
    part_weight = q.new_empty((sequences, heads, parts), dtype=torch.float32)
    attend, combine = _constants(head_dim, block_size, heads, kv_heads)
    _attend_kernel.launch(
        (sequences, kv_heads, parts),
        (q, cache, block_tables, lengths, out, part_out, part_weight),
        (head_dim**-0.5 * math.log2(math.e), block_tables.stride(0)),
        (q.stride(0), cache.stride(0)),
        attend,
    )
    if parts > 1:
        _combine_kernel.launch((sequences, heads, 1), (part_out, part_weight, lengths, out), (parts,), (), combine)
    return out


@functools.cache
def _constants(head_dim: int, block_size: int, heads: int, kv_heads: int) -> tuple[Constants, Constants]:
    """The constants of the two launches."""
    group = heads // kv_heads
    shared = {
        "HEAD_DIM": head_dim,
        "DIM_BLOCK": max(_SMALLEST_DOT, triton.next_power_of_2(head_dim)),
        "TOKENS": _TOKENS,
        "SMALLEST_PART": _SMALLEST_PART,
        "num_warps": _WARPS,
        "enable_fp_fusion": True,
    }
    attend = Constants(
        BLOCK_SIZE=block_size,
        KV_HEADS=kv_heads,
        GROUP=group,
        GROUP_BLOCK=max(_SMALLEST_DOT, triton.next_power_of_2(group)),
        num_stages=_STAGES,
        **shared,
    )
    return attend, Constants(PARTS_BLOCK=_MOST_PARTS, **shared)


def _num_parts(whole_programs: int, most_tokens: int) -> int:
    """The largest number of parts that a sequence may be split into.

    A small batch is split until it fills the device; a large one only so far that its longest sequence does not hold up
    the others, because programs with nothing to do cost time too.
    """
    wanted = max(8, min(_MOST_PARTS, 2048 // whole_programs))
    return min(wanted, -(-most_tokens // _SMALLEST_PART))


@triton.jit
def _part_size(length, parts, TOKENS: tl.constexpr, SMALLEST_PART: tl.constexpr):
    """Tokens in each part of a sequence except the last; both kernels split the same way."""
    return tl.maximum(tl.cdiv(tl.cdiv(length, parts), TOKENS) * TOKENS, SMALLEST_PART)


@triton.jit
def _load_tile(
    cache,
    table,
    tokens,
    exists,
    kv_head,
    values_offset,
    BLOCK_SIZE: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIM_BLOCK: tl.constexpr,
):
    """One head's keys and values for some tokens of a sequence, each [tokens, DIM_BLOCK]."""
    block = tl.load(table + tokens // BLOCK_SIZE, mask=exists, other=0).to(tl.int64)
    slots = block * BLOCK_SIZE + tokens % BLOCK_SIZE
    dims = tl.arange(0, DIM_BLOCK)
    keys = cache + (slots[:, None] * KV_HEADS + kv_head) * HEAD_DIM + dims
    mask = exists[:, None] & (dims < HEAD_DIM)
    return tl.load(keys, mask=mask, other=0.0), tl.load(keys + values_offset, mask=mask, other=0.0)


@kernel(numbers=["scale", "table_stride"])
def _attend_kernel(
    q,
    cache,
    block_tables,
    lengths,
    out,
    part_out,
    part_weight,
    scale,
    table_stride,
    q_stride,
    values_offset,
    BLOCK_SIZE: tl.constexpr,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    GROUP_BLOCK: tl.constexpr,
    DIM_BLOCK: tl.constexpr,
    TOKENS: tl.constexpr,
    SMALLEST_PART: tl.constexpr,
):
    sequence = tl.program_id(0).to(tl.int64)
    kv_head = tl.program_id(1)
    part = tl.program_id(2)
    parts = tl.num_programs(2)
    length = tl.load(lengths + sequence)
    size = _part_size(length, parts, TOKENS, SMALLEST_PART)
    begin = part * size
    if (begin >= length) & (part > 0):
        return
    end = tl.minimum(begin + size, length)

    group = tl.arange(0, GROUP_BLOCK)
    dims = tl.arange(0, DIM_BLOCK)
    heads = kv_head * GROUP + group
    head_exists = (group < GROUP)[:, None] & (dims < HEAD_DIM)
    query = tl.load(q + sequence * q_stride + heads[:, None] * HEAD_DIM + dims, mask=head_exists, other=0.0)

    table = block_tables + sequence * table_stride
    largest = tl.full([GROUP_BLOCK], float("-inf"), tl.float32)
    total = tl.zeros([GROUP_BLOCK], tl.float32)
    attended = tl.zeros([GROUP_BLOCK, DIM_BLOCK], tl.float32)
    for start in range(begin, end, TOKENS):
        tokens = start + tl.arange(0, TOKENS)
        exists = tokens < end
        key, value = _load_tile(
            cache, table, tokens, exists, kv_head, values_offset, BLOCK_SIZE, KV_HEADS, HEAD_DIM, DIM_BLOCK
        )
        scores = tl.dot(query, tl.trans(key), input_precision="ieee") * scale
        scores = tl.where(exists, scores, float("-inf"))
        now_largest = tl.maximum(largest, tl.max(scores, axis=1))
        kept = tl.exp2(largest - now_largest)
        weights = tl.exp2(scores - now_largest[:, None])
        total = total * kept + tl.sum(weights, axis=1)
        attended = attended * kept[:, None] + tl.dot(weights.to(value.dtype), value, input_precision="ieee")
        largest = now_largest

    # The largest score's weight is 1, so only an empty sequence has a smaller total.
    attended = attended / tl.maximum(total, 1.0)[:, None]
    rows = sequence * (KV_HEADS * GROUP) + heads
    if size >= length:
        tl.store(out + rows[:, None] * HEAD_DIM + dims, attended, mask=head_exists)
    else:
        rows = rows * parts + part
        tl.store(part_out + rows[:, None] * HEAD_DIM + dims, attended, mask=head_exists)
        tl.store(part_weight + rows, largest + tl.log2(total), mask=group < GROUP)


@kernel(numbers=["parts"])
def _combine_kernel(
    part_out,
    part_weight,
    lengths,
    out,
    parts,
    HEAD_DIM: tl.constexpr,
    DIM_BLOCK: tl.constexpr,
    PARTS_BLOCK: tl.constexpr,
    TOKENS: tl.constexpr,
    SMALLEST_PART: tl.constexpr,
):
    sequence = tl.program_id(0)
    row = sequence.to(tl.int64) * tl.num_programs(1) + tl.program_id(1)
    length = tl.load(lengths + sequence)
    size = _part_size(length, parts, TOKENS, SMALLEST_PART)
    if size >= length:
        return
    part = tl.arange(0, PARTS_BLOCK)
    dims = tl.arange(0, DIM_BLOCK)
    used = part * size < length
    at = row * parts + part
    logs = tl.load(part_weight + at, mask=used, other=float("-inf"))
    weights = tl.exp2(logs - tl.max(logs, axis=0))
    mask = used[:, None] & (dims < HEAD_DIM)
    attended = tl.load(part_out + at[:, None] * HEAD_DIM + dims, mask=mask, other=0.0)
    mean = tl.sum(attended * weights[:, None], axis=0) / tl.sum(weights, axis=0)
    tl.store(out + row * HEAD_DIM + dims, mean, mask=dims < HEAD_DIM)
