"""Penalty state of the running sequences, in rows on the device that are allocated and released."""

from __future__ import annotations

from collections.abc import Sequence as Collection

import torch
from torch import Tensor

from batchocr.backend.base import Ops, SamplerRows, SamplingHints
from batchocr.backend.device import Device
from batchocr.data import Sampling


class Sampler:
    """Owns the rows and the list of free ones. The last row is never handed out: it absorbs the padding of a batch."""

    def __init__(self, ops: Ops, device: Device, *, num_rows: int, vocab_size: int, max_new_tokens: int) -> None:
        self._ops = ops
        self._device = device
        self._rows = SamplerRows.empty(num_rows + 1, vocab_size, max_new_tokens, device.torch_device)
        self._num_rows = num_rows
        self._free: list[int] = []
        self.reset()

    @property
    def num_free(self) -> int:
        return len(self._free)

    def reset(self) -> None:
        """Mark every row as free, including those in use."""
        self._free = list(range(self._num_rows - 1, -1, -1))

    def bind(self, sampling: Sampling, prompt_ids: tuple[int, ...], output_ids: list[int]) -> int:
        """Reset a free row for a sequence and return it. output_ids: tokens generated before it was preempted."""
        row, rows = self._free.pop(), self._rows
        # Assignments to single elements would copy each number from the host, and wait for the GPU.
        rows.presence[row].fill_(sampling.presence_penalty)
        rows.frequency[row].fill_(sampling.frequency_penalty)
        rows.repetition[row].fill_(sampling.repetition_penalty)
        rows.ngram_size[row].fill_(sampling.no_repeat_ngram_size)
        rows.counts[row].zero_()
        rows.history[row].fill_(-1)
        rows.suffix[row].zero_()
        rows.length[row].fill_(len(output_ids))
        if sampling.repetition_penalty != 1:
            rows.in_prompt[row].zero_()
            rows.in_prompt[row].index_fill_(0, self._device.upload(torch.tensor(prompt_ids)), True)
        if output_ids:
            output, suffix = self._device.upload(torch.tensor([output_ids, common_suffixes(output_ids)]))
            rows.counts[row].index_add_(0, output, torch.ones_like(output, dtype=torch.int16))
            rows.history[row, : len(output_ids)] = output
            rows.suffix[row, : len(output_ids)] = suffix
        return row

    def release(self, row: int) -> None:
        self._free.append(row)

    def sample(self, logits: Tensor, index: Tensor, hints: SamplingHints) -> tuple[Tensor, Tensor]:
        """Choose each sequence's next token and record it; see Ops.sample."""
        return self._ops.sample(logits, index, self._rows, hints)


def sampling_hints(batch: Collection[Sampling], longest: int) -> SamplingHints:
    """Hints for a batch with these settings. longest: an upper bound on output tokens so far, this step's included."""
    return SamplingHints(
        repetition=any(sampling.repetition_penalty != 1 for sampling in batch),
        counts=any(sampling.frequency_penalty or sampling.presence_penalty for sampling in batch),
        ngram=any(sampling.no_repeat_ngram_size for sampling in batch),
        longest=longest,
    )


def common_suffixes(tokens: list[int]) -> list[int]:
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
