"""What `sampling` does to one sequence's logits within a piece of the vocabulary, the tokens from `first` to `end`.

Each step overwrites the logits of the tokens it handles with -inf, so that later steps skip them. A best score comes
with its token and that token's logit; of equal scores, the lowest token wins.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def exp_sum(logits, first, end, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The highest logit, and the sum of exp(logit - highest).

    Each column of a tile is in one thread's registers and keeps its own maximum and sum until the end.
    """
    # Finite, because a column beyond the end of the vocabulary has nothing higher, and -inf - -inf is NaN.
    highest = tl.full([COLUMNS], -3.0e38, tl.float32)
    total = tl.zeros([COLUMNS], tl.float32)
    for start in range(first, end, ROWS * COLUMNS):
        tile = _load_tile(logits, start, end, ROWS, COLUMNS)
        higher = tl.maximum(highest, tl.max(tile, axis=0))
        total = total * tl.exp(highest - higher) + tl.sum(tl.exp(tile - higher[None, :]), axis=0)
        highest = higher
    top = tl.max(highest, axis=0)
    return top, tl.sum(total * tl.exp(highest - top), axis=0)


@triton.jit
def forbid_repeated_ngrams(logits, history, suffix, length, size, first, end, BLOCK: tl.constexpr):
    """Forbid each token that has already followed the last size - 1 tokens; a size of 0 forbids none."""
    if size > 0:
        # The first size - 1 tokens of a history have fewer tokens before them.
        for start in range(size - 1, length, BLOCK):
            place = start + tl.arange(0, BLOCK)
            there = place < length
            token = tl.load(history + place, mask=there, other=-1)
            run = tl.load(suffix + place - 1, mask=there & (place > 0), other=0)
            forbidden = there & (run >= size - 1) & (token >= first) & (token < end)
            tl.store(logits + token, -float("inf"), mask=forbidden)


@triton.jit
def take_seen(logits, seen, counts, length, repetition, frequency, presence, first, end, BLOCK: tl.constexpr):
    """The best score among the tokens of the history or of the prompt; handles all of them.

    seen: [length], the one or the other. A token that occurs more than once is handled by the first block that finds
    it.
    """
    best, best_token, best_logit = _nothing(end, BLOCK)
    for start in range(0, length, BLOCK):
        place = start + tl.arange(0, BLOCK)
        token = tl.load(seen + place, mask=place < length, other=-1).to(tl.int32)
        here = (token >= first) & (token < end)
        logit = tl.load(logits + token, mask=here, other=-float("inf")).to(tl.float32)
        count = tl.load(counts + token, mask=here, other=0).to(tl.float32)
        tl.debug_barrier()
        tl.store(logits + token, -float("inf"), mask=here)
        # As exact as in the reference: a plain division of float32 is not.
        score = tl.where(logit > 0, tl.div_rn(logit, repetition), logit * repetition)
        score = score - frequency * count - tl.where(count > 0, presence, 0.0)
        token = tl.where(here, token, end)
        best, best_token, best_logit = better(best, best_token, best_logit, score, token, logit)
    return _best_of(best, best_token, best_logit, end)


@triton.jit
def best_of_rest(logits, first, end, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The best of the tokens that no step has handled: their scores are their logits."""
    best, best_token, _ = _nothing(end, COLUMNS)
    for start in range(first, end, ROWS * COLUMNS):
        tile = _load_tile(logits, start, end, ROWS, COLUMNS)
        score, row = tl.max(tile, axis=0, return_indices=True)
        token = start + row * COLUMNS + tl.arange(0, COLUMNS)
        best, best_token, _ = better(best, best_token, best, score, token, score)
    score, token, _ = _best_of(best, best_token, best, end)
    return score, token


@triton.jit
def better(score, token, logit, other_score, other_token, other_logit):
    """The higher of two scores, or of each pair in two blocks."""
    other = (other_score > score) | ((other_score == score) & (other_token < token))
    return tl.where(other, other_score, score), tl.where(other, other_token, token), tl.where(other, other_logit, logit)


@triton.jit
def _best_of(score, token, logit, end):
    """The best score of a block, its token, and that token's logit."""
    best = tl.max(score, axis=0)
    best_token = tl.min(tl.where(score == best, token, end), axis=0)
    return best, best_token, tl.max(tl.where(token == best_token, logit, -float("inf")), axis=0)


@triton.jit
def _nothing(end, BLOCK: tl.constexpr):
    """A block of scores worse than any token's."""
    lowest = tl.full([BLOCK], -float("inf"), tl.float32)
    return lowest, tl.full([BLOCK], 0, tl.int32) + end, lowest


@triton.jit
def _load_tile(logits, start, end, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    tokens = start + tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    return tl.load(logits + tokens, mask=tokens < end, other=-float("inf")).to(tl.float32)
