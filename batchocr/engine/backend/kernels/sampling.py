"""Chooses every sequence's next token greedily after penalties: two launches, one pass over the logits in memory.

Penalties affect few tokens, those of the history and the prompt. So counts are read only for these, never for the
whole vocabulary, and a step moves little more than the logits.
"""

from __future__ import annotations

import functools

import torch
import triton
import triton.language as tl
from torch import Tensor

from batchocr.engine.backend.base import SamplerRows
from batchocr.engine.backend.kernels.launch import Constants, kernel
from batchocr.engine.backend.kernels.vocabulary_piece import (
    best_of_rest,
    better,
    exp_sum,
    forbid_repeated_ngrams,
    take_seen,
)

# The vocabulary of Qwen2 is ten pieces: enough programs to fill a GPU from a dozen sequences on, and few enough that
# scanning the history in each costs little next to the logits. A piece is read again from the L1 cache.
PIECE = 16_384
# A tile has four rows, each one 16-byte vector of bfloat16 for each of 128 threads.
ROWS, COLUMNS = 4, 1024
HISTORY_BLOCK = 512


def sample(logits: Tensor, index: Tensor, rows: SamplerRows, longest: int) -> tuple[Tensor, Tensor]:
    """Choose each sequence's next token and record it in its row; `Ops.sample` for any settings of the rows.

    logits: bfloat16 or float32 [sequences, vocabulary], each row contiguous; some are overwritten. index: int64
    [sequences]. The last row is for padding: nothing is recorded in it, nor in a full one. longest: not used. Returns
    the tokens, int64 [sequences] (the lowest if scores are equal), and their log-probabilities before penalties,
    float32.

    Moves the logits once, and some 30 bytes per token of the history, most of them a sector of the counts. Arithmetic
    is in float32.
    """
    sequences, vocab_size = logits.shape
    num_rows, max_tokens = rows.history.shape
    num_prompt_tokens = rows.prompt.shape[1]
    assert logits.stride(1) == 1
    pieces = triton.cdiv(vocab_size, PIECE)
    scores = logits.new_empty((sequences, 4, pieces), dtype=torch.float32)
    choices = logits.new_empty((sequences, pieces), dtype=torch.int32)
    history = rows.counts, rows.history, rows.suffix, rows.length
    settings = rows.presence, rows.frequency, rows.ngram_size, rows.repetition, rows.prompt
    _choose_kernel.launch(
        (pieces, sequences, 1),
        (logits, index, *history, *settings, scores, choices),
        (),
        (logits.stride(0), vocab_size, max_tokens, num_prompt_tokens),
        _choose_constants(PIECE, ROWS, COLUMNS, HISTORY_BLOCK),
    )
    tokens, logprobs = torch.empty_like(index), logits.new_empty(sequences, dtype=torch.float32)
    _remember_kernel.launch(
        (sequences, 1, 1),
        (scores, choices, index, *history, tokens, logprobs),
        (),
        (pieces, vocab_size, num_rows, max_tokens),
        _remember_constants(triton.next_power_of_2(pieces), HISTORY_BLOCK),
    )
    return tokens, logprobs


@functools.cache
def _choose_constants(piece: int, rows: int, columns: int, history_block: int) -> Constants:
    blocks = {"PIECE": piece, "ROWS": rows, "COLUMNS": columns, "HISTORY_BLOCK": history_block}
    # Fused, the penalties would round differently from the reference, and equal scores are common in bfloat16.
    return Constants(**blocks, num_warps=4, enable_fp_fusion=False)


@functools.cache
def _remember_constants(pieces: int, history_block: int) -> Constants:
    return Constants(PIECES=pieces, HISTORY_BLOCK=history_block, num_warps=4, enable_fp_fusion=True)


