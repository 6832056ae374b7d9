"""Turns uint8 pixels into patches on the model's device, for many images of different sizes in one call."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from batchocr.data import Pixels
from batchocr.engine.backend.base import ResizePlan
from batchocr.engine.backend.reference import Ops
from batchocr.planning.architecture import ImageLimits, VisionShape

PatchGrid = tuple[int, int]
"""The rows and columns of patches of an image."""

_MAX_ASPECT_RATIO = 200


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
        return smart_resize(height, width, factor=self._shape.patch_size * self._shape.merge_size, limits=self._limits)


def smart_resize(height: int, width: int, *, factor: int, limits: ImageLimits) -> tuple[int, int]:
    """The size in px that an image is resized to: multiples of factor, within the limits, with the aspect ratio kept
    as far as possible. Raises ValueError for an aspect ratio above 200.

    Source: transformers, `smart_resize` of `qwen2_vl.image_processing_qwen2_vl`; for raised sides, of
    `paddleocr_vl.image_processing_paddleocr_vl`; for two frames, of `glm46v.image_processing_glm46v`.
    """
    size = f"{width} x {height} px"
    if limits.resize == "raised sides":
        if height < factor:
            height, width = factor, round(width * factor / height)
        if width < factor:
            height, width = round(height * factor / width), factor
    if max(height, width) > _MAX_ASPECT_RATIO * min(height, width):
        raise ValueError(f"an image of {size} is too thin: its aspect ratio is above 200")
    if limits.resize == "two frames" and min(height, width) < factor:
        enlarge = factor / min(height, width)
        height, width = int(height * enlarge), int(width * enlarge)
    pixels = limits.num_frames * height * width
    new_height = round(height / factor) * factor
    new_width = round(width / factor) * factor
    new_pixels = limits.num_frames * new_height * new_width
    if new_pixels > limits.max_pixels:
        shrink = math.sqrt(pixels / limits.max_pixels)
        new_height = max(factor, math.floor(height / shrink / factor) * factor)
        new_width = max(factor, math.floor(width / shrink / factor) * factor)
    elif new_pixels < limits.min_pixels:
        grow = math.sqrt(limits.min_pixels / pixels)
        new_height = math.ceil(height * grow / factor) * factor
        new_width = math.ceil(width * grow / factor) * factor
    return new_height, new_width
