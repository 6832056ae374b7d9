"""How good a page seems by what its row says, without a look at it."""

from __future__ import annotations

import math
from typing import Final

from batchocr.data import PageResult

DOUBTFUL: Final = 0.5
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
    return row.status in ("ok", "degraded") and quality(row) < DOUBTFUL


def _share(value: float | None, unknown: float = 1.0) -> float:
    """The value as a share from 0 to 1, as a table that another program made may hold any number."""
    return unknown if value is None or math.isnan(value) else max(0.0, min(1.0, value))
