"""How good a page seems by what its row says, without a look at it."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from batchocr.data import PageResult

_DOUBTFUL: Final = 0.5
"""Pages whose quality, as `view` sorts by it, is below this are doubtful."""


def quality(row: PageResult) -> float:
    """How good the page seems without a look at it, from 0 to 1; 0 if it was not read.

    The product of the share of its ink that blocks cover, its agreement with the file's own text, and the confidence of
    its least certain block, halved for each block that went in circles. What is not known counts as good.
    """
    if row.status == "failed":
        return 0.0
    certain = min((_share(block.confidence) for block in row.blocks), default=1.0)
    loops = sum(block.finish_reason == "repetition" for block in row.blocks)
    covered = 1.0 - _share(row.ink_outside, unknown=0.0)
    return covered * _share(row.text_layer_agreement) * certain * 0.5 ** min(loops, 60)


def is_doubtful(row: PageResult) -> bool:
    """Whether a page was read, and a person should look at it."""
    return row.status in ("ok", "degraded") and quality(row) < _DOUBTFUL


def are_doubtful(status: Any, ink_outside: Any, agreement: Any, blocks: Any) -> NDArray[np.bool_]:
    """`is_doubtful` of many rows: Arrow arrays of these columns; of `blocks`, `confidence` and `finish_reason`."""
    lengths = blocks.value_lengths().fill_null(0).to_numpy()
    rows, of_rows = np.repeat(np.arange(len(blocks)), lengths), blocks.flatten()
    certain = np.ones(len(blocks))
    np.minimum.at(certain, rows, _shares(of_rows.field("confidence"), 1.0))
    is_loop = pc.equal(of_rows.field("finish_reason"), "repetition").fill_null(False)
    loops = np.bincount(rows, weights=is_loop.to_numpy(zero_copy_only=False), minlength=len(blocks))
    quality = (1.0 - _shares(ink_outside, 0.0)) * _shares(agreement, 1.0) * certain * 0.5**loops
    is_read = pc.is_in(status, pa.array(["ok", "degraded"])).to_numpy(zero_copy_only=False)
    are: NDArray[np.bool_] = is_read & (quality < _DOUBTFUL)
    return are


def _shares(values: Any, unknown: float) -> NDArray[np.float64]:
    """The values of an Arrow array as shares from 0 to 1."""
    numbers = values.to_numpy(zero_copy_only=False).astype(np.float64)
    shares: NDArray[np.float64] = np.clip(np.nan_to_num(numbers, nan=unknown), 0.0, 1.0)
    return shares


def _share(value: float | None, unknown: float = 1.0) -> float:
    """The value as a share from 0 to 1, as a table that another program made may hold any number."""
    return unknown if value is None or math.isnan(value) else max(0.0, min(1.0, value))
