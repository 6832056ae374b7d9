"""Qwen2-VL for training: packed batches without padding masks, with transformers' names for every weight.

transformers' own forward packs images and builds masks; this one does the same arithmetic without either, and returns
what the auxiliary losses need. Images are grey, so the patch projection has one channel and one frame; `export` spreads
it.
Source: transformers' `modeling_qwen2_vl`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from batchocr.engine.model.rope import (
    inverse_frequencies,
    mrope_cos_sin,
    mrope_dimensions,
)
from sample_data.training.batches import Batch, Runs
from sample_data.training.heads import Head
from sample_data.training.vocabulary import NUMBERS


@dataclass(frozen=True, slots=True)
class Shape:
    """The model's dimensions. guided: the language layers whose first head is guided to the next character.

    rope_theta, mrope_section: a character is found by what comes before it, which needs pairs of values that hardly
    rotate between question and image, hundreds of tokens apart: the last pairs for columns rotate by a radian or less
    in a thousand tokens, the first ones tell columns apart.
    """

    vocab_size: int
    vision_width: int = 128
    vision_depth: int = 4
    vision_heads: int = 4
    mlp_ratio: int = 3
    width: int = 128
    depth: int = 5
    num_heads: int = 4
    mlp_width: int = 384
    rope_theta: float = 10_000.0
    mrope_section: tuple[int, int, int] = (1, 3, 12)
    patch: int = 10
    merge: int = 2
    guided: tuple[int, ...] = (1, 2, 3)

    @property
    def head_dim(self) -> int:
        return self.width // self.num_heads


@dataclass(frozen=True, slots=True)
class Seen:
    """The output of the language model's forward pass. logits: [answer tokens, vocabulary]. image, said: its image
    tokens and answer tokens after three layers, [tokens, width]. guides: for each guided layer, the log of its first
    head's attention from each answer token to the one it should attend to, [answer tokens]; 0 if there is none."""

    logits: Tensor
    image: Tensor
    said: Tensor
    guides: list[Tensor]


Attend: TypeAlias = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(q, k, v) → the attention output; each [tokens, heads, head_dim]."""


def attend_within(runs: Runs, *, causal: bool) -> Attend:
    """Return attention inside each segment of a packed sequence, all segments of a run at once."""

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        attended, first = [], 0
        for count, length in runs:
            last = first + count * length
            parts = [x[first:last].unflatten(0, (count, length)).transpose(1, 2) for x in (q, k, v)]
            attended.append(_spelt_out(*parts, is_causal=causal).transpose(1, 2).flatten(0, 1))
            first = last
        return torch.cat(attended)

    return attend


_QUERIES = 256
_CPU = torch.device("cpu")


def _spelt_out(q: Tensor, k: Tensor, v: Tensor, *, is_causal: bool) -> Tensor:
    """Attention as plain matrix products, some queries at a time. q, k, v: [samples, heads, tokens, head_dim].

    In bfloat16 on a CPU, forward and backward, it takes 0.6 times as long as torch's kernel.
    """
    pieces = []
    q = q * q.shape[-1] ** -0.5
    for first in range(0, q.shape[2], _QUERIES):
        asking = q[:, :, first : first + _QUERIES]
        last = first + asking.shape[2] if is_causal else k.shape[2]
        scores = asking @ k[:, :, :last].mT
        if is_causal:
            future = torch.ones(asking.shape[2], last, dtype=torch.bool).triu(first + 1)
            scores = scores.masked_fill(future, float("-inf"))
        pieces.append(scores.softmax(-1) @ v[:, :, :last])
    return torch.cat(pieces, dim=2)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate each pair of values. x: [tokens, heads, head_dim]. cos, sin: [tokens, head_dim / 2]."""
    cos, sin = cos[:, None].to(x.dtype), sin[:, None].to(x.dtype)
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


class VisionLayer(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width, hidden = shape.vision_width, shape.mlp_ratio * shape.vision_width
        self.num_heads = shape.vision_heads
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)
        self.attn = nn.ModuleDict({"qkv": nn.Linear(width, 3 * width), "proj": nn.Linear(width, width)})
        self.mlp = nn.ModuleDict({"fc1": nn.Linear(width, hidden), "fc2": nn.Linear(hidden, width)})

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, attend: Attend) -> Tensor:
        q, k, v = self.attn["qkv"](self.norm1(x)).view(len(x), 3, self.num_heads, -1).unbind(1)
        x = x + self.attn["proj"](attend(rotate(q, cos, sin), rotate(k, cos, sin), v).flatten(1))
        hidden = self.mlp["fc1"](self.norm2(x))
        return x + self.mlp["fc2"](hidden * torch.sigmoid(1.702 * hidden))


