"""The ViT without the pauses that it makes between its layers."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from batchocr.engine.model.preprocess import PatchGrid
from batchocr.engine.model.vision import VisionModel


def encode(model: VisionModel, patches: Tensor, grids: Sequence[PatchGrid]) -> Tensor:
    """What `VisionModel.layers` returns."""
    layers = model.layers(patches, grids)
    while True:
        try:
            next(layers)
        except StopIteration as end:
            return end.value
