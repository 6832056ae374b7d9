"""The size that a model's images are resized to, from which their number of patches follows."""

from __future__ import annotations

import math

_MAX_ASPECT_RATIO = 200


def smart_resize(height: int, width: int, *, factor: int, min_pixels: int, max_pixels: int) -> tuple[int, int]:
    """The size in px that an image is resized to: multiples of factor, within the limits, with the aspect ratio kept
    as far as possible. Raises ValueError for an aspect ratio above 200.

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
