"""Where the ink of a block is: its rows, and the gaps within a row."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from batchocr.pages.writing import Marks, runs_of

_LEAST_CONTRAST: Final = 24
"""The fewest levels between ink and paper; with less there is paper alone."""

_SLOPES: Final = np.arange(-16, 17) * 0.0025
"""Slopes of a line that are tried, as its rise across in shares of its length: up to 2.3 degrees."""

_NUM_STRIPS: Final = 24
"""Parts across, whose columns are moved together to level lines."""

_LEVEL: Final = 1.05
"""The factor by which rows must be sharper for a slope to be taken."""


@dataclass(frozen=True, slots=True)
class InkRow:
    """A row of ink, in px of the levelled block."""

    top: int
    bottom: int
    left: int
    right: int
    gaps: tuple[tuple[int, int], ...]
    """The [start, end) of each stretch of columns without ink within it."""
    ends_in_hyphen: bool = False
    """Whether the row's last mark looks like a hyphen."""

    @property
    def height(self) -> int:
        return self.bottom - self.top


def marks_in(crop: Image.Image) -> Marks:
    """Which pixels are ink: the pixels on the rarer side of the threshold that parts the levels best (Otsu's)."""
    grey = np.asarray(crop.convert("L"))
    counts = np.bincount(grey.ravel(), minlength=256).astype(float)
    weights, sums = np.cumsum(counts), np.cumsum(counts * np.arange(256))
    with np.errstate(divide="ignore", invalid="ignore"):
        between = (sums[-1] * weights / weights[-1] - sums) ** 2 / (weights * (weights[-1] - weights))
    threshold = int(np.argmax(np.nan_to_num(between[:-1], posinf=0.0)))
    dark = grey <= threshold
    if not dark.any() or dark.all() or abs(grey[~dark].mean() - grey[dark].mean()) < _LEAST_CONTRAST:
        return np.zeros_like(dark)
    return dark if dark.mean() <= 0.5 else ~dark


def with_bands_turned(marks: Marks, thickness: int) -> Marks:
    """The marks with bands that are mostly ink, as the dark head of a table, turned: their letters are what is not."""
    turned = marks.copy()
    for top, bottom in runs_of(marks.mean(axis=1) > 0.5):
        if bottom - top > thickness:
            turned[top:bottom] = ~marks[top:bottom] & (marks[top:bottom].mean(axis=0) > 0.2)
    return turned


def rules_in(marks: Marks, length: int) -> Marks:
    """The marks of lines that are at least `length` px long, across or down."""
    return _long_runs(marks, length) | _long_runs(marks.T, length).T


def _long_runs(marks: Marks, length: int) -> Marks:
    """The marks that belong to a run of at least `length` across."""
    if marks.shape[1] < length:
        return np.zeros_like(marks)
    sums = np.pad(np.cumsum(marks, axis=1, dtype=np.int32), ((0, 0), (1, 0)))
    begun = np.cumsum(sums[:, length:] - sums[:, :-length] == length, axis=1, dtype=np.int32)
    begun = np.pad(begun, ((0, 0), (0, length - 1)), mode="edge")  # how many such runs begin here or before
    begun[:, length:] -= begun[:, :-length].copy()
    return np.asarray(begun > 0)


