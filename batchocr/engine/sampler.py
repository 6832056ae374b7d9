"""Penalty state of the running sequences, in rows on the device that are allocated and released."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from batchocr.data import Sampling
from batchocr.engine.backend.base import SamplerRows
from batchocr.engine.backend.device import Device
from batchocr.engine.backend.reference import Ops


class Sampler:
    """Owns the rows and the list of free ones. The last row is never handed out: it absorbs the padding of a batch.

    What rows begin with is written before the next choice, for all rows that were bound since the last one: that takes
    no more launches than a single row.
    """

    def __init__(self, ops: Ops, device: Device, *, num_rows: int, vocab_size: int, max_new_tokens: int) -> None:
        self._ops = ops
        self._device = device
        self._rows = SamplerRows.empty(num_rows + 1, vocab_size, max_new_tokens, device.torch_device)
        self._free = list(range(num_rows - 1, -1, -1))
        self._unwritten: dict[int, Sampling] = {}

    @property
    def num_free(self) -> int:
        return len(self._free)

    def bind(self, sampling: Sampling) -> int:
        """Hand out a free row for a sequence."""
        row = self._free.pop()
        self._unwritten[row] = sampling
        return row

    def release(self, row: int) -> None:
        self._free.append(row)
        self._unwritten.pop(row, None)

    def sample(self, logits: Tensor, index: Tensor, longest: int) -> tuple[Tensor, Tensor]:
        """Choose each sequence's next token and record it; see Ops.sample."""
        if self._unwritten:
            self._begin(self._unwritten)
            self._unwritten.clear()
        return self._ops.sample(logits, index, self._rows, longest)

    def _begin(self, batch: Mapping[int, Sampling]) -> None:
        """Reset these rows for the sequences that were given them."""
        rows, settings = self._rows, batch.values()
        sizes = [sampling.no_repeat_ngram_size for sampling in settings]
        penalties = [(sampling.presence_penalty, sampling.frequency_penalty) for sampling in settings]
        index, ngram_size = self._device.upload(torch.tensor([list(batch), sizes]))
        presence, frequency = self._device.upload(torch.tensor(penalties, dtype=torch.float32).t())
        rows.presence.index_copy_(0, index, presence)
        rows.frequency.index_copy_(0, index, frequency)
        rows.ngram_size.index_copy_(0, index, ngram_size)
        rows.length.index_fill_(0, index, 0)
        rows.history.index_fill_(0, index, -1)
        # One launch on a GPU, and on a CPU ten times as fast as to fill by index.
        torch._foreach_zero_([memory[row] for row in batch for memory in (rows.counts, rows.suffix)])
