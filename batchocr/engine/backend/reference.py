"""The operations that a model needs, in plain torch, on any device. A model names no kernel: it is given an `Ops`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from batchocr.engine.backend.base import (
    Activation,
    Affine,
    Linear,
    PagedContext,
    ResizePlan,
    Rows,
    SamplerRows,
    Segments,
)
from batchocr.engine.backend.resize import cut_patches, resize_bicubic
from batchocr.errors import UsageError
from batchocr.processes.engine_messages import KernelChoice


class Ops:
    """Every operation as it is defined. A backend overrides those that it has faster, with the same results.

    Shapes: q [tokens, heads, head_dim]; k, v [tokens, kv_heads, head_dim]; cos, sin float32 [tokens, head_dim / 2];
    a layer's cache [2, blocks, block_size, kv_heads, head_dim], keys first.
    """

    name = "reference"
    kv_block_size = 16
    kv_heads_apart = False
    """Whether a new cache stores each head's keys contiguously, and its values too; the cache's shape is the same
    either way."""
    choices: tuple[KernelChoice, ...] = ()
    """What was chosen for each operation; empty if there was no choice."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    @property
    def capturable(self) -> bool:
        """Whether a decode step needs nothing from the host, so that it can be captured in a graph."""
        return False

    def linear(self, layer: Affine) -> Linear:
        """Prepare a layer, once, when the model is loaded."""
        return _Linear(layer)

    def mlp(self, inner: Affine, outer: Affine, activation: Activation) -> Linear:
        """Prepare an MLP, once, when the model is loaded: outer(activation(inner(x))), called like a linear layer."""
        first, last = _Linear(inner), _Linear(outer)
        return lambda x, residual=None: last(activate(first(x), activation), residual)

    def zeros(self, shape: Sequence[int], like: Tensor) -> Tensor:
        """A large tensor, of which not all may ever be written to. like: a tensor of the same dtype, on the same
        device."""
        return like.new_zeros(shape)

    def patches(
        self, images: Sequence[Tensor], plans: Sequence[ResizePlan], patch_size: int, merge_size: int, /
    ) -> Tensor:
        """Resize each image (bicubic, byte for byte as Pillow does) and cut it into patches.

        images: uint8 [height, width, 3] on the host. Returns uint8 [total patches, 3 · patch_size²] on the device:
        images in order, each in merge squares; the values of a patch ordered as channel, row, column.
        """
        frames = []
        for image, plan in zip(images, plans, strict=True):
            frame = image.to(self._device)
            for height, width in plan:
                frame = resize_bicubic(frame, height, width)
            frames.append(cut_patches(frame, patch_size, merge_size))
        return torch.cat(frames)

    def attention(self, q: Tensor, k: Tensor, v: Tensor, segments: Segments, causal: bool, /) -> Tensor:
        """Attention within each segment. Returns a tensor of q's shape."""
        lengths = list(segments.lengths)
        parts = [
            _sdpa(*(part.transpose(0, 1).unsqueeze(0) for part in qkv), causal=causal)
            for qkv in zip(*(torch.split(x, lengths) for x in (q, k, v)), strict=True)
        ]
        parts = [part.squeeze(0).transpose(0, 1) for part in parts]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def rotary(self, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, /) -> tuple[Tensor, Tensor]:
        """Rotate q and k, pairing the two halves of every head, in float32."""
        cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
        return _rotate(q, cos, sin), _rotate(k, cos, sin)

    def rotary_store(
        self, q: Tensor, k: Tensor, v: Tensor, cos: Tensor, sin: Tensor, cache: Tensor, slots: Tensor, /
    ) -> tuple[Tensor, Tensor]:
        """Rotate q and k, and write each token's key and value into its slot (block · block_size + offset).

        cache: one layer's. slots: int64 [tokens]. Returns the rotated q and k.
        """
        q, k = self.rotary(q, k, cos, sin)
        # These must be views: writes to a copy would be lost.
        keys, values = cache.view(2, -1, *cache.shape[3:])
        keys.index_copy_(0, slots, k)
        values.index_copy_(0, slots, v)
        return q, k

    def paged_attention(self, q: Tensor, cache: Tensor, context: PagedContext, /) -> Tensor:
        """Attend from one new token per sequence to its cached ones. q and result: [sequences, heads, head_dim]."""
        out = torch.empty_like(q)
        block_size = cache.shape[2]
        for row, length in enumerate(context.lengths.tolist()):
            blocks = context.block_tables[row, : -(-length // block_size)].long()
            # [2, 1, kv_heads, tokens, head_dim]
            keys, values = cache[:, blocks].flatten(1, 2)[:, :length].transpose(1, 2).unsqueeze(1)
            out[row] = _sdpa(q[row, None, :, None], keys, values)[0, :, 0]
        return out

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float, /) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), weight, eps)

    def layer_norm(self, x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        return F.layer_norm(x, (x.shape[-1],), weight, bias, eps)

    def then_layer_norm(
        self,
        layer: Linear,
        x: Rows,
        residual: Tensor,
        *,
        norm: Affine,
        eps: float,
        following: Linear | None,
    ) -> tuple[Tensor, Rows]:
        """layer(x) + residual, and its LayerNorm.

        residual: may be overwritten, as by `Linear`. norm: weight and bias, each [out]. following: the layer that takes
        the normed rows and nothing else does; None if something other than a layer of these operations takes them,
        as a tensor.
        """
        assert norm.bias is not None
        total = layer(x, residual)
        return total, self.layer_norm(total, norm.weight, norm.bias, eps)

    def with_fp8(self) -> Ops:
        """These operations with linear layers in fp8. Raises UsageError if there are no kernels for that."""
        raise UsageError("--vit-dtype fp8 needs an NVIDIA GPU, --backend cuda and --dtype bfloat16")

    def sample(self, logits: Tensor, index: Tensor, rows: SamplerRows, longest: int, /) -> tuple[Tensor, Tensor]:
        """Choose each sequence's next token greedily after penalties, and record it in its row.

        logits: [sequences, vocabulary], may be overwritten. index: int64 [sequences], their rows. longest: an upper
        bound on the tokens of a history, this one included, or 0 if no sequence has a rule; a captured graph does
        not use it. Returns the tokens, int64 [sequences], and their log-probabilities before penalties, float32
        [sequences], on the device. The order of the penalties is vLLM's: repetition, then frequency and presence.
        """
        logits = logits.float()
        scores = _penalised(logits, index, rows, longest) if longest else logits
        tokens = scores.argmax(dim=-1)
        logprobs = logits.gather(1, tokens.unsqueeze(1)).squeeze(1) - logits.logsumexp(dim=-1)
        if longest:
            _remember(tokens, index, rows, longest)
        return tokens, logprobs


@dataclass(frozen=True, slots=True)
class _Linear:
    layer: Affine

    def __call__(self, x: Rows, residual: Tensor | None = None) -> Tensor:
        assert isinstance(x, Tensor)
        product = F.linear(x, self.layer.weight, self.layer.bias)
        return product if residual is None else product.add_(residual)


def activate(x: Tensor, activation: Activation) -> Tensor:
    match activation:
        case "quick_gelu":
            return x * torch.sigmoid(1.702 * x)
        case "gelu":
            return F.gelu(x)
        case "gelu_tanh":
            return F.gelu(x, approximate="tanh")
        case "silu_mul":
            gate, up = x.chunk(2, dim=-1)
            return F.silu(gate) * up


def _sdpa(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1])


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.float().chunk(2, dim=-1)
    turned = torch.empty(x.shape, dtype=torch.float32, device=x.device)
    half = first.shape[-1]
    torch.mul(first, cos, out=turned[..., :half]).addcmul_(second, sin, value=-1)
    torch.mul(second, cos, out=turned[..., half:]).addcmul_(first, sin)
    return turned.to(x.dtype)


