"""How the measures of quality are distributed over pages: in thousandths, so that it takes no room for each page."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from math import ceil
from typing import Final

from batchocr.data import PageResult

_STEPS: Final = 1000
_MUCH_OUTSIDE: Final = 0.2
_LITTLE_AGREEMENT: Final = 0.8
"""Beyond these, something is wrong with most pages that were looked at."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """Of a measure from 0 to 1, over the pages that have it. worst_tenth, worst_hundredth: so bad, or worse, is that
    share of the pages. num_beyond: how many pages are worse than `bound`. Values are None where there are no pages."""

    pages: int
    median: float | None
    worst_tenth: float | None
    worst_hundredth: float | None
    bound: float
    num_beyond: int


@dataclass(slots=True)
class Quality:
    """Counts pages by both measures, in thousandths."""

    ink_outside: Counter[int] = field(default_factory=Counter)
    text_layer_agreement: Counter[int] = field(default_factory=Counter)

    def add(self, result: PageResult) -> None:
        """Count a row."""
        if result.ink_outside is not None:
            self.ink_outside[round(result.ink_outside * _STEPS)] += 1
        if result.text_layer_agreement is not None:
            self.text_layer_agreement[round(result.text_layer_agreement * _STEPS)] += 1


def distribution_of_ink_outside(quality: Quality) -> Distribution:
    """Of the share of a page's ink that no block covers: the more, the worse."""
    worst_first = sorted(quality.ink_outside.items(), reverse=True)
    beyond = sum(count for step, count in worst_first if step > _MUCH_OUTSIDE * _STEPS)
    return _distribution(worst_first, _MUCH_OUTSIDE, beyond)


def distribution_of_agreement(quality: Quality) -> Distribution:
    """Of the agreement with the PDF's own text: the less, the worse."""
    worst_first = sorted(quality.text_layer_agreement.items())
    beyond = sum(count for step, count in worst_first if step < _LITTLE_AGREEMENT * _STEPS)
    return _distribution(worst_first, _LITTLE_AGREEMENT, beyond)


def _distribution(worst_first: list[tuple[int, int]], bound: float, num_beyond: int) -> Distribution:
    pages = sum(count for _, count in worst_first)

    def worst(share: float) -> float | None:
        """The value of the last page among the worst ones of this share."""
        left = ceil(pages * share)
        for step, count in worst_first:
            left -= count
            if left <= 0:
                return step / _STEPS
        return None

    return Distribution(pages, worst(0.5), worst(0.1), worst(0.01), bound, num_beyond)
