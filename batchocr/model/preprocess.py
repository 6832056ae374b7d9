"""From uint8 pixels to normalised patches, on the model's device, many images of different sizes in one call."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from batchocr.backend.base import Ops
from batchocr.data import Pixels
from batchocr.model.architecture import ImageLimits, VisionShape

PatchGrid = tuple[int, int]
"""Rows and columns of patches."""

_MAX_ASPECT_RATIO = 200


def smart_resize(height: int, width: int, *, factor: int, min_pixels: int, max_pixels: int) -> tuple[int, int]:
    """The size in px an image is resized to: multiples of factor, within the limits, its shape kept as far as
    possible. Raises ValueError above an aspect ratio of 200.

    Source: transformers, `qwen2_vl.image_processing_qwen2_vl.smart_resize`.
    """
    if max(height, width) > _MAX_ASPECT_RATIO * min(height, width):
        raise ValueError(f"an image of {width} x {height} px is too thin: its aspect ratio is above 200")
    new_height = round(height / factor) * factor
    new_width = round(width / factor) * factor
    if new_height * new_width > max_pixels:
        shrink = math.sqrt(height * width / max_pixels)
        new_height = max(factor, math.floor(height / shrink / factor) * factor)
        new_width = max(factor, math.floor(width / shrink / factor) * factor)
    elif new_height * new_width < min_pixels:
        grow = math.sqrt(min_pixels / (height * width))
        new_height = math.ceil(height * grow / factor) * factor
        new_width = math.ceil(width * grow / factor) * factor
    return new_height, new_width


class Preprocessor:
    """Resizes, normalises and cuts images into patches with one model's numbers."""

    def __init__(self, shape: VisionShape, limits: ImageLimits, ops: Ops, device: torch.device) -> None:
        self._shape = shape
        self._limits = limits
        self._ops = ops
        self._device = device
        values_per_channel = shape.patch_size**2
        mean = torch.tensor(limits.mean, device=device).repeat_interleave(values_per_channel)
        std = torch.tensor(limits.std, device=device).repeat_interleave(values_per_channel)
        self._scale = 1.0 / (255.0 * std)
        self._offset = -mean / std

    def patch_grid(self, height: int, width: int, resize_to: tuple[int, int] | None) -> PatchGrid:
        """The grid an image of this size in px gets. Raises ValueError for one that is too thin."""
        height, width = self._size(*(resize_to or (height, width)))
        return height // self._shape.patch_size, width // self._shape.patch_size

    def _size(self, height: int, width: int) -> tuple[int, int]:
        return smart_resize(
            height,
            width,
            factor=self._shape.patch_size * self._shape.merge_size,
            min_pixels=self._limits.min_pixels,
            max_pixels=self._limits.max_pixels,
        )

    def patches(self, images: Sequence[tuple[Pixels, tuple[int, int] | None]]) -> Tensor:
        """Cut each image, resized to its `resize_to` first, then to its grid.

        Returns float32 [patches of all, 3 · patch_size²] on the device: images in order, each in merge squares; one
        frame, for the two of a still image are the same. Values as channel, row, column.
        """
        frames = [self._upload(pixels) for pixels, _ in images]
        first = [resize_to or (pixels.height, pixels.width) for pixels, resize_to in images]
        frames = self._ops.resize(frames, first)
        frames = self._ops.resize(frames, [self._size(height, width) for height, width in first])
        patches = torch.cat([self._cut(frame) for frame in frames])
        return patches.to(torch.float32).mul_(self._scale).add_(self._offset)

    def _upload(self, pixels: Pixels) -> Tensor:
        host = torch.frombuffer(pixels.data, dtype=torch.uint8).view(pixels.height, pixels.width, 3)
        return host.to(self._device)

    def _cut(self, image: Tensor) -> Tensor:
        """uint8 [height, width, 3] to uint8 [patches, 3 · patch_size²]."""
        patch, merge = self._shape.patch_size, self._shape.merge_size
        height, width, _ = image.shape
        squares = image.view(
            height // (merge * patch), merge, patch, width // (merge * patch), merge, patch, self._shape.in_channels
        )
        return squares.permute(0, 3, 1, 4, 6, 2, 5).reshape(-1, self._shape.patch_width)
