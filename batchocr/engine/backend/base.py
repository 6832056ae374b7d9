"""What the operations of a backend take and return: layers, segments of a batch, the context of a decode step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal, Protocol, Self

import torch
from torch import Tensor

Activation = Literal["quick_gelu", "gelu", "gelu_tanh", "silu_mul"]
"""The activation of an MLP. quick_gelu: x · sigmoid(1.702 x). gelu_tanh: the GELU approximated by a tanh. silu_mul:
silu(gate) · up, where one product is [gate, up]."""


ResizePlan = tuple[tuple[int, int], ...]
"""The sizes (height, width) in px that an image is resized to, one after the other."""

MAX_PROMPT_TOKENS = 256
"""How many different tokens a prompt may have under a repetition penalty. Those of a protocol have a few dozen."""


@dataclass(frozen=True, slots=True)
class Affine:
    """A matrix [out, in] and its bias [out], if any."""

    weight: Tensor
    bias: Tensor | None = None


@dataclass(frozen=True, slots=True)
class QuantizedRows:
    """Rows that a backend's operation has quantised for its next linear layer: values · scales."""

    values: Tensor
    """The quantised rows: float8_e4m3fn [rows, width]."""
    scales: Tensor
    """The scale of each row: float32 [rows, 1]."""


Rows = Tensor | QuantizedRows
"""What goes into a linear layer, [rows, width]. Quantised only where a backend made it so for that very layer."""


@dataclass(frozen=True, slots=True)
class Segments:
    """Where one sequence ends and the next begins in a packed batch."""

    lengths: Sequence[int]
    """The length of each sequence, on the host."""
    cu_seqlens: Tensor
    """The cumulative sum of the lengths from 0: int32 [n + 1] on the device."""

    @classmethod
    def of(cls, lengths: Sequence[int], upload: Callable[[Tensor], Tensor]) -> Self:
        """Segments of these lengths. upload: brings a tensor from the host to the device."""
        return cls(lengths, upload(torch.tensor([0, *accumulate(lengths)], dtype=torch.int32)))

    @property
    def max_length(self) -> int:
        return max(self.lengths)


@dataclass(frozen=True, slots=True)
class PagedContext:
    """What a decode step attends to."""

    block_tables: Tensor
    """Each sequence's KV blocks: int32 [sequences, max blocks]; entries beyond a sequence's length are valid blocks,
    but not its own."""
    lengths: Tensor
    """Tokens in each sequence's blocks, including the newest: int32 [sequences] on the device."""


@dataclass(frozen=True, slots=True)
class SamplerRows:
    """Penalty state on the device: a row per running sequence, and a spare one for the padding of a captured graph."""

    counts: Tensor
    """How often each token was generated: int16 [rows, vocabulary]."""
    history: Tensor
    """Output tokens: int64 [rows, max_new_tokens], -1 beyond the end."""
    suffix: Tensor
    """The suffix matches, int16 [rows, max_new_tokens]: at t, how many tokens ending at history[t] match the end of the
    history. It finds repeated n-grams without comparing n tokens."""
    length: Tensor
    """Tokens in the history: int64 [rows]."""
    presence: Tensor
    """Each sequence's presence penalty: float32 [rows]."""
    frequency: Tensor
    """Each sequence's frequency penalty: float32 [rows]."""
    ngram_size: Tensor
    """The length of the n-grams that may not be repeated: int64 [rows]; 0 switches the n-gram rule off."""
    repetition: Tensor
    """Each sequence's repetition penalty: float32 [rows]; 1 switches it off."""
    prompt: Tensor
    """The tokens of the prompt, each at least once: int64 [rows, MAX_PROMPT_TOKENS]. Any tokens if the repetition
    penalty is off."""

    @classmethod
    def empty(cls, num_rows: int, vocab_size: int, max_new_tokens: int, device: torch.device) -> Self:
        """Rows without a sequence, every rule switched off."""
        presence, frequency = torch.zeros(2, num_rows, device=device)
        return cls(
            counts=torch.zeros(num_rows, vocab_size, dtype=torch.int16, device=device),
            history=torch.full((num_rows, max_new_tokens), -1, dtype=torch.int64, device=device),
            suffix=torch.zeros(num_rows, max_new_tokens, dtype=torch.int16, device=device),
            length=torch.zeros(num_rows, dtype=torch.int64, device=device),
            presence=presence,
            frequency=frequency,
            ngram_size=torch.zeros(num_rows, dtype=torch.int64, device=device),
            repetition=torch.ones(num_rows, device=device),
            prompt=torch.zeros(num_rows, MAX_PROMPT_TOKENS, dtype=torch.int64, device=device),
        )


class Linear(Protocol):
    """A linear layer prepared for a device."""

    def __call__(self, x: Rows, residual: Tensor | None = None) -> Tensor:
        """x · weightᵀ + bias, plus the residual if one is given. x: [rows, in]. Returns [rows, out].

        residual: [rows, out], contiguous. May be overwritten, by the result too: the caller must not use it again.
        """
        ...
