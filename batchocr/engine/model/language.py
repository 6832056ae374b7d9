"""A language model: prefill of packed prompts and decode steps over a paged KV cache.

Source: transformers' `modeling_qwen2_vl` and `modeling_glm_ocr` for names and order of operations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from batchocr.engine.backend.base import Affine, Linear, PagedContext, Segments
from batchocr.engine.backend.reference import Ops
from batchocr.engine.model.rope import inverse_frequencies, mrope_cos_sin, mrope_dimensions
from batchocr.engine.model.weights import WeightReader
from batchocr.errors import ModelError
from batchocr.planning.architecture import LanguageShape

_Attend = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""A function of attention: (q, k, v, this layer's cache) → attended q; k and v are already in the cache."""


@dataclass(frozen=True, slots=True)
class _DecoderLayer:
    input_norm: Tensor
    qkv: Linear
    output: Linear
    output_norm: Tensor | None
    mlp_norm: Tensor
    mlp: Linear
    mlp_output_norm: Tensor | None

    @classmethod
    def read(cls, weights: WeightReader, index: int, shape: LanguageShape, ops: Ops) -> _DecoderLayer:
        name, width = f"language_model.layers.{index}", shape.width
        projections = (("q_proj", shape.q_width), ("k_proj", shape.kv_width), ("v_proj", shape.kv_width))

        def take(part: str, *sizes: int) -> Tensor:
            return weights.take(f"{name}.{part}", sizes)

        def of_pairs(part: str, size: int) -> Tensor:
            weight = take(f"self_attn.{part}.weight", size, width)
            return _halves(weight, shape.head_dim) if shape.rotates_neighbours and part != "v_proj" else weight

        biases = [take(f"self_attn.{part}.bias", size) for part, size in projections if shape.has_biases]
        qkv = Affine(torch.cat([of_pairs(*each) for each in projections]), torch.cat(biases) if biases else None)
        if f"{name}.mlp.gate_up_proj.weight" in weights:
            gate_up = take("mlp.gate_up_proj.weight", 2 * shape.mlp_width, width)
        else:
            parts = ("gate_proj", "up_proj")
            gate_up = torch.cat([take(f"mlp.{part}.weight", shape.mlp_width, width) for part in parts])
        down = Affine(take("mlp.down_proj.weight", width, shape.mlp_width))
        return cls(
            input_norm=take("input_layernorm.weight", width),
            qkv=ops.linear(qkv),
            output=ops.linear(Affine(take("self_attn.o_proj.weight", width, shape.q_width))),
            output_norm=take("post_self_attn_layernorm.weight", width) if shape.has_branch_norms else None,
            mlp_norm=take("post_attention_layernorm.weight", width),
            mlp=ops.mlp(Affine(gate_up), down, "silu_mul"),
            mlp_output_norm=take("post_mlp_layernorm.weight", width) if shape.has_branch_norms else None,
        )


