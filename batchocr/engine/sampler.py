"""Greedy choice after penalties, on the device: no logits and no history ever travel to the host.

Presence, frequency and the n-gram rule look at output tokens, repetition at prompt and output, as vLLM counts them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from batchocr.data import Sampling


class Sampler:
    """Penalty state in rows, one per running sequence.

    counts: how often each token was put out, int16 [rows, vocabulary]. in_prompt: bool [rows, vocabulary].
    history: output tokens, int64 [rows, max_new_tokens]. suffix: int16, same shape: at t, how many tokens up to and
    including history[t] are the same as the last ones of the history; it finds repeated n-grams without looking at
    n tokens. length: tokens in the history, int64 [rows].
    """

    def __init__(self, *, num_rows: int, vocab_size: int, max_new_tokens: int, device: torch.device) -> None:
        self._device = device
        self._counts = torch.zeros(num_rows, vocab_size, dtype=torch.int16, device=device)
        self._in_prompt = torch.zeros(num_rows, vocab_size, dtype=torch.bool, device=device)
        self._history = torch.full((num_rows, max_new_tokens), -1, dtype=torch.int64, device=device)
        self._suffix = torch.zeros(num_rows, max_new_tokens, dtype=torch.int16, device=device)
        self._length = torch.zeros(num_rows, dtype=torch.int64, device=device)
        self._presence, self._frequency = torch.zeros(2, num_rows, device=device)
        self._repetition = torch.ones(num_rows, device=device)
        self._ngram = torch.zeros(num_rows, dtype=torch.int64, device=device)
        self._settings: list[Sampling | None] = [None] * num_rows
        self._free = list(range(num_rows - 1, -1, -1))

    @property
    def num_free(self) -> int:
        return len(self._free)

    def bind(self, sampling: Sampling, prompt_ids: tuple[int, ...], output_ids: list[int]) -> int:
        """Reset a free row for a sequence and return it. output_ids: what it put out before it was put back."""
        row = self._free.pop()
        self._settings[row] = sampling
        self._presence[row] = sampling.presence_penalty
        self._frequency[row] = sampling.frequency_penalty
        self._repetition[row] = sampling.repetition_penalty
        self._ngram[row] = sampling.no_repeat_ngram_size
        self._counts[row].zero_()
        self._in_prompt[row].zero_()
        self._in_prompt[row, torch.tensor(prompt_ids, device=self._device)] = True
        self._history[row].fill_(-1)
        self._suffix[row].zero_()
        self._length[row] = len(output_ids)
        if output_ids:
            output = torch.tensor(output_ids, device=self._device)
            self._counts[row] = torch.bincount(output, minlength=self._counts.shape[1])
            self._history[row, : len(output_ids)] = output
            self._suffix[row, : len(output_ids)] = torch.tensor(common_suffixes(output_ids), device=self._device)
        return row

    def release(self, row: int) -> None:
        self._settings[row] = None
        self._free.append(row)

    def sample(self, logits: Tensor, rows: list[int]) -> tuple[Tensor, Tensor]:
        """Choose each sequence's next token and remember it.

        logits: float32 [sequences, vocabulary]; rows: their rows. Returns the tokens, int64 [sequences], and their
        log-probabilities before penalties, float32 [sequences], on the device.
        """
        index = torch.tensor(rows, device=self._device)
        tokens = self._penalised(logits, rows, index).argmax(dim=-1)
        logprobs = logits.gather(1, tokens.unsqueeze(1)).squeeze(1) - logits.logsumexp(dim=-1)
        self._remember(tokens, index)
        return tokens, logprobs

    def _penalised(self, logits: Tensor, rows: list[int], index: Tensor) -> Tensor:
        settings = [sampling for row in rows if (sampling := self._settings[row]) is not None]
        if any(sampling.repetition_penalty != 1 for sampling in settings):
            penalty = self._repetition[index].unsqueeze(1)
            seen = self._in_prompt[index] | (self._counts[index] > 0)
            logits = torch.where(seen, torch.where(logits > 0, logits / penalty, logits * penalty), logits)
        if any(sampling.frequency_penalty or sampling.presence_penalty for sampling in settings):
            counts = self._counts[index]
            frequency = self._frequency[index].unsqueeze(1) * counts
            logits = logits - frequency - self._presence[index].unsqueeze(1) * (counts > 0)
        if any(sampling.no_repeat_ngram_size for sampling in settings):
            logits = self._without_repeated_ngrams(logits, index)
        return logits

    def _without_repeated_ngrams(self, logits: Tensor, index: Tensor) -> Tensor:
        """Forbid each token that once followed the last n - 1 tokens."""
        size = self._ngram[index].unsqueeze(1)
        followed = (self._suffix[index] >= size - 1) & (size > 0)
        # history[t + 1] followed what ends at t; before the first token (t = -1) nothing had to match.
        first = size == 1
        followed = torch.cat([first, followed[:, :-1]], dim=1)
        history = self._history[index]
        followed &= history >= 0
        bans = torch.zeros_like(followed, dtype=logits.dtype).masked_fill_(followed, -torch.inf)
        return logits.scatter_reduce(1, history.clamp(min=0), bans + logits.gather(1, history.clamp(min=0)), "amin")

    def _remember(self, tokens: Tensor, index: Tensor) -> None:
        self._counts.index_put_((index, tokens), torch.ones_like(tokens, dtype=torch.int16), accumulate=True)
        history, suffix = self._history[index], self._suffix[index]
        previous = torch.cat([torch.zeros_like(suffix[:, :1]), suffix[:, :-1]], dim=1)
        self._suffix[index] = torch.where(history == tokens.unsqueeze(1), previous + 1, 0)
        self._history[index, self._length[index]] = tokens
        self._length[index] += 1


def common_suffixes(tokens: list[int]) -> list[int]:
    """At each t, how many tokens up to tokens[t] equal the list's last ones; 0 at the end itself, by definition.

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
