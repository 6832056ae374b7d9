"""Greedy choice after penalties, in plain torch: logits and history never leave the device.

Presence, frequency and the n-gram rule count output tokens, repetition counts prompt and output, as in vLLM.
"""

from __future__ import annotations

import torch
from torch import Tensor

from batchocr.engine.backend.base import SamplerRows, SamplingHints


def greedy_after_penalties(
    logits: Tensor, index: Tensor, rows: SamplerRows, hints: SamplingHints
) -> tuple[Tensor, Tensor]:
    """The reference for `Ops.sample`. logits: float32 [sequences, vocabulary]."""
    tokens = _penalised(logits, index, rows, hints).argmax(dim=-1)
    logprobs = logits.gather(1, tokens.unsqueeze(1)).squeeze(1) - logits.logsumexp(dim=-1)
    _remember(tokens, index, rows, hints)
    return tokens, logprobs


def _penalised(logits: Tensor, index: Tensor, rows: SamplerRows, hints: SamplingHints) -> Tensor:
    if hints.repetition:
        penalty = rows.repetition[index].unsqueeze(1)
        seen = rows.in_prompt[index] | (rows.counts[index] > 0)
        logits = torch.where(seen, torch.where(logits > 0, logits / penalty, logits * penalty), logits)
    if hints.counts:
        counts = rows.counts[index]
        frequency = rows.frequency[index].unsqueeze(1) * counts
        logits = logits - frequency - rows.presence[index].unsqueeze(1) * (counts > 0)
    if hints.ngram:
        logits = _without_repeated_ngrams(logits, index, rows, hints.longest)
    return logits


def _without_repeated_ngrams(logits: Tensor, index: Tensor, rows: SamplerRows, longest: int) -> Tensor:
    """Forbid each token that has already followed the last n - 1 tokens."""
    size = rows.ngram_size[index].unsqueeze(1)
    followed = (rows.suffix[:, :longest][index] >= size - 1) & (size > 0)
    # history[t + 1] followed the tokens ending at t; before the first token (t = -1) there is nothing to match.
    followed = torch.cat([size == 1, followed[:, :-1]], dim=1)[:, :longest]
    history = rows.history[:, :longest][index]
    followed &= history >= 0
    bans = torch.zeros_like(followed, dtype=logits.dtype).masked_fill_(followed, -torch.inf)
    return logits.scatter_reduce(1, history.clamp(min=0), bans + logits.gather(1, history.clamp(min=0)), "amin")


def _remember(tokens: Tensor, index: Tensor, rows: SamplerRows, hints: SamplingHints) -> None:
    if hints.counts or hints.repetition:
        rows.counts.index_put_((index, tokens), torch.ones_like(tokens, dtype=torch.int16), accumulate=True)
    if hints.ngram:
        history, suffix = rows.history[:, : hints.longest][index], rows.suffix[:, : hints.longest][index]
        previous = torch.cat([torch.zeros_like(tokens, dtype=suffix.dtype).unsqueeze(1), suffix], dim=1)[:, :-1]
        rows.suffix[index, : hints.longest] = torch.where(history == tokens.unsqueeze(1), previous + 1, 0)
        rows.history[index, rows.length[index]] = tokens
    rows.length[index] += 1
