"""State of the running sequences in rows on the device, which a decode step reads and advances without the host.

The host sends only the indices of the rows to decode and newly allocated KV blocks. Tokens, positions and lengths are
kept on the device, so a step can be launched before the previous one is read, and can be captured in a graph.
"""

from __future__ import annotations

from collections.abc import Sequence as Collection

import torch
from torch import Tensor

from batchocr.engine.backend.base import PagedContext
from batchocr.engine.backend.device import Device
from batchocr.engine.kv_cache import SCRATCH_BLOCK
from batchocr.engine.sequence import Sequence


class DecodeRows:
    """Rows numbered like the sampler's. The last one belongs to no sequence and absorbs the padding of a batch."""

    def __init__(self, device: Device, *, num_rows: int, max_blocks: int, block_size: int) -> None:
        self._device = device
        self._block_size = block_size
        on = device.torch_device
        self._block_tables = torch.full((num_rows + 1, max_blocks), SCRATCH_BLOCK, dtype=torch.int32, device=on)
        self._length = torch.ones(num_rows + 1, dtype=torch.int64, device=on)
        """Tokens of each sequence with the newest, which is not yet in the cache; 1 in a row without a sequence, as
        padding must be decodable."""
        self._position_shift, self._last_token = torch.zeros(2, num_rows + 1, dtype=torch.int64, device=on)
        """For each sequence, a token's M-RoPE position minus its index; and its newest token."""
        self._known_blocks = [0] * num_rows
        """How many blocks of each row's sequence are in its block table."""
        self.spare = num_rows

    def begin(self, batch: Collection[Sequence], index: Tensor, tokens: Tensor) -> None:
        """Fill the rows of sequences that were just prefilled. index: their rows. tokens: what prefill chose."""
        lengths = [sequence.num_tokens + 1 for sequence in batch]
        shifts = [sequence.position_shift for sequence in batch]
        uploaded = self._device.upload(torch.tensor([lengths, shifts]))
        self._length.index_copy_(0, index, uploaded[0])
        self._position_shift.index_copy_(0, index, uploaded[1])
        self._last_token.index_copy_(0, index, tokens)
        for sequence in batch:
            assert sequence.row is not None
            self._known_blocks[sequence.row] = 0
        self.extend(batch)

    def extend(self, batch: Collection[Sequence]) -> None:
        """Upload the KV blocks that these sequences were given since the last upload."""
        changes = []
        known_blocks = self._known_blocks
        for sequence in batch:
            row, table = sequence.row, sequence.block_table
            assert row is not None
            if len(table) > known_blocks[row]:
                changes += [(row, column, table[column]) for column in range(known_blocks[row], len(table))]
                known_blocks[row] = len(table)
        if changes:
            rows, columns, blocks = self._device.upload(torch.tensor(changes).t())
            self._block_tables.index_put_((rows, columns), blocks.int())

    def next_inputs(self, index: Tensor, longest: int | None) -> tuple[Tensor, Tensor, Tensor, PagedContext]:
        """The inputs of these rows' next step: tokens [n], positions [3, n], slots [n] and the attention context.

        longest: tokens of the longest sequence, if the host knows it; it limits the width of the block tables.
        """
        lengths = self._length.index_select(0, index)
        newest = lengths - 1
        tables = self._block_tables
        if longest is not None:
            tables = tables[:, : -(-longest // self._block_size)]
        tables = tables.index_select(0, index)
        blocks = tables.gather(1, (newest // self._block_size).unsqueeze(1)).squeeze(1)
        slots = blocks * self._block_size + newest % self._block_size
        positions = (newest + self._position_shift.index_select(0, index)).expand(3, -1)
        return self._last_token.index_select(0, index), positions, slots, PagedContext(tables, lengths.int())

    def advance(self, index: Tensor, tokens: Tensor) -> None:
        """Record each row's newest token and lengthen the row by one. The spare row's length stays 1."""
        self._last_token.index_copy_(0, index, tokens)
        self._length.index_add_(0, index, torch.ones_like(index))
        self._length[self.spare].fill_(1)  # an assignment would copy the 1 from the host, and wait for it