def slope_of(marks: Marks) -> float:
    """By how much the lines fall from left to right, as a share of their length; 0 if level lines fit as well."""
    height, width = marks.shape
    strip = width // _NUM_STRIPS
    if strip < 4:
        return 0.0
    strips = marks[:, : _NUM_STRIPS * strip].reshape(height, _NUM_STRIPS, strip).sum(axis=2, dtype=np.int32)
    middles = (np.arange(_NUM_STRIPS) + 0.5) * strip - width / 2
    sharpness = [_sharpness(strips, np.rint(slope * middles).astype(int)) for slope in _SLOPES]
    best = int(np.argmax(sharpness))
    return float(_SLOPES[best]) if sharpness[best] > _LEVEL * sharpness[len(_SLOPES) // 2] else 0.0


def _sharpness(strips: NDArray[np.int32], falls: NDArray[np.int_]) -> float:
    """How unlike each other the rows are once each strip is moved up by what it has fallen."""
    height = strips.shape[0]
    rows = np.arange(height)[:, None] + falls[None, :]
    levelled = np.where((rows >= 0) & (rows < height), strips[rows.clip(0, height - 1), np.arange(len(falls))], 0)
    return float((levelled.sum(axis=1, dtype=float) ** 2).sum())


def levelled(marks: Marks, slope: float) -> Marks:
    """The marks with each column moved up by what the lines have fallen there."""
    if not slope:
        return marks
    height, width = marks.shape
    rows = np.arange(height)[:, None] + np.rint(slope * (np.arange(width) - width / 2)).astype(int)[None, :]
    return np.asarray(marks[rows.clip(0, height - 1), np.arange(width)[None, :]] & (rows >= 0) & (rows < height))


def ink_rows(marks: Marks) -> list[InkRow]:
    """The rows of ink from top to bottom; accents and dots belong to the row that they are nearest to."""
    profile = marks.sum(axis=1)
    rows = [run for run in runs_of(profile > 0) if profile[slice(*run)].sum() > 2]
    if not rows:
        return []
    usual = _usual_height(rows, profile)
    rows = [part for row in rows for part in _split(row, profile, usual)]
    rows = _joined(rows, usual)
    return [made for top, bottom in rows if (made := _row(marks, top, bottom)) is not None]


def _usual_height(rows: list[tuple[int, int]], profile: NDArray[np.int_]) -> float:
    """The height of the row in whose middle the ink is."""
    ordered = sorted(rows, key=lambda row: row[1] - row[0])
    ink = np.cumsum([profile[top:bottom].sum() for top, bottom in ordered])
    top, bottom = ordered[int(np.searchsorted(ink, ink[-1] / 2))]
    pitch = _pitch(profile)
    return min(bottom - top, pitch) if pitch else bottom - top


def _pitch(profile: NDArray[np.int_]) -> float:
    """The distance after which the profile repeats itself; 0 if it does not."""
    height = len(profile)
    centred = np.convolve(profile - profile.mean(), np.ones(3), mode="same")
    power = np.abs(np.fft.rfft(centred, 2 * height)) ** 2
    likeness = np.fft.irfft(power)[: height // 2]
    if len(likeness) < 12 or likeness[0] <= 0:
        return 0.0
    likeness = likeness / likeness[0]
    falls = np.flatnonzero(likeness < 0)
    if not len(falls):
        return 0.0
    likeness = likeness[falls[0] :]
    peaks = runs_of(likeness >= max(0.25, 0.5 * likeness.max()))  # later ones are of every second or third row
    if not peaks:
        return 0.0
    first = peaks[0]
    return float(int(falls[0]) + first[0] + int(np.argmax(likeness[slice(*first)])))


def _split(row: tuple[int, int], profile: NDArray[np.int_], usual: float) -> list[tuple[int, int]]:
    """The row, cut where it has least ink if it is as high as several."""
    top, bottom = row
    number = round((bottom - top) / max(1.0, usual))
    if (bottom - top) < 1.6 * usual or number < 2 or usual < 6:
        return [row]
    step = (bottom - top) / number
    cuts = [top]
    for index in range(1, number):
        low, high = int(top + (index - 0.35) * step), int(top + (index + 0.35) * step) + 1
        cuts.append(low + int(np.argmin(profile[low:high])))
    return list(zip(cuts, [*cuts[1:], bottom], strict=True))


def _joined(rows: list[tuple[int, int]], usual: float) -> list[tuple[int, int]]:
    """The rows, with those that are too low for letters joined to the nearest row."""
    rows = list(rows)
    index = 0
    while len(rows) > 1 and index < len(rows):
        top, bottom = rows[index]
        above = top - rows[index - 1][1] if index else np.inf
        below = rows[index + 1][0] - bottom if index + 1 < len(rows) else np.inf
        if bottom - top >= 0.45 * usual or min(above, below) > 0.5 * usual:
            index += 1
            continue
        first = index - 1 if above < below else index
        rows[first : first + 2] = [(rows[first][0], rows[first + 1][1])]
        index = first
    return rows


def _row(marks: Marks, top: int, bottom: int) -> InkRow | None:
    runs = runs_of(np.asarray(marks[top:bottom].any(axis=0)))
    if not runs:
        return None
    gaps = tuple((before[1], after[0]) for before, after in pairwise(runs))
    return InkRow(top, bottom, runs[0][0], runs[-1][1], gaps, _is_hyphen(marks[top:bottom, slice(*runs[-1])]))


def _is_hyphen(mark: Marks) -> bool:
    """Whether a mark, in the height of its row, is flat and half-way up."""
    height, width = mark.shape
    inked = np.flatnonzero(mark.any(axis=1))
    thickness = inked[-1] + 1 - inked[0]
    middle = (inked[0] + inked[-1] + 1) / 2 / height
    return bool(thickness < 0.25 * height and 1.3 * thickness < width < 0.7 * height and 0.35 < middle < 0.7)
