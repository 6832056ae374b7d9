"""Which blocks of the KV cache a sequence is given, and that none is given twice or lost."""

from __future__ import annotations

import random

import pytest
import torch

from batchocr.engine.kv_cache import SCRATCH_BLOCK, KVCache

BLOCK_SIZE = 4


def cache_of(num_blocks: int, num_lanes: int) -> KVCache:
    return KVCache(torch.zeros(1, 2, num_blocks + 1, BLOCK_SIZE, 1, 2), num_lanes)


def test_sequences_that_grow_in_turn_keep_their_blocks_together() -> None:
    cache = cache_of(num_blocks=30, num_lanes=3)
    tables: list[list[int]] = [[], [], []]
    for num_tokens in range(1, 10 * BLOCK_SIZE + 1):
        assert all(cache.grow(table, num_tokens) for table in tables)
    assert cache.num_free == 0
    for table in tables:
        assert table == list(range(table[0], table[0] + 10))


def test_a_sequence_too_long_for_its_lane_takes_blocks_of_others() -> None:
    cache = cache_of(num_blocks=12, num_lanes=3)
    short: list[int] = []
    long: list[int] = []
    assert cache.grow(short, 1) and cache.grow(long, 11 * BLOCK_SIZE)
    assert len(set(short + long)) == 12 and SCRATCH_BLOCK not in short + long
    assert not cache.grow(short, BLOCK_SIZE + 1) and len(short) == 1


@pytest.mark.parametrize("num_lanes", [1, 3, 50])
def test_no_block_is_given_twice_or_lost(num_lanes: int) -> None:
    """Also with more lanes than blocks."""
    draw = random.Random(0)
    cache = cache_of(num_blocks=20, num_lanes=num_lanes)
    tables: list[list[int]] = [[] for _ in range(6)]
    refused = 0
    for _ in range(2000):
        table = draw.choice(tables)
        if table and draw.random() < 0.2:
            cache.release(table)
        else:
            before = list(table)
            grew = cache.grow(table, len(table) * BLOCK_SIZE + draw.randint(1, 5 * BLOCK_SIZE))
            assert grew or table == before
            refused += not grew
        held = [block for table in tables for block in table]
        assert len(held) == len(set(held)) == 20 - cache.num_free
        assert set(held) <= set(range(1, 21))
    assert refused
    for table in tables:
        cache.release(table)
    assert cache.num_free == 20
