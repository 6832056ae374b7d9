"""Turns uint8 pixels into patches on the model's device, for many images of different sizes in one call."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from batchocr.data import Pixels
from batchocr.engine.backend.base import Ops, ResizePlan
from batchocr.planning.architecture import ImageLimits, VisionShape
from batchocr.planning.image_size import smart_resize

PatchGrid = tuple[int, int]
"""Rows and columns of patches."""


class Preprocessor:
    """Resizes images and cuts them into patches with one model's settings."""

    def __init__(self, shape: VisionShape, limits: ImageLimits, ops: Ops) -> None:
        self._shape = shape
        self._limits = limits
        self._ops = ops

    def patch_grid(self, height: int, width: int, resize_to: tuple[int, int] | None) -> PatchGrid:
        """The patch grid of an image of this size in px. Raises ValueError if the image is too thin."""
        height, width = self._size(*(resize_to or (height, width)))
        return height // self._shape.patch_size, width // self._shape.patch_size

    def patches(self, images: Sequence[tuple[Pixels, tuple[int, int] | None]]) -> Tensor:
        """Resize each image, first to its `resize_to`, if any, then to its grid, and cut it into patches.

        Returns uint8 [total patches, 3 · patch_size²] on the device: images in order, each in merge squares; one frame
        only, because the two of a still image are the same. The model's patch projection does the normalisation.
        """
        return self._ops.patches(
            [
                torch.frombuffer(pixels.data, dtype=torch.uint8).view(pixels.height, pixels.width, 3)
                for pixels, _ in images
            ],
            [self._plan(pixels, resize_to) for pixels, resize_to in images],
            self._shape.patch_size,
            self._shape.merge_size,
        )

    def _plan(self, pixels: Pixels, resize_to: tuple[int, int] | None) -> ResizePlan:
        size = self._size(*(resize_to or (pixels.height, pixels.width)))
        return (size,) if resize_to in (None, size) else (resize_to, size)

    def _size(self, height: int, width: int) -> tuple[int, int]:
        return smart_resize(
            height,
            width,
            factor=self._shape.patch_size * self._shape.merge_size,
            min_pixels=self._limits.min_pixels,
            max_pixels=self._limits.max_pixels,
        )