def _penalised(logits: Tensor, index: Tensor, rows: SamplerRows, longest: int) -> Tensor:
    """Logits after all rules. Only those of tokens in the history or the prompt change."""
    history, prompt = rows.history[:, :longest][index], rows.prompt[index]
    # Beyond the end of the history stands a token of the prompt, which gets its own score.
    tokens = torch.cat([torch.where(history < 0, prompt[:, :1], history), prompt], dim=1)
    counts = rows.counts[index.unsqueeze(1), tokens]
    repetition = rows.repetition[index].unsqueeze(1)
    scores = logits.gather(1, tokens)
    scores = torch.where(scores > 0, scores / repetition, scores * repetition)
    frequency = rows.frequency[index].unsqueeze(1) * counts
    scores = scores - frequency - rows.presence[index].unsqueeze(1) * (counts > 0)
    scores[:, :longest].masked_fill_(_ends_repeated_ngram(history, index, rows, longest), -torch.inf)
    return logits.scatter_reduce(1, tokens, scores, "amin", include_self=False)


def _ends_repeated_ngram(history: Tensor, index: Tensor, rows: SamplerRows, longest: int) -> Tensor:
    """Where the history has a token that followed an earlier occurrence of its last n - 1 tokens."""
    size = rows.ngram_size[index].unsqueeze(1)
    followed = (rows.suffix[:, :longest][index] >= size - 1) & (size > 0)
    # history[t + 1] followed the tokens ending at t; before the first token (t = -1) there is nothing to match.
    followed = torch.cat([size == 1, followed[:, :-1]], dim=1)[:, :longest]
    return followed & (history >= 0)


def _remember(tokens: Tensor, index: Tensor, rows: SamplerRows, longest: int) -> None:
    rows.counts.index_put_((index, tokens), torch.ones_like(tokens, dtype=torch.int16), accumulate=True)
    history, suffix = rows.history[:, :longest][index], rows.suffix[:, :longest][index]
    previous = torch.cat([torch.zeros_like(tokens, dtype=suffix.dtype).unsqueeze(1), suffix], dim=1)[:, :-1]
    rows.suffix[index, :longest] = torch.where(history == tokens.unsqueeze(1), previous + 1, 0)
    rows.history[index, rows.length[index]] = tokens
    rows.length[index] += 1
