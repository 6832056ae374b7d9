"""Intervals of 95 % for what a sample of pages says of a whole table. In closed form: no random numbers, no scipy.

A share of characters is a sum over few pages of very different weight, for which the interval of Fay and Feuer (1997,
"Confidence intervals for directly standardized rates: a method based on the gamma distribution") was made. It holds
what it promises where a bootstrap fails: with one affected page in the sample, or none. For a share of pages each page
counts as one character; it is then a little wider than the exact one of Clopper and Pearson (1934). Its quantiles are
Wilson and Hilferty's (1931).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

LEVEL: Final = 0.95
_Z: Final = NormalDist().inv_cdf((1 + LEVEL) / 2)
_MANY: Final = 10
"""The number of affected pages that shows how bad one can be."""


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate and the ends of its interval, as shares from 0 to 1."""

    estimate: float
    """The estimated share; nan if nothing was looked at."""
    low: float
    high: float


def share_interval(pages: Iterable[tuple[int, int]], num_in_all: int) -> Interval:
    """The share of characters concerned. pages: for each that was drawn of a table of `num_in_all`, the characters
    concerned and all of them; for a share of pages, 0 or 1 of 1.

    Source: Fay and Feuer (1997), formula 2. The page that the sample may just have missed is as bad as the worst in it;
    of few bad ones, as bad as a whole page.
    """
    drawn = list(pages)
    characters = sum(all_of_them for _, all_of_them in drawn)
    if not characters:
        return Interval(math.nan, 0.0, 1.0)
    weights = [concerned / characters for concerned, _ in drawn]
    rate = sum(concerned for concerned, _ in drawn) / characters
    variance = sum(weight**2 for weight in weights)
    largest = max(weights)
    if sum(weight > 0 for weight in weights) < _MANY:
        largest = max(largest, 1 / len(drawn))
    low = variance / (2 * rate) * _chi_square(2 * rate**2 / variance, -_Z) if rate else 0.0
    variance += largest**2
    high = variance / (2 * (rate + largest)) * _chi_square(2 * (rate + largest) ** 2 / variance, _Z)
    left = math.sqrt(max(0, num_in_all - len(drawn)) / max(1, num_in_all - 1))  # all of a table leaves no doubt
    return Interval(rate, max(0.0, rate - left * (rate - low)), min(1.0, rate + left * (high - rate)))


def _chi_square(degrees: float, z: float) -> float:
    """A quantile of the chi-square distribution, by that of the normal one. Source: Wilson and Hilferty (1931)."""
    part = 2 / (9 * degrees)
    return degrees * max(0.0, 1 - part + z * math.sqrt(part)) ** 3
