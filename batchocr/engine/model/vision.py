"""A ViT over one packed sequence of patches: no padding, no loop over images.

Source: Qwen2-VL (arXiv 2409.12191); transformers' `modeling_qwen2_vl`, `modeling_glm_ocr` and `modeling_paddleocr_vl`
for names and order of operations.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from batchocr.engine.backend.base import Affine, Linear, Rows, Segments
from batchocr.engine.backend.device import Device
from batchocr.engine.backend.reference import Ops
from batchocr.engine.model.mergers import read_merger
from batchocr.engine.model.preprocess import PatchGrid
from batchocr.engine.model.rope import inverse_frequencies, vision_positions
from batchocr.engine.model.weights import WeightReader
from batchocr.planning.architecture import ImageLimits, VisionShape

GREY = 128
"""The level taken from every byte before the patch projection; the differences are exact in bfloat16."""


@dataclass(frozen=True, slots=True)
class _VisionLayer:
    norm1: Affine
    qkv: Linear
    qk_norms: tuple[Tensor, Tensor] | None
    proj: Linear
    norm2: Affine
    mlp: Linear

    @classmethod
    def read(cls, weights: WeightReader, index: int, shape: VisionShape, ops: Ops) -> _VisionLayer:
        name, width = f"visual.blocks.{index}", shape.width
        *inner, outer = ("gate_proj", "up_proj", "down_proj") if shape.activation == "silu_mul" else ("fc1", "fc2")
        in_one = f"{name}.attn.qkv.weight" in weights
        qkv = ("qkv",) if in_one else ("q_proj", "k_proj", "v_proj")

        def norm(part: str) -> Affine:
            if shape.has_rms_norms:
                return Affine(weights.take(f"{name}.{part}.weight", (width,)))
            return weights.take_affine(f"{name}.{part}", width)

        def head_norm(part: str) -> Tensor:
            return weights.take(f"{name}.attn.{part}_norm.weight", (shape.head_dim,))

        return cls(
            norm1=norm("norm1"),
            qkv=ops.linear(weights.take_affines([f"{name}.attn.{part}" for part in qkv], 3 * width // len(qkv), width)),
            qk_norms=(head_norm("q"), head_norm("k")) if shape.has_qk_norms else None,
            proj=ops.linear(weights.take_affine(f"{name}.attn.proj", width, width)),
            norm2=norm("norm2"),
            mlp=ops.mlp(
                weights.take_affines([f"{name}.mlp.{part}" for part in inner], shape.mlp_width, width),
                weights.take_affine(f"{name}.mlp.{outer}", width, shape.mlp_width),
                shape.activation,
            ),
        )


class VisionModel:
    """Patches in, embeddings for the language model out."""

    def __init__(
        self, shape: VisionShape, limits: ImageLimits, weights: WeightReader, ops: Ops, device: Device
    ) -> None:
        self.shape = shape
        self._ops = ops
        self._device = device
        of_frames = (shape.temporal_patch_size,) if shape.temporal_patch_size > 1 else ()
        kernel = (shape.width, shape.in_channels, *of_frames, shape.patch_size, shape.patch_size)
        frames = weights.take("visual.patch_embed.proj.weight", kernel)
        self._dtype = frames.dtype
        bias = weights.take("visual.patch_embed.proj.bias", (shape.width,)) if shape.has_patch_bias else None
        self._embed = ops.linear(patch_projection(frames.view(*kernel[:2], -1, *kernel[-2:]), limits, bias))
        positions = (shape.positions_side**2, shape.width)
        self._positions = weights.take("visual.position_embedding.weight", positions) if shape.positions_side else None
        self._layers = [_VisionLayer.read(weights, index, shape, ops) for index in range(shape.depth)]
        merge_norm, self._merge = read_merger(weights, shape, ops)
        # The norm behind each layer's MLP, and the linear layer behind that; the merger folds rows before its own.
        behind: list[tuple[Affine, Linear | None]] = [(layer.norm1, layer.qkv) for layer in self._layers[1:]]
        self._behind = [*behind, (merge_norm, None)]
        self._inv_freq = inverse_frequencies(shape.head_dim // 2, shape.rope_theta, device.torch_device)

    def layers(self, patches: Tensor, grids: Sequence[PatchGrid]) -> Generator[None, None, Tensor]:
        """Embed the images of a batch, with a pause between layers, so that other work may be launched there.

        patches: uint8 [patches, 3 · patch_size²], images in the order of grids. Returns [patches / merge_size²,
        out_width] in the model's dtype.
        """
        segments = Segments.of([rows * columns for rows, columns in grids], self._device.upload)
        places = torch.cat([vision_positions(rows, columns, self.shape.merge_size) for rows, columns in grids])
        positions = self._device.upload(places)
        cos, sin = self._rotary_tables(positions)
        x = self._embed(patches.to(self._dtype).sub_(GREY))
        if self._positions is not None:
            sizes = torch.cat([torch.tensor([rows, columns]).expand(rows * columns, 2) for rows, columns in grids])
            x += stretched(self._positions, positions, self._device.upload(sizes)).to(x.dtype)
        normed: Rows = self._normed(x, self._layers[0].norm1)
        for number, (layer, (norm, following)) in enumerate(zip(self._layers, self._behind, strict=True)):
            if number:
                yield
            # Nothing else of a layer is kept while other work is launched.
            x, normed = self._then_norm(
                layer.proj, self._attend(layer, normed, cos, sin, segments), x, layer.norm2, layer.mlp
            )
            x, normed = self._then_norm(layer.mlp, normed, x, norm, following)
        assert isinstance(normed, Tensor)
        return self._merge(normed)

    def _attend(self, layer: _VisionLayer, normed: Rows, cos: Tensor, sin: Tensor, segments: Segments) -> Tensor:
        qkv = layer.qkv(normed)
        q, k, v = qkv.view(len(qkv), 3, self.shape.num_heads, self.shape.head_dim).unbind(1)
        if layer.qk_norms is not None:
            q, k = (
                self._ops.rms_norm(x.reshape(-1, self.shape.head_dim), norm, self.shape.norm_eps).view_as(x)
                for x, norm in zip((q, k), layer.qk_norms, strict=True)
            )
        q, k = self._ops.rotary(q, k, cos, sin)
        return self._ops.attention(q, k, v, segments, False).flatten(1)

    def _then_norm(
        self, layer: Linear, x: Rows, residual: Tensor, norm: Affine, following: Linear | None
    ) -> tuple[Tensor, Rows]:
        if norm.bias is None:
            total = layer(x, residual)
            return total, self._normed(total, norm)
        return self._ops.then_layer_norm(layer, x, residual, norm=norm, eps=self.shape.norm_eps, following=following)

    def _normed(self, x: Tensor, norm: Affine) -> Tensor:
        if norm.bias is None:
            return self._ops.rms_norm(x, norm.weight, self.shape.norm_eps)
        return self._ops.layer_norm(x, norm.weight, norm.bias, self.shape.norm_eps)

    def _rotary_tables(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cos and sin, each [patches, head_dim / 2]. Half the frequencies rotate with the row, half with the column."""
        angles = (positions.unsqueeze(-1) * self._inv_freq).flatten(1)
        return angles.cos(), angles.sin()


