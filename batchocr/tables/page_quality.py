"""How good a page seems by what its row says, without a look at it, and what else is to be said of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from typing import Final, Literal, get_args

from batchocr.data import PageResult

Trait = Literal["doubtful", "turned", "only_figures", "writing_in_figures", "rescued"]
"""What is said of a page that was read: it should be looked at; it does not stand upright, and was not read as if it
did; it has nothing but figures that were not read; some of these look like writing; it has blocks with the PDF's own
text in place of the model's."""

TRAITS: Final[Sequence[Trait]] = get_args(Trait)

DOUBTFUL: Final = 0.5
"""The quality below which pages are doubtful, as `view` sorts by it."""
TURNED: Final = 0.25
"""The factor by which the quality of a turned page is multiplied."""
LOOKS_WRITTEN: Final = 0.5
"""The share of the ink that must lie in writing in figures for the page to be said to have any."""


def quality(row: PageResult) -> float:
    """How good the page seems without a look at it, from 0 to 1; 0 if it was not read.

    The product of the share of its ink that blocks cover, the share that is no writing in figures, its agreement with
    the file's own text, and the confidence of its least certain block, halved for each block that went in circles. What
    is not known counts as good, and so does a block with the PDF's own text.
    """
    if row.status == "failed":
        return 0.0
    by_model = [block for block in row.blocks if block.text_source != "page"]
    certain = min((_share(block.confidence) for block in by_model), default=1.0)
    loops = sum(block.finish_reason == "repetition" for block in by_model)
    seen = (1.0 - _share(row.ink_outside, unknown=0.0)) * (1.0 - _share(row.writing_in_figures, unknown=0.0))
    upright = TURNED if _is_turned(row) else 1.0
    return seen * _share(row.text_layer_agreement) * certain * 0.5 ** min(loops, 60) * upright


def traits_of(row: PageResult) -> Set[Trait]:
    """What is to be said of the page; nothing if it was not read."""
    if row.status not in ("ok", "degraded"):
        return frozenset()
    has: dict[Trait, bool] = {
        "doubtful": quality(row) < DOUBTFUL,
        "turned": _is_turned(row),
        "only_figures": row.ink_in_figures == 1.0,
        "writing_in_figures": _share(row.writing_in_figures, unknown=0.0) > LOOKS_WRITTEN,
        "rescued": (row.rescued_blocks or 0) > 0,
    }
    return frozenset(trait for trait, is_so in has.items() if is_so)


def in_words(traits: Mapping[Trait, int]) -> str:
    """The traits in words, with the number of pages that have each: "2 doubtful, 1 turned"."""
    return ", ".join(f"{traits[trait]:,} {trait.replace('_', ' ')}" for trait in TRAITS if traits.get(trait))


def _is_turned(row: PageResult) -> bool:
    """Whether the page does not stand upright, and most of its blocks were read as if it did."""
    if not row.orientation:
        return False
    as_they_stand = sum(block.angle == 360 - row.orientation for block in row.blocks)
    return 2 * as_they_stand < max(1, len(row.blocks))


def _share(value: float | None, unknown: float = 1.0) -> float:
    """The value as a share from 0 to 1, as a table that another program made may hold any number."""
    return unknown if value is None or math.isnan(value) else max(0.0, min(1.0, value))
