"""How squares of patches become embeddings for the language model, behind the ViT's last norm."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

from batchocr.engine.backend.base import Affine
from batchocr.engine.backend.reference import Ops
from batchocr.engine.model.weights import WeightReader
from batchocr.planning.architecture import Merger, VisionShape

Merge: TypeAlias = Callable[[Tensor], Tensor]
"""A function that merges patches. Takes normed patches [patches, width], in merge squares; returns [patches /
merge_size², out_width]."""

_NORM_EPS: Final = 1e-5


def read_merger(weights: WeightReader, shape: VisionShape, ops: Ops) -> tuple[Affine, Merge]:
    """The norm before the merger, and the merger. Raises ModelError."""
    return _MERGERS[shape.merger](weights, shape, ops)


def _mlp(weights: WeightReader, shape: VisionShape, ops: Ops) -> tuple[Affine, Merge]:
    width = shape.width * shape.merge_size**2
    mlp = ops.mlp(
        weights.take_affine("visual.merger.mlp.0", shape.merger_width, width),
        weights.take_affine("visual.merger.mlp.2", shape.out_width, shape.merger_width),
        "gelu",
    )
    return weights.take_affine("visual.merger.ln_q", shape.width), lambda normed: mlp(normed.view(-1, width))


def _normed_mlp(weights: WeightReader, shape: VisionShape, ops: Ops) -> tuple[Affine, Merge]:
    norm, merge = _mlp(weights, shape, ops)

    def merge_normed(normed: Tensor) -> Tensor:
        assert norm.bias is not None
        return merge(ops.layer_norm(normed, norm.weight, norm.bias, _NORM_EPS))

    return weights.take_affine("visual.post_layernorm", shape.width), merge_normed


def _downsample(weights: WeightReader, shape: VisionShape, ops: Ops) -> tuple[Affine, Merge]:
    side, out = shape.merge_size, shape.out_width
    kernel = weights.take("visual.downsample.weight", (out, shape.width, side, side))
    bias = weights.take("visual.downsample.bias", (out,))
    square = ops.linear(Affine(kernel.permute(0, 2, 3, 1).reshape(out, -1).contiguous(), bias))
    project = ops.linear(Affine(weights.take("visual.merger.proj.weight", (out, out))))
    norm = weights.take_affine("visual.merger.post_projection_norm", out)
    parts = [weights.take(f"visual.merger.{part}_proj.weight", (shape.merger_width, out)) for part in ("gate", "up")]
    down = Affine(weights.take("visual.merger.down_proj.weight", (out, shape.merger_width)))
    mlp = ops.mlp(Affine(torch.cat(parts)), down, "silu_mul")

    def merge(normed: Tensor) -> Tensor:
        projected = project(square(normed.view(-1, side * side * shape.width)))
        assert norm.bias is not None
        return mlp(F.gelu(ops.layer_norm(projected, norm.weight, norm.bias, _NORM_EPS)))

    return Affine(weights.take("visual.post_layernorm.weight", (shape.width,))), merge


_MERGERS: Final[Mapping[Merger, Callable[[WeightReader, VisionShape, Ops], tuple[Affine, Merge]]]] = {
    "mlp": _mlp,
    "normed_mlp": _normed_mlp,
    "downsample": _downsample,
}
