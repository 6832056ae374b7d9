"""Intervals of 95 % for what a sample of pages says of a whole table. In closed form: no random numbers, no scipy.

A share of pages has the exact interval of Clopper and Pearson (1934). A share of characters is a sum over few pages of
very different weight, for which that of Fay and Feuer (1997, "Confidence intervals for directly standardized rates: a
method based on the gamma distribution") was made. It holds what it promises where a bootstrap fails: with one affected
page in the sample, or none. Its quantiles are Wilson and Hilferty's (1931).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

LEVEL: Final = 0.95
_Z: Final = NormalDist().inv_cdf((1 + LEVEL) / 2)
_TAIL: Final = (1 - LEVEL) / 2
_STEPS: Final = 60
_MANY: Final = 10
"""So many affected pages have shown how bad one can be."""


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate and the ends of its interval, as shares from 0 to 1."""

    estimate: float
    low: float
    high: float


@dataclass(slots=True)
class CharacterShare:
    """The share of characters concerned, of pages that come one after the other; keeps sums alone."""

    concerned: int = 0
    characters: int = 0
    num_pages: int = 0
    _num_affected: int = 0
    _squares: int = 0
    _largest: int = 0

    def take(self, concerned: int, characters: int) -> None:
        """Count a page of so many characters."""
        self.concerned += concerned
        self.characters += characters
        self.num_pages += 1
        self._num_affected += concerned > 0
        self._squares += concerned**2
        self._largest = max(self._largest, concerned)

    def interval(self, num_in_all: int) -> Interval:
        """For a table of so many pages, of which these were drawn. Source: Fay and Feuer (1997), formula 2. The page
        that the sample may just have missed is as bad as the worst in it; of few bad ones, as bad as a whole page."""
        if not self.characters:
            return Interval(0.0, 0.0, 1.0)
        rate = self.concerned / self.characters
        variance = self._squares / self.characters**2
        largest = self._largest / self.characters
        if self._num_affected < _MANY:
            largest = max(largest, 1 / self.num_pages)
        low = variance / (2 * rate) * _chi_square(2 * rate**2 / variance, -_Z) if rate else 0.0
        variance += largest**2
        high = variance / (2 * (rate + largest)) * _chi_square(2 * (rate + largest) ** 2 / variance, _Z)
        return _within(Interval(rate, low, high), self.num_pages, num_in_all)


def page_share(affected: int, num_pages: int, num_in_all: int) -> Interval:
    """The share of pages affected, if `affected` of `num_pages` were that were drawn of a table of `num_in_all`."""
    if not num_pages:
        return Interval(0.0, 0.0, 1.0)
    low = _solved(lambda p: _at_least(affected, num_pages, p)) if affected else 0.0
    high = 1 - _solved(lambda p: _at_least(num_pages - affected, num_pages, p)) if affected < num_pages else 1.0
    return _within(Interval(affected / num_pages, low, high), num_pages, num_in_all)


def _within(interval: Interval, num_pages: int, num_in_all: int) -> Interval:
    """The interval narrowed by how much of the table was drawn; all of it leaves no doubt."""
    left = math.sqrt(max(0, num_in_all - num_pages) / max(1, num_in_all - 1))
    low, high = interval.estimate - interval.low, interval.high - interval.estimate
    return Interval(
        interval.estimate, max(0.0, interval.estimate - left * low), min(1.0, interval.estimate + left * high)
    )


def _chi_square(degrees: float, z: float) -> float:
    """A quantile of the chi-square distribution, by that of the normal one. Source: Wilson and Hilferty (1931)."""
    part = 2 / (9 * degrees)
    return degrees * max(0.0, 1 - part + z * math.sqrt(part)) ** 3


def _at_least(count: int, number: int, share: float) -> float:
    """The probability of `count` or more in `number` draws."""
    if share <= 0 or share >= 1:
        return float(share >= 1 or count == 0)
    logs = (
        math.lgamma(number + 1)
        - math.lgamma(k + 1)
        - math.lgamma(number - k + 1)
        + k * math.log(share)
        + (number - k) * math.log1p(-share)
        for k in range(count, number + 1)
    )
    return math.fsum(map(math.exp, logs))


def _solved(probability: Callable[[float], float]) -> float:
    """The share at which a probability that grows with it is that of a tail."""
    low, high = 0.0, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if probability(middle) < _TAIL else (low, middle)
    return low
