"""How the measures of quality are distributed over pages: in thousandths, so that it takes no room for each page."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from math import ceil
from typing import Final

import numpy as np
from numpy.typing import NDArray

from batchocr.data import PageResult

_STEPS: Final = 1000
_MUCH_OUTSIDE: Final = 0.2
_LITTLE_AGREEMENT: Final = 0.8
"""The least agreement, as `_MUCH_OUTSIDE` is the most ink outside: beyond these, something is wrong with most pages
that were looked at."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """How a measure from 0 to 1 is spread over the pages that have it."""

    pages: int
    median: float | None
    """The median of the pages; None without pages, like the two worst."""
    worst_tenth: float | None
    """The measure that a tenth of the pages reach or are worse than."""
    worst_hundredth: float | None
    bound: float
    num_beyond: int
    """How many pages are worse than `bound`."""


@dataclass(slots=True)
class Quality:
    """Counts of pages by their ink outside of blocks, and by their agreement with the PDF's own text, each in
    thousandths."""

    ink_outside: Counter[int] = field(default_factory=Counter)
    text_layer_agreement: Counter[int] = field(default_factory=Counter)

    def add(self, result: PageResult) -> None:
        """Count a row."""
        if result.ink_outside is not None:
            self.ink_outside[round(result.ink_outside * _STEPS)] += 1
        if result.text_layer_agreement is not None:
            self.text_layer_agreement[round(result.text_layer_agreement * _STEPS)] += 1

    def add_all(self, ink_outside: NDArray[np.int16], agreement: NDArray[np.int16]) -> None:
        """Count many rows by both measures, in thousandths; -1 where one is not known."""
        for counts, steps in ((self.ink_outside, ink_outside), (self.text_layer_agreement, agreement)):
            different, numbers = np.unique(steps[steps >= 0], return_counts=True)
            counts.update(dict(zip(different.tolist(), numbers.tolist(), strict=True)))

    def of_ink_outside(self) -> Distribution:
        """The distribution of the share of a page's ink that no block covers."""
        return _distribution(self.ink_outside, _MUCH_OUTSIDE, more_is_worse=True)

    def of_agreement(self) -> Distribution:
        """The distribution of the agreement with the PDF's own text."""
        return _distribution(self.text_layer_agreement, _LITTLE_AGREEMENT, more_is_worse=False)


def _distribution(counts: Counter[int], bound: float, *, more_is_worse: bool) -> Distribution:
    worst_first = sorted(counts.elements(), reverse=more_is_worse)
    limit, pages = bound * _STEPS, len(worst_first)
    num_beyond = sum(step > limit if more_is_worse else step < limit for step in worst_first)
    median, tenth, hundredth = (
        worst_first[ceil(pages * share) - 1] / _STEPS if pages else None for share in (0.5, 0.1, 0.01)
    )
    return Distribution(pages, median, tenth, hundredth, bound, num_beyond)