@kernel()
def _choose_kernel(
    logits,
    index,
    counts,
    history,
    suffix,
    lengths,
    presences,
    frequencies,
    ngram_sizes,
    repetitions,
    prompts,
    scores,
    choices,
    logits_stride,
    vocab_size,
    max_tokens,
    num_prompt_tokens,
    PIECE: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    HISTORY_BLOCK: tl.constexpr,
):
    """The best token for a sequence in a piece of the vocabulary. Grid: (pieces, sequences), so that the pieces of one
    sequence run side by side and share its history in the cache.

    scores: [sequences, 4, pieces]: the highest logit, the sum of exp(logit - highest), the best score after penalties
    and that token's logit. choices: [sequences, pieces], the token with that score.
    """
    piece = tl.program_id(0)
    sequence = tl.program_id(1).to(tl.int64)
    row = tl.load(index + sequence)
    logits += sequence * logits_stride
    history += row * max_tokens
    length = tl.minimum(tl.load(lengths + row), max_tokens).to(tl.int32)
    first = piece * PIECE
    end = tl.minimum(first + PIECE, vocab_size)

    highest, total = exp_sum(logits, first, end, ROWS, COLUMNS)
    # From here on, logits already handled are overwritten with -inf: all threads must have read before one writes.
    tl.debug_barrier()
    ngram_size = tl.load(ngram_sizes + row).to(tl.int32)
    forbid_repeated_ngrams(logits, history, suffix + row * max_tokens, length, ngram_size, first, end, HISTORY_BLOCK)
    tl.debug_barrier()
    presence = tl.load(presences + row)
    frequency = tl.load(frequencies + row)
    counts += row * vocab_size
    repetition = tl.load(repetitions + row)
    score, token, logit = take_seen(
        logits, history, counts, length, repetition, frequency, presence, first, end, HISTORY_BLOCK
    )
    tl.debug_barrier()
    if repetition != 1:
        prompt = prompts + row * num_prompt_tokens
        best, best_token, best_logit = take_seen(
            logits, prompt, counts, num_prompt_tokens, repetition, frequency, presence, first, end, HISTORY_BLOCK
        )
        score, token, logit = better(score, token, logit, best, best_token, best_logit)
        tl.debug_barrier()
    rest, rest_token = best_of_rest(logits, first, end, ROWS, COLUMNS)
    score, token, logit = better(score, token, logit, rest, rest_token, rest)

    pieces = tl.num_programs(0)
    scores += sequence * 4 * pieces + piece
    tl.store(scores, highest)
    tl.store(scores + pieces, total)
    tl.store(scores + 2 * pieces, score)
    tl.store(scores + 3 * pieces, logit)
    tl.store(choices + sequence * pieces + piece, token)


@kernel()
def _remember_kernel(
    scores,
    choices,
    index,
    counts,
    history,
    suffix,
    lengths,
    tokens,
    logprobs,
    pieces,
    vocab_size,
    num_rows,
    max_tokens,
    PIECES: tl.constexpr,
    HISTORY_BLOCK: tl.constexpr,
):
    """Choose the best of the pieces, and write the token into the sequence's row. Grid: (sequences,)."""
    sequence = tl.program_id(0).to(tl.int64)
    piece = tl.arange(0, PIECES)
    inside = piece < pieces
    scores += sequence * 4 * pieces + piece
    highest = tl.load(scores, mask=inside, other=-float("inf"))
    total = tl.load(scores + pieces, mask=inside, other=0.0)
    score = tl.load(scores + 2 * pieces, mask=inside, other=-float("inf"))
    logit = tl.load(scores + 3 * pieces, mask=inside, other=0.0)
    choice = tl.load(choices + sequence * pieces + piece, mask=inside, other=vocab_size)
    token = tl.min(tl.where(score == tl.max(score, axis=0), choice, vocab_size), axis=0)
    # NaN logits must not choose a token that does not exist.
    token = tl.minimum(token, vocab_size - 1)
    logit = tl.sum(tl.where(choice == token, logit, 0.0), axis=0)
    top = tl.max(highest, axis=0)
    tl.store(tokens + sequence, token.to(tl.int64))
    tl.store(logprobs + sequence, logit - top - tl.log(tl.sum(total * tl.exp(highest - top), axis=0)))

    row = tl.load(index + sequence)
    length = tl.load(lengths + row)
    if (row < num_rows - 1) & (length < max_tokens):
        counts += row * vocab_size + token
        tl.store(counts, tl.load(counts) + 1)
        history += row * max_tokens
        _extend_runs(history, suffix + row * max_tokens, length.to(tl.int32), token, HISTORY_BLOCK)
        tl.store(history + length, token.to(tl.int64))
        # No thread may read the new length while it still needs the old one.
        tl.debug_barrier()
        tl.store(lengths + row, length + 1)


@triton.jit
def _extend_runs(history, suffix, length, token, HISTORY_BLOCK: tl.constexpr):
    """Set suffix[t] to suffix[t - 1] + 1 if history[t] is the new token, else to 0.

    In place, so it works back from the end, and no thread may write a block before all have read it.
    """
    blocks = tl.cdiv(length, HISTORY_BLOCK)
    for block in range(blocks):
        place = (blocks - 1 - block) * HISTORY_BLOCK + tl.arange(0, HISTORY_BLOCK)
        there = place < length
        run = tl.load(suffix + place - 1, mask=there & (place > 0), other=0)
        same = tl.load(history + place, mask=there, other=-1) == token
        tl.debug_barrier()
        tl.store(suffix + place, tl.where(same, run + 1, 0), mask=there)