def stretched(table: Tensor, positions: Tensor, sizes: Tensor) -> Tensor:
    """What a table of learned positions has for each patch, between its rows and columns: float32 [patches, width].

    table: [side², width]. positions: row and column of each patch, int64 [patches, 2]. sizes: rows and columns of its
    image, likewise.
    Source: torch's bilinear `interpolate`, with `align_corners=False`.
    """
    side = math.isqrt(len(table))
    at = ((positions + 0.5) * (side / sizes) - 0.5).clamp(min=0)
    before = at.long()
    share = at - before
    (row, column), (next_row, next_column) = before.unbind(1), (before + 1).clamp(max=side - 1).unbind(1)
    down, across = share.unbind(1)
    places = [row * side + column, row * side + next_column, next_row * side + column, next_row * side + next_column]
    weights = [(1 - down) * (1 - across), (1 - down) * across, down * (1 - across), down * across]
    return F.embedding_bag(
        torch.stack(places, dim=1), table.float(), mode="sum", per_sample_weights=torch.stack(weights, dim=1)
    )


def patch_projection(frames: Tensor, limits: ImageLimits, bias: Tensor | None = None) -> Affine:
    """The patch projection with the normalisation folded in: it takes bytes from which `GREY` was taken.

    frames: [width, channels, temporal_patch_size, patch_size, patch_size]. bias: of the projection, if it has one. The
    frames of a still image are identical, so one frame is multiplied by the sum of their weights. In bfloat16 the
    inputs are exact and the weights rounded; inputs around zero keep what that costs as small as rounding normalised
    values would be.
    """
    weight = frames.double().sum(dim=2)
    mean = torch.tensor(limits.mean, dtype=torch.float64, device=frames.device).view(1, -1, 1, 1)
    std = torch.tensor(limits.std, dtype=torch.float64, device=frames.device).view(1, -1, 1, 1)
    scaled = (weight / (255.0 * std)).flatten(1).to(frames.dtype)
    shift = (weight * (GREY / 255.0 - mean) / std).flatten(1).sum(dim=1)
    return Affine(scaled, (shift if bias is None else shift + bias).to(frames.dtype))
