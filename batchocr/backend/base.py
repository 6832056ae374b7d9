"""The operations a model needs from a backend. A model names no kernel: it is handed one of these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


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

    block_tables: int32 [sequences, most blocks], padded with 0. lengths: on the host; lengths_device: int32.
    """

    block_tables: Tensor
    lengths: Sequence[int]
    lengths_device: Tensor


class Ops(Protocol):
    """One implementation per backend; `reference.py` is the one that defines what is right.

    Shapes: q [tokens, heads, head_dim]; k, v [tokens, kv_heads, head_dim]; cos, sin float32 [tokens, head_dim / 2];
    a layer's cache [2, blocks, block_size, kv_heads, head_dim], keys first.
    """

    name: str
    kv_block_size: int

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """x · weightᵀ + bias. x: [rows, in]. weight: [out, in]. Returns [rows, out]."""
        ...

    def resize(self, images: Sequence[Tensor], sizes: Sequence[tuple[int, int]]) -> list[Tensor]:
        """Bicubic, with Pillow's very bytes. images: uint8 [h, w, 3]; sizes: (height, width) of each.

        Returns uint8 [height, width, 3] for each; the image itself where it has that size already.
        """
        ...

    def attention(self, q: Tensor, k: Tensor, v: Tensor, segments: Segments, *, causal: bool) -> Tensor:
        """Attention inside each segment. Returns the shape of q."""
        ...

    def store_kv(self, cache: Tensor, k: Tensor, v: Tensor, slots: Tensor) -> None:
        """Write each token's key and value into its slot (block · block_size + offset). slots: int64 [tokens]."""
        ...

    def paged_attention(self, q: Tensor, cache: Tensor, context: PagedContext) -> Tensor:
        """One new token a sequence against all its cached ones. q: [sequences, heads, head_dim]. Returns its shape."""
        ...

    def rotary(self, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """Turn the two halves of every head against each other, in float32."""
        ...

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor: ...

    def layer_norm(self, x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor: ...

    def quick_gelu(self, x: Tensor) -> Tensor:
        """x · sigmoid(1.702 x)."""
        ...

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        """silu(gate) · up. gate_up: [tokens, 2 · width], the gate first. Returns [tokens, width]."""
        ...
