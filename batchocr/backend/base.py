"""The operations a model needs from a backend. A model names no kernel: it is handed one of these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from torch import Tensor

Activation = Literal["quick_gelu", "gelu", "silu_mul"]
"""quick_gelu: x · sigmoid(1.702 x). silu_mul: silu(gate) · up, where one product holds [gate, up]."""


ResizePlan = tuple[tuple[int, int], ...]
"""The sizes (height, width) in px that an image is resized to, one after the other."""


@dataclass(frozen=True, slots=True)
class Affine:
    """A matrix [out, in] and, where there is one, its bias [out]."""

    weight: Tensor
    bias: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Segments:
    """Where one sequence ends and the next begins in a packed batch.

    lengths: on the host. cu_seqlens: int32 [n + 1] on the device, the running sum from 0.
    """

    lengths: Sequence[int]
    cu_seqlens: Tensor

    @property
    def max_length(self) -> int:
        return max(self.lengths)


@dataclass(frozen=True, slots=True)
class PagedContext:
    """What a decode step may look at: per sequence its KV blocks and how many tokens they hold, the newest included.

    block_tables: int32 [sequences, most blocks], padded with 0. lengths: int32 [sequences] on the device.
    host_lengths: the same on the host, for backends that group by length; None inside a captured graph.
    """

    block_tables: Tensor
    lengths: Tensor
    host_lengths: Sequence[int] | None = None


@dataclass(frozen=True, slots=True)
class SamplerRows:
    """Penalty state on the device, a row per running sequence and one to spare for the padding of a captured graph.

    counts: how often each token was put out, int16 [rows, vocabulary]. in_prompt: bool [rows, vocabulary].
    history: output tokens, int64 [rows, max_new_tokens], -1 beyond the end. suffix: int16, same shape: at t, how many
    tokens up to and including history[t] are the same as the last ones of the history; it finds repeated n-grams
    without looking at n tokens. length: tokens in the history, int64 [rows]. The rest: float32 or int64 [rows],
    each sequence's settings; a size of 0 is no n-gram rule.
    """

    counts: Tensor
    in_prompt: Tensor
    history: Tensor
    suffix: Tensor
    length: Tensor
    presence: Tensor
    frequency: Tensor
    repetition: Tensor
    ngram_size: Tensor


@dataclass(frozen=True, slots=True)
class SamplingHints:
    """What the host knows of a batch, so that a backend may leave work out; a captured graph does without.

    The first three: which rules any sequence of the batch has set. longest: an upper limit of tokens in a history.
    """

    repetition: bool
    counts: bool
    ngram: bool
    longest: int


class Linear(Protocol):
    """A linear layer made ready for a device."""

    def __call__(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        """x · weightᵀ + bias, and the residual added where one is given. x: [rows, in]. Returns [rows, out]."""
        ...


class Mlp(Protocol):
    """Two linear layers with an activation between them, made ready for a device."""

    def __call__(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        """outer(activation(inner(x))), and the residual added where one is given. x: [rows, in]. Its shape back."""
        ...


class Ops(Protocol):
    """One implementation per backend; `reference.py` is the one that defines what is right.

    Shapes: q [tokens, heads, head_dim]; k, v [tokens, kv_heads, head_dim]; cos, sin float32 [tokens, head_dim / 2];
    a layer's cache [2, blocks, block_size, kv_heads, head_dim], keys first.
    """

    name: str
    kv_block_size: int
    kv_heads_apart: bool
    """Whether a new cache has all keys of a head together in memory, and all its values. Its shape is the same."""
    capturable: bool
    """Whether a decode step asks the host for nothing, so that it can be captured in a graph."""

    def linear(self, layer: Affine) -> Linear:
        """Make a layer ready, once, when the model is loaded."""
        ...

    def mlp(self, inner: Affine, outer: Affine, activation: Activation) -> Mlp:
        """Make an MLP ready, once, when the model is loaded."""
        ...

    def patches(
        self, images: Sequence[Tensor], plans: Sequence[ResizePlan], patch_size: int, merge_size: int
    ) -> Tensor:
        """Resize each image (bicubic, with Pillow's very bytes) and cut it into patches.

        images: uint8 [height, width, 3] on the host. Returns uint8 [patches of all, 3 · patch_size²] on the device:
        images in order, each in merge squares; the values of a patch as channel, row, column.
        """
        ...

    def attention(self, q: Tensor, k: Tensor, v: Tensor, segments: Segments, *, causal: bool) -> Tensor:
        """Attention inside each segment. Returns the shape of q."""
        ...

    def rotary(self, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """Turn the two halves of every head against each other, in float32."""
        ...

    def rotary_store(
        self, q: Tensor, k: Tensor, v: Tensor, cos: Tensor, sin: Tensor, cache: Tensor, slots: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Turn q and k, and write each token's key and value into its slot (block · block_size + offset).

        cache: one layer's. slots: int64 [tokens]. Returns the turned q and k.
        """
        ...

    def paged_attention(self, q: Tensor, cache: Tensor, context: PagedContext) -> Tensor:
        """One new token a sequence against all its cached ones. q: [sequences, heads, head_dim]. Returns its shape."""
        ...

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor: ...

    def layer_norm(self, x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor: ...

    def sample(self, logits: Tensor, index: Tensor, rows: SamplerRows, hints: SamplingHints) -> tuple[Tensor, Tensor]:
        """Choose each sequence's next token, greedily after its penalties, and remember it in its row.

        logits: [sequences, vocabulary], may be written over. index: int64 [sequences], their rows. Returns the tokens,
        int64 [sequences], and their log-probabilities before penalties, float32 [sequences], on the device.
        """
        ...
