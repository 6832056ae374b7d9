"""Penalty state of the running sequences, in rows on the device that are allocated and released."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Collection
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from batchocr.data import Sampling
from batchocr.engine.backend.base import Ops, SamplerRows, SamplingHints
from batchocr.engine.backend.device import Device


@dataclass(frozen=True, slots=True)
class _Bound:
    """What a row begins with."""

    sampling: Sampling
    output_ids: tuple[int, ...]


class Sampler:
    """Owns the rows and the list of free ones. The last row is never handed out: it absorbs the padding of a batch.

    What rows begin with is written before the next choice, for all rows that were bound since the last one: that takes
    no more launches than a single row.
    """

    def __init__(self, ops: Ops, device: Device, *, num_rows: int, vocab_size: int, max_new_tokens: int) -> None:
        self._ops = ops
        self._device = device
        rows = SamplerRows.empty(num_rows + 1, vocab_size, max_new_tokens, device.torch_device)
        # All numbers of a type in one tensor, so that one copy writes those of a row.
        self._penalties = torch.stack([rows.presence, rows.frequency])
        self._numbers = torch.stack([rows.length, rows.ngram_size])
        presence, frequency = self._penalties
        length, ngram_size = self._numbers
        self._rows = replace(rows, presence=presence, frequency=frequency, length=length, ngram_size=ngram_size)
        self._num_rows = num_rows
        self._free: list[int] = []
        self._unwritten: dict[int, _Bound] = {}
        self.reset()

    @property
    def num_free(self) -> int:
        return len(self._free)

    def reset(self) -> None:
        """Mark every row as free, including those in use."""
        self._free = list(range(self._num_rows - 1, -1, -1))
        self._unwritten.clear()

    def bind(self, sampling: Sampling, output_ids: list[int]) -> int:
        """Hand out a free row for a sequence. output_ids: tokens generated before it was preempted."""
        row = self._free.pop()
        self._unwritten[row] = _Bound(sampling, tuple(output_ids))
        return row

    def release(self, row: int) -> None:
        self._free.append(row)
        self._unwritten.pop(row, None)

    def sample(self, logits: Tensor, index: Tensor, hints: SamplingHints) -> tuple[Tensor, Tensor]:
        """Choose each sequence's next token and record it; see Ops.sample."""
        if self._unwritten:
            self._begin(self._unwritten)
            self._unwritten.clear()
        return self._ops.sample(logits, index, self._rows, hints)

    def _begin(self, batch: Mapping[int, _Bound]) -> None:
        """Reset these rows for the sequences that were given them."""
        rows, settings = self._rows, [bound.sampling for bound in batch.values()]
        lengths = [len(bound.output_ids) for bound in batch.values()]
        numbers = self._upload([list(batch), lengths, [sampling.no_repeat_ngram_size for sampling in settings]])
        index = numbers[0]
        self._numbers.index_copy_(1, index, numbers[1:])
        penalties = [
            [sampling.presence_penalty for sampling in settings],
            [sampling.frequency_penalty for sampling in settings],
        ]
        self._penalties.index_copy_(1, index, self._device.upload(torch.tensor(penalties, dtype=torch.float32)))
        rows.history.index_fill_(0, index, -1)
        # One launch on a GPU, and on a CPU ten times as fast as to fill by index.
        torch._foreach_zero_([memory[row] for row in batch for memory in (rows.counts, rows.suffix)])
        self._remember_outputs({row: bound for row, bound in batch.items() if bound.output_ids})

    def _remember_outputs(self, batch: Mapping[int, _Bound]) -> None:
        if not batch:
            return
        rows = self._rows
        index, places, tokens, suffixes = self._upload(
            [
                [row for row, bound in batch.items() for _ in bound.output_ids],
                [place for bound in batch.values() for place in range(len(bound.output_ids))],
                [token for bound in batch.values() for token in bound.output_ids],
                [length for bound in batch.values() for length in common_suffixes(bound.output_ids)],
            ]
        )
        rows.counts.index_put_((index, tokens), torch.ones_like(tokens, dtype=torch.int16), accumulate=True)
        rows.history.index_put_((index, places), tokens)
        rows.suffix.index_put_((index, places), suffixes.to(torch.int16))

    def _upload(self, lists: list[list[int]]) -> Tensor:
        return self._device.upload(torch.tensor(lists, dtype=torch.int64))


def sampling_hints(batch: Collection[Sampling], longest: int) -> SamplingHints:
    """Hints for a batch with these settings. longest: an upper bound on output tokens so far, this step's included."""
    return SamplingHints(
        counts=any(sampling.frequency_penalty or sampling.presence_penalty for sampling in batch),
        ngram=any(sampling.no_repeat_ngram_size for sampling in batch),
        longest=longest,
    )


def common_suffixes(tokens: Collection[int]) -> list[int]:
    """At each t, how many tokens ending at tokens[t] match the end of the list; 0 at the last t, by definition.

    The Z-function of the reversed list, in linear time.
    """
    reverse = tokens[::-1]
    z = [0] * len(tokens)
    left = right = 0
    for i in range(1, len(tokens)):
        if i < right:
            z[i] = min(right - i, z[i - left])
        while i + z[i] < len(tokens) and reverse[z[i]] == reverse[i + z[i]]:
            z[i] += 1
        if i + z[i] > right:
            left, right = i, i + z[i]
    return z[::-1]
