"""Pillow's bicubic resize, byte for byte, and the cutting into patches, in torch on any device.

Two passes of integer arithmetic, each rounded to uint8, with coefficients of 22 fractional bits. A float bicubic
differs from it by up to 17 levels on 14 % of a text page's values.

Source: Pillow 13, libImaging/Resample.c. Pillow before 13 always resized the width first, which gives different bytes
if the height shrinks a lot; hence the pin in pyproject.toml.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

PRECISION_BITS = 32 - 8 - 2
_SUPPORT = 2.0

Size: TypeAlias = tuple[int, int]
"""Height and width in px."""


@dataclass(frozen=True, slots=True)
class Taps:
    """What each output value along a side is made of."""

    starts: NDArray[np.int32]
    """Where each output value starts reading: [out_size]."""
    weights: NDArray[np.int32]
    """The weights of each output value scaled by 2^22, padded with zeros: [max taps, out_size]."""


@lru_cache(maxsize=2048)
def bicubic_taps(in_size: int, out_size: int) -> Taps:
    """The taps that resize a side from in_size to out_size, computed in Pillow's order of operations."""
    scale = in_size / out_size
    filter_scale = max(scale, 1.0)
    support = _SUPPORT * filter_scale
    centers = (np.arange(out_size) + 0.5) * scale
    starts = np.maximum((centers - support + 0.5).astype(np.int32), 0)
    ends = np.minimum((centers + support + 0.5).astype(np.int32), in_size)
    places = starts + np.arange((ends - starts).max(), dtype=np.int32)[:, np.newaxis]
    x = np.abs((places - centers + 0.5) * (1.0 / filter_scale))
    weights = np.where(x < 1.0, (1.5 * x - 2.5) * x * x + 1.0, (((x - 5.0) * x + 8.0) * x - 4.0) * -0.5)
    weights[(x >= 2.0) | (places >= ends)] = 0.0
    # Not weights.sum(axis=0), which may add in a different order.
    weights /= sum(weights)
    rounded = weights * (1 << PRECISION_BITS) + np.copysign(0.5, weights)
    return Taps(starts, rounded.astype(np.int32))


def resizes_rows_first(before: Size, after: Size) -> bool:
    """Whether the height is resized before the width. The order matters, because values are rounded in between."""
    return before[0] - after[0] > max(0, 2 * (before[1] - after[1]))


def resize_bicubic(image: Tensor, height: int, width: int) -> Tensor:
    """The image in another size. image: uint8 [h, w, 3]. Returns uint8 [height, width, 3] on the same device."""
    rows_first = resizes_rows_first((image.shape[0], image.shape[1]), (height, width))
    for resize_rows in (rows_first, not rows_first):
        if resize_rows and image.shape[0] != height:
            image = _resample_rows(image, height)
        elif not resize_rows and image.shape[1] != width:
            image = _resample_rows(image.transpose(0, 1), width).transpose(0, 1)
    return image.contiguous()


def cut_patches(image: Tensor, patch_size: int, merge_size: int) -> Tensor:
    """Returns uint8 [patches, 3 · patch_size²]: merge squares one after the other, each patch as channel, row, column.

    image: uint8 [height, width, 3], its sides multiples of patch_size · merge_size.
    """
    height, width, channels = image.shape
    square = patch_size * merge_size
    squares = image.view(height // square, merge_size, patch_size, width // square, merge_size, patch_size, channels)
    return squares.permute(0, 3, 1, 4, 6, 2, 5).reshape(-1, channels * patch_size**2)


def _resample_rows(image: Tensor, size: int) -> Tensor:
    """Resize the first dimension. image: uint8 [n, m, 3]. Returns uint8 [size, m, 3]."""
    taps = bicubic_taps(image.shape[0], size)
    first = torch.tensor(taps.starts, device=image.device)
    total = torch.full((size, *image.shape[1:]), 1 << (PRECISION_BITS - 1), dtype=torch.int32, device=image.device)
    for tap, weights in enumerate(torch.tensor(taps.weights, device=image.device)):
        rows = (first + tap).clamp_(max=image.shape[0] - 1)
        total.addcmul_(image.index_select(0, rows).int(), weights.view(-1, 1, 1))
    return total.bitwise_right_shift_(PRECISION_BITS).clamp_(0, 255).to(torch.uint8)
