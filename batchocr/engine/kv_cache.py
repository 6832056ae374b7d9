"""The paged KV cache: one pool of blocks on the device, handed out as sequences grow. A block here is a KV block."""

from __future__ import annotations

from torch import Tensor

SCRATCH_BLOCK = 0
"""The block that is never handed out: the padding of a batch reads and writes it."""


class KVCache:
    """Owns the pool and the set of its free blocks.

    The blocks of a sequence are contiguous where possible, so that a backend can read them without copying: each
    sequence begins in a lane of its own and grows from there.
    """

    def __init__(self, pool: Tensor, num_lanes: int) -> None:
        """num_lanes: how many sequences are expected at once."""
        self.pool = pool
        """The pool of blocks: [layers, 2, blocks, block_size, kv_heads, head_dim]."""
        self.num_blocks: int = pool.shape[2] - 1
        self.block_size: int = pool.shape[3]
        self._lanes = [SCRATCH_BLOCK + 1 + lane * self.num_blocks // num_lanes for lane in range(num_lanes)]
        self._free = set(range(SCRATCH_BLOCK + 1, SCRATCH_BLOCK + 1 + self.num_blocks))

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def num_tokens(self) -> int:
        """How many tokens the whole pool can hold."""
        return self.num_blocks * self.block_size

    def wipe(self, blocks: Tensor) -> None:
        """Set these blocks to zero. blocks: int64 [n] on the pool's device."""
        self.pool.index_fill_(2, blocks, 0.0)

    def blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def grow(self, block_table: list[int], num_tokens: int) -> bool:
        """Append blocks until the table holds num_tokens. Returns False and changes nothing if too few are free."""
        missing = self.blocks_for(num_tokens) - len(block_table)
        if missing > len(self._free):
            return False
        for _ in range(missing):
            block_table.append(self._take(block_table[-1] + 1 if block_table else self._lane_start()))
        return True

    def release(self, block_table: list[int]) -> None:
        """Free all blocks of the table and empty it."""
        self._free.update(block_table)
        block_table.clear()

    def _lane_start(self) -> int:
        """The first block of a lane, if one is free, else SCRATCH_BLOCK."""
        return next((block for block in self._lanes if block in self._free), SCRATCH_BLOCK)

    def _take(self, wanted: int) -> int:
        """Take the wanted block if it is free, else any free one."""
        if wanted not in self._free:
            return self._free.pop()
        self._free.remove(wanted)
        return wanted
