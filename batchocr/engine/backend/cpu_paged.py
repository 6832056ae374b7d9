"""Decode attention on a CPU: keys and values are read in place from the paged cache if their blocks are contiguous.

Gathering them in every layer took more than half of a decode step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

from batchocr.engine.backend.base import PagedContext

Place: TypeAlias = slice | Tensor
"""The slots of a sequence's tokens: usually a slice, or int64 [tokens] if its blocks are not contiguous."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where in the cache the tokens of a step's sequences are; the places are the same in every layer."""

    context: PagedContext
    by_sequence: Sequence[Place]

    @classmethod
    def find(cls, context: PagedContext, *, block_size: int) -> Places:
        tables, lengths = context.block_tables.tolist(), context.lengths.tolist()
        places = [_place(table, length, block_size) for table, length in zip(tables, lengths, strict=True)]
        return cls(context, places)


def attend(q: Tensor, cache: Tensor, places: Places) -> Tensor:
    """See `Ops.paged_attention`. Computes, and returns, in q's type."""
    num_rows, kv_heads, head_dim = len(q), *cache.shape[3:]
    # [kv_heads, slots, head_dim]
    keys, values = cache.view(2, -1, kv_heads, head_dim).transpose(1, 2)
    # The query heads that share a KV head become as many queries of one head.
    queries = q.view(num_rows, 1, kv_heads, -1, head_dim).unbind()
    attended = [
        F.scaled_dot_product_attention(query, _at(place, keys, q.dtype), _at(place, values, q.dtype))
        for query, place in zip(queries, places.by_sequence, strict=True)
    ]
    return torch.cat(attended).view(q.shape)


def _place(table: Sequence[int], length: int, block_size: int) -> Place:
    blocks = table[: -(-length // block_size)]
    first = blocks[0]
    if blocks == list(range(first, first + len(blocks))):
        return slice(first * block_size, first * block_size + length)
    slots = torch.tensor(blocks).unsqueeze(1) * block_size + torch.arange(block_size)
    return slots.flatten()[:length]


def _at(place: Place, x: Tensor, dtype: torch.dtype) -> Tensor:
    """The keys or values of a sequence's tokens. x: [kv_heads, slots, head_dim]. Returns [1, kv_heads, tokens,
    head_dim]."""
    found = x[:, place] if isinstance(place, slice) else x.index_select(1, place)
    return found.unsqueeze(0).to(dtype)
