"""The ViT of Qwen2-VL over one packed sequence of patches: no padding, no loop over images.

Source: Qwen2-VL (arXiv 2409.12191); transformers' `modeling_qwen2_vl` for names and order of operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from batchocr.backend.base import Ops, Segments
from batchocr.model.architecture import VisionShape
from batchocr.model.preprocess import PatchGrid
from batchocr.model.rope import inverse_frequencies, vision_positions
from batchocr.model.weights import WeightReader

_NORM_EPS = 1e-6


@dataclass(frozen=True, slots=True)
class _Affine:
    """A linear layer or a LayerNorm."""

    weight: Tensor
    bias: Tensor

    @classmethod
    def read(cls, weights: WeightReader, name: str, *shape: int) -> _Affine:
        return cls(weights.take(f"{name}.weight", shape), weights.take(f"{name}.bias", shape[:1]))


@dataclass(frozen=True, slots=True)
class _Layer:
    norm1: _Affine
    qkv: _Affine
    proj: _Affine
    norm2: _Affine
    fc1: _Affine
    fc2: _Affine

    @classmethod
    def read(cls, weights: WeightReader, index: int, shape: VisionShape) -> _Layer:
        name, width = f"visual.blocks.{index}", shape.width
        return cls(
            norm1=_Affine.read(weights, f"{name}.norm1", width),
            qkv=_Affine.read(weights, f"{name}.attn.qkv", 3 * width, width),
            proj=_Affine.read(weights, f"{name}.attn.proj", width, width),
            norm2=_Affine.read(weights, f"{name}.norm2", width),
            fc1=_Affine.read(weights, f"{name}.mlp.fc1", shape.mlp_width, width),
            fc2=_Affine.read(weights, f"{name}.mlp.fc2", width, shape.mlp_width),
        )


class VisionModel:
    """Patches in, embeddings for the language model out."""

    def __init__(self, shape: VisionShape, weights: WeightReader, ops: Ops, device: torch.device) -> None:
        self.shape = shape
        self._ops = ops
        self._device = device
        frames = weights.take(
            "visual.patch_embed.proj.weight",
            (shape.width, shape.in_channels, shape.temporal_patch_size, shape.patch_size, shape.patch_size),
        )
        # Every frame of a still image is the same, so the sum of the frames' weights sees it once.
        self._patch_weight = frames.sum(dim=2).flatten(1)
        self._layers = [_Layer.read(weights, index, shape) for index in range(shape.depth)]
        merged = shape.width * shape.merge_size**2
        self._merge_norm = _Affine.read(weights, "visual.merger.ln_q", shape.width)
        self._merge_in = _Affine.read(weights, "visual.merger.mlp.0", merged, merged)
        self._merge_out = _Affine.read(weights, "visual.merger.mlp.2", shape.out_width, merged)
        self._inv_freq = inverse_frequencies(shape.head_dim // 2, shape.rope_theta, device)

    def encode(self, patches: Tensor, grids: Sequence[PatchGrid]) -> Tensor:
        """Embed the images of a batch.

        patches: float32 [patches, 3 · patch_size²], images in the order of grids. Returns [patches / merge_size²,
        out_width] in the model's dtype.
        """
        segments = self._segments(grids)
        cos, sin = self._rotary_tables(grids)
        x = self._ops.linear(patches.to(self._patch_weight.dtype), self._patch_weight)
        for layer in self._layers:
            x = x + self._attend(layer, self._norm(x, layer.norm1), cos, sin, segments)
            hidden = self._ops.quick_gelu(self._linear(self._norm(x, layer.norm2), layer.fc1))
            x = x + self._linear(hidden, layer.fc2)
        merged = self._norm(x, self._merge_norm).view(-1, self._merge_in.weight.shape[1])
        return self._linear(F.gelu(self._linear(merged, self._merge_in)), self._merge_out)

    def _attend(self, layer: _Layer, x: Tensor, cos: Tensor, sin: Tensor, segments: Segments) -> Tensor:
        q, k, v = self._linear(x, layer.qkv).view(x.shape[0], 3, self.shape.num_heads, self.shape.head_dim).unbind(1)
        q, k = self._ops.rotary(q, k, cos, sin)
        attended = self._ops.attention(q, k, v, segments, causal=False)
        return self._linear(attended.flatten(1), layer.proj)

    def _linear(self, x: Tensor, layer: _Affine) -> Tensor:
        return self._ops.linear(x, layer.weight, layer.bias)

    def _norm(self, x: Tensor, norm: _Affine) -> Tensor:
        return self._ops.layer_norm(x, norm.weight, norm.bias, _NORM_EPS)

    def _segments(self, grids: Sequence[PatchGrid]) -> Segments:
        lengths = [rows * columns for rows, columns in grids]
        ends = torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)
        return Segments(lengths, ends.to(self._device))

    def _rotary_tables(self, grids: Sequence[PatchGrid]) -> tuple[Tensor, Tensor]:
        """Half of a head's frequencies turn with the row, half with the column. Each is [patches, head_dim / 2]."""
        positions = torch.cat([vision_positions(rows, columns, self.shape.merge_size) for rows, columns in grids])
        angles = positions.to(self._device).unsqueeze(-1) * self._inv_freq
        angles = angles.flatten(1)
        return angles.cos(), angles.sin()
