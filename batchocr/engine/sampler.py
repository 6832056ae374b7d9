"""Penalty state of the running sequences, in rows on the device that are allocated and released."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from batchocr.data import Sampling
from batchocr.engine.backend.base import MAX_PROMPT_TOKENS, SamplerRows
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
        self._unwritten: dict[int, tuple[Sampling, Sequence[int]]] = {}

    @property
    def num_free(self) -> int:
        return len(self._free)

    def bind(self, sampling: Sampling, prompt: Sequence[int]) -> int:
        """Hand out a free row for a sequence. prompt: its tokens, which the repetition penalty counts."""
        row = self._free.pop()
        self._unwritten[row] = sampling, prompt
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

    def _begin(self, batch: Mapping[int, tuple[Sampling, Sequence[int]]]) -> None:
        """Reset these rows for the sequences that were given them."""
        rows, settings = self._rows, [sampling for sampling, _ in batch.values()]
        sizes = [each.no_repeat_ngram_size for each in settings]
        penalties = [(each.presence_penalty, each.frequency_penalty, each.repetition_penalty) for each in settings]
        index, ngram_size = self._device.upload(torch.tensor([list(batch), sizes]))
        presence, frequency, repetition = self._device.upload(torch.tensor(penalties, dtype=torch.float32).t())
        rows.presence.index_copy_(0, index, presence)
        rows.frequency.index_copy_(0, index, frequency)
        rows.repetition.index_copy_(0, index, repetition)
        if any(each.repetition_penalty != 1 for each in settings):
            prompts = torch.tensor([_each_once(prompt) for _, prompt in batch.values()])
            rows.prompt.index_copy_(0, index, self._device.upload(prompts))
        rows.ngram_size.index_copy_(0, index, ngram_size)
        rows.length.index_fill_(0, index, 0)
        rows.history.index_fill_(0, index, -1)
        # One launch on a GPU, and on a CPU ten times as fast as to fill by index.
        torch._foreach_zero_([memory[row] for row in batch for memory in (rows.counts, rows.suffix)])


def _each_once(prompt: Sequence[int]) -> list[int]:
    """The tokens of a prompt, each once, and the last one again up to the width of a row."""
    tokens = list(set(prompt))
    assert 0 < len(tokens) <= MAX_PROMPT_TOKENS
    return tokens + tokens[-1:] * (MAX_PROMPT_TOKENS - len(tokens))
