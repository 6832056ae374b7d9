"""Pillow's bicubic filter in integers: which inputs each output value along a side reads, and with which weights.

Source: Pillow 13, libImaging/Resample.c. Pillow before 13 always resized the width first, which gives different bytes
if the height shrinks a lot; hence the pin in pyproject.toml.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

PRECISION_BITS = 32 - 8 - 2
_SUPPORT = 2.0

Size: TypeAlias = tuple[int, int]
"""Height and width in px."""


@dataclass(frozen=True, slots=True)
class Taps:
    """Where each output value along a side starts reading, and its weights scaled by 2^22, padded with zeros.

    starts: int32 [out_size]. weights: int32 [max taps, out_size].
    """

    starts: NDArray[np.int32]
    weights: NDArray[np.int32]


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
