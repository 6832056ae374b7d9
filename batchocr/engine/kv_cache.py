"""The paged KV cache: one pool of blocks on the device, handed out as sequences grow. A block here is a KV block."""

from __future__ import annotations

from torch import Tensor

SCRATCH_BLOCK = 0
"""Never handed out: the padding of a batch reads and writes there."""


class KVCache:
    """Owns the pool and which of its blocks are free.

    pool: [layers, 2, blocks, block_size, kv_heads, head_dim].
    """

    def __init__(self, pool: Tensor) -> None:
        self.pool = pool
        self.num_blocks: int = pool.shape[2] - 1
        self.block_size: int = pool.shape[3]
        self._free: list[int] = []
        self.reset()

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def num_tokens(self) -> int:
        """Tokens the whole pool holds."""
        return self.num_blocks * self.block_size

    def reset(self) -> None:
        """Take every block back, whoever holds it."""
        self._free = list(range(self.num_blocks, SCRATCH_BLOCK, -1))

    def wipe(self, blocks: Tensor) -> None:
        """Set these blocks to zero. blocks: int64 [n] on the pool's device."""
        self.pool.index_fill_(2, blocks, 0.0)

    def blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def grow(self, block_table: list[int], num_tokens: int) -> bool:
        """Append blocks until the table holds num_tokens. Returns False, changing nothing, where too few are free."""
        missing = self.blocks_for(num_tokens) - len(block_table)
        if missing > len(self._free):
            return False
        block_table.extend(self._free.pop() for _ in range(missing))
        return True

    def release(self, block_table: list[int]) -> None:
        """Take all blocks of the table back and empty it."""
        self._free.extend(reversed(block_table))
        block_table.clear()