class VisionModel(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width, merged = shape.vision_width, shape.vision_width * shape.merge**2
        self.shape = shape
        self.patch_embed = nn.ModuleDict({"proj": nn.Linear(shape.patch**2, width, bias=False)})
        self.blocks = nn.ModuleList(VisionLayer(shape) for _ in range(shape.vision_depth))
        layers = nn.ModuleList([nn.Linear(merged, merged), nn.GELU(), nn.Linear(merged, shape.width)])
        self.merger = nn.ModuleDict({"ln_q": nn.LayerNorm(width, eps=1e-6), "mlp": layers})

    def forward(self, patches: Tensor, places: Tensor, runs: Runs) -> Tensor:
        """patches: [patches, patch²], normalised. places: [patches, 2]. Returns [image tokens, width]."""
        shape = self.shape
        frequencies = inverse_frequencies(shape.vision_width // shape.vision_heads // 2, 10000.0, _CPU)
        angles = (places.unsqueeze(-1) * frequencies).flatten(1)
        cos, sin, attend = angles.cos(), angles.sin(), attend_within(runs, causal=False)
        x = self.patch_embed["proj"](patches).float()
        for block in self.blocks:
            x = block(x, cos, sin, attend)
        x = self.merger["ln_q"](x).view(-1, shape.merge**2 * shape.vision_width)
        for layer in self.merger["mlp"]:
            x = layer(x)
        return x


class LanguageLayer(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width, hidden = shape.width, shape.mlp_width
        self.shape = shape
        self.input_layernorm = nn.RMSNorm(width, eps=1e-6)
        self.post_attention_layernorm = nn.RMSNorm(width, eps=1e-6)
        projections = {name: nn.Linear(width, width) for name in ("q_proj", "k_proj", "v_proj")}
        self.self_attn = nn.ModuleDict({**projections, "o_proj": nn.Linear(width, width, bias=False)})
        self.mlp = nn.ModuleDict(
            {
                "gate_proj": nn.Linear(width, hidden, bias=False),
                "up_proj": nn.Linear(width, hidden, bias=False),
                "down_proj": nn.Linear(hidden, width, bias=False),
            }
        )

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, attend: Attend) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the new x, and the queries and keys, [tokens, heads, head_dim]."""
        normed = self.input_layernorm(x)
        q, k, v = (
            self.self_attn[name](normed).view(len(x), self.shape.num_heads, -1)
            for name in ("q_proj", "k_proj", "v_proj")
        )
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        x = x + self.self_attn["o_proj"](attend(q, k, v).flatten(1))
        normed = self.post_attention_layernorm(x)
        hidden = F.silu(self.mlp["gate_proj"](normed)) * self.mlp["up_proj"](normed)
        return x + self.mlp["down_proj"](hidden), q, k


class LanguageModel(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocab_size, shape.width)
        self.layers = nn.ModuleList(LanguageLayer(shape) for _ in range(shape.depth))
        self.norm = nn.RMSNorm(shape.width, eps=1e-6)


class ReadingModel(nn.Module):
    """The model and its auxiliary heads."""

    def __init__(self, shape: Shape, heads: tuple[Head, ...]) -> None:
        super().__init__()
        self.shape = shape
        self.visual = VisionModel(shape)
        self.model = LanguageModel(shape)
        self.lm_head = nn.Linear(shape.width, shape.vocab_size, bias=False)
        self.heads = nn.ModuleDict({head.name: nn.Linear(shape.width, head.slots * head.num_classes) for head in heads})
        self._initialise()

    def _initialise(self) -> None:
        """Standard deviation fan_in^-0.5, half of it where a residual branch ends, in the patch projection and in
        lm_head; biases 0; waves for the numbers' rows of embed_tokens and lm_head."""
        for name, parameter in self.named_parameters():
            if parameter.ndim < 2:
                if name.endswith("bias"):
                    nn.init.zeros_(parameter)
                continue
            scale = 0.5 if name.endswith(("proj.weight", "fc2.weight")) and "_proj" not in name else 1.0
            scale = 0.5 if name.endswith(("o_proj.weight", "down_proj.weight", "lm_head.weight")) else scale
            nn.init.normal_(parameter, std=scale * parameter.shape[1] ** -0.5)
        with torch.no_grad():
            for weight in (self.model.embed_tokens.weight, self.lm_head.weight):
                weight[-len(NUMBERS) :] = _waves(len(NUMBERS), weight.shape[1]) * weight.std()

    def see(self, batch: Batch) -> Tensor:
        """Return the ViT's output for the images, [image tokens, width]."""
        return self.visual(batch.patches(), batch.patch_places, batch.image_runs)

    def forward(self, batch: Batch, vision: Tensor) -> Seen:
        """Run the language model over the prompts, images and answers. vision: from `see`."""
        x = self._embedded(batch, vision)
        cos, sin = self._turns(batch.positions)
        attend = attend_within(batch.runs, causal=True)
        guides, middle = [], x
        for number, layer in enumerate(self.model.layers):
            x, q, k = layer(x, cos, sin, attend)
            if number in self.shape.guided:
                guides.append(attention_to(q[:, 0], k[:, 0], batch))
            middle = x if number == 2 else middle
        return Seen(
            self.lm_head(self.model.norm(x[batch.answer_index])),
            middle[batch.image_index],
            middle[batch.answer_index],
            guides,
        )

    def _embedded(self, batch: Batch, vision: Tensor) -> Tensor:
        """Return the tokens' embeddings, with the ViT's output for image tokens, [tokens, width]."""
        embedded = self.model.embed_tokens(batch.token_ids)
        return embedded.index_copy(0, batch.image_index, vision.to(embedded.dtype))

    @torch.no_grad()
    def read(self, batch: Batch, *, end: int, max_tokens: int) -> list[int]:
        """Return the greedy answer to the only question of a batch, without the end token."""
        first = int(batch.answer_index[0])
        asked = self._embedded(batch, self.see(batch))
        last = batch.positions[:, first : first + 1]
        x, positions = asked[: first + 1], batch.positions[:, : first + 1]
        pasts = [_Past() for _ in self.model.layers]
        answer: list[int] = []
        while len(answer) < max_tokens:
            cos, sin = self._turns(positions)
            for layer, past in zip(self.model.layers, pasts, strict=True):
                x, _, _ = layer(x, cos, sin, past)
            token = self.lm_head(self.model.norm(x[-1:])).argmax(-1)
            if int(token) == end:
                break
            answer.append(int(token))
            x, positions = self.model.embed_tokens(token), last + len(answer)
        return answer

    def _turns(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """The cosines and sines of the tokens' rotations, [tokens, head_dim / 2] each. positions: [3, tokens]."""
        shape = self.shape
        frequencies = inverse_frequencies(shape.head_dim, shape.rope_theta, _CPU)
        return mrope_cos_sin(positions, frequencies, mrope_dimensions(shape.mrope_section, _CPU))


def _waves(count: int, width: int) -> Tensor:
    """Return vectors that are similar for near numbers, [count, width]: waves with lengths of 20 to 2,000 numbers."""
    lengths = torch.logspace(math.log10(20.0), math.log10(2000.0), width // 2)
    angles = 2 * math.pi * torch.arange(count)[:, None] / lengths
    mixed = nn.init.orthogonal_(torch.empty(width, width))
    return 2**0.5 * torch.cat([angles.cos(), angles.sin()], dim=1) @ mixed


class _Past:
    """A layer's attention while an answer is generated: over all previous tokens, whose keys and values it keeps."""

    def __init__(self) -> None:
        self._keys: list[Tensor] = []
        self._values: list[Tensor] = []

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        self._keys.append(k)
        self._values.append(v)
        parts = [x.transpose(0, 1)[None] for x in (q, torch.cat(self._keys), torch.cat(self._values))]
        attended = F.scaled_dot_product_attention(*parts, is_causal=len(self._keys) == 1)
        return attended[0].transpose(0, 1)


def attention_to(q: Tensor, k: Tensor, batch: Batch) -> Tensor:
    """Return the log of one head's attention from each answer token to its guide, [answer tokens]; 0 if it has none.

    q, k: [tokens, head_dim].
    """
    found = []
    first = answered = 0
    for (count, length), num_answers in zip(batch.runs, batch.num_answers, strict=True):
        tokens, answers = slice(first, first + count * length), slice(answered, answered + count * num_answers)
        starts = first + length * torch.arange(count)[:, None]
        queries = batch.answer_index[answers].view(count, num_answers)
        targets = batch.guide[answers].view(count, num_answers) - starts
        scores = q[queries].float() @ k[tokens].view(count, length, -1).float().mT * q.shape[-1] ** -0.5
        future = torch.arange(length) > (queries - starts)[..., None]
        logs = scores.masked_fill(future, float("-inf")).log_softmax(-1)
        logs = logs.gather(-1, targets.clamp(min=0)[..., None])[..., 0]
        found.append(logs.where(targets >= 0, 0.0).flatten())
        first, answered = tokens.stop, answers.stop
    return torch.cat(found)