def _halves(weight: Tensor, head_dim: int) -> Tensor:
    """The rows of a projection so that each head's pairs of neighbours are pairs of its halves. Scores of queries and
    keys stay the same, as both are projected so."""
    return weight.view(-1, head_dim // 2, 2, weight.shape[-1]).transpose(1, 2).reshape(weight.shape)


def _read_lm_head(weights: WeightReader, shape: LanguageShape, embeddings: Tensor) -> Tensor:
    """The output weights, [vocabulary, width]: the stored ones whatever config.json says, else the tied embeddings.

    Stored ones that equal the embeddings share their memory. Raises ModelError if there are neither.
    Source: transformers' `PreTrainedModel.tie_weights`.
    """
    if "lm_head.weight" in weights:
        stored = weights.take("lm_head.weight", (shape.vocab_size, shape.width))
        return embeddings if torch.equal(stored, embeddings) else stored
    if not shape.tied_embeddings:
        raise ModelError("the checkpoint has no lm_head.weight, and its config.json does not tie it to the embeddings")
    return embeddings


class LanguageModel:
    """Turns embeddings into logits, storing keys and values in the cache it is given."""

    def __init__(self, shape: LanguageShape, weights: WeightReader, ops: Ops, device: torch.device) -> None:
        self.shape = shape
        self._ops = ops
        self._embeddings = weights.take("language_model.embed_tokens.weight", (shape.vocab_size, shape.width))
        self._layers = [_DecoderLayer.read(weights, index, shape, ops) for index in range(shape.num_layers)]
        self._norm = weights.take("language_model.norm.weight", (shape.width,))
        self._lm_head = ops.linear(Affine(_read_lm_head(weights, shape, self._embeddings)))
        self._inv_freq = inverse_frequencies(shape.head_dim, shape.rope_theta, device)
        self._mrope_dimensions = mrope_dimensions(shape.mrope_section, device)

    @property
    def dtype(self) -> torch.dtype:
        return self._embeddings.dtype

    def new_cache(self, num_blocks: int) -> Tensor:
        """An empty KV cache: [layers, 2, blocks, block_size, kv_heads, head_dim]."""
        shape, ops = self.shape, self._ops
        sizes = [shape.num_layers, 2, num_blocks, ops.kv_block_size, shape.num_kv_heads, shape.head_dim]
        order = (0, 1, 4, 2, 3, 5) if ops.kv_heads_apart else tuple(range(6))
        stored = ops.zeros([sizes[axis] for axis in order], self._embeddings)
        return stored.permute([order.index(axis) for axis in range(6)])

    def embed(self, token_ids: Tensor) -> Tensor:
        """The embeddings of tokens. token_ids: int64 [tokens]. Returns [tokens, width]."""
        return F.embedding(token_ids, self._embeddings)

    def prefill(self, x: Tensor, positions: Tensor, slots: Tensor, segments: Segments, cache: Tensor) -> Tensor:
        """Run a packed batch of whole prompts and fill their cache.

        x: [tokens, width], may be overwritten. positions: int64 [3, tokens]. slots: int64 [tokens]. Returns logits
        [prompts, vocabulary] of each prompt's last token.
        """

        def attend(q: Tensor, k: Tensor, v: Tensor, layer_cache: Tensor) -> Tensor:
            return self._ops.attention(q, k, v, segments, True)

        return self._run(x, positions, slots, cache, attend, last=segments.cu_seqlens[1:].long() - 1)

    def decode(
        self, token_ids: Tensor, positions: Tensor, slots: Tensor, context: PagedContext, cache: Tensor
    ) -> Tensor:
        """One step of every sequence. token_ids: int64 [sequences]. Returns logits [sequences, vocabulary]."""

        def attend(q: Tensor, k: Tensor, v: Tensor, layer_cache: Tensor) -> Tensor:
            return self._ops.paged_attention(q, layer_cache, context)

        return self._run(self.embed(token_ids), positions, slots, cache, attend)

    def _run(
        self, x: Tensor, positions: Tensor, slots: Tensor, cache: Tensor, attend: _Attend, last: Tensor | None = None
    ) -> Tensor:
        """Logits of every token, or of those in `last`. The other tokens are dropped after the last layer's attention,
        where nothing needs them any more."""
        shape, ops = self.shape, self._ops
        cos, sin = mrope_cos_sin(positions, self._inv_freq, self._mrope_dimensions)
        heads = [shape.num_heads, shape.num_kv_heads, shape.num_kv_heads]
        for layer, layer_cache in zip(self._layers, cache, strict=True):
            qkv = layer.qkv(ops.rms_norm(x, layer.input_norm, shape.rms_norm_eps))
            q, k, v = torch.split(qkv.view(x.shape[0], -1, shape.head_dim), heads, dim=1)
            q, k = ops.rotary_store(q, k, v, cos, sin, layer_cache, slots)
            attended = attend(q, k, v, layer_cache).flatten(1)
            if last is not None and layer is self._layers[-1]:
                x, attended = x[last], attended[last]
            x = self._added(layer.output, attended, x, layer.output_norm)
            x = self._added(layer.mlp, ops.rms_norm(x, layer.mlp_norm, shape.rms_norm_eps), x, layer.mlp_output_norm)
        return self._lm_head(ops.rms_norm(x, self._norm, shape.rms_norm_eps))

    def _added(self, branch: Linear, x: Tensor, residual: Tensor, norm: Tensor | None) -> Tensor:
        """What a branch makes of x, normed if there is a norm, and added to the residual."""
        if norm is None:
            return branch(x, residual=residual)
        return residual + self._ops.rms_norm(branch(x), norm, self.shape.rms_norm_eps)
