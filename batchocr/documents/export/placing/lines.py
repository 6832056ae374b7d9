"""The text of a block divided over its rows of ink, and the words of a row over its gaps, by dynamic programming."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from batchocr.documents.export.placing.ink import InkRow
from batchocr.pages.searchable.letters import WIDE, advance

_EM_OF_ROW: Final = 0.95
"""The height of a row whose letters reach up and down, in em."""

_WORD_GAP: Final = 0.16
"""The width of a gap between words, in em: a wider gap is one, or grows with the line where that is justified."""

_NO_WORD: Final = 15.0
_IN_WORD: Final = 8.0
_NO_HYPHEN: Final = 4.0
_IN_LINE: Final = 6.0
_GAP_TOO_MANY: Final = 0.5
"""What oddities cost, in squared deviations of a line's width, one constant each: a row without text, as a rest of a
rule; a break within a word where the ink ends in no hyphen; one between words where it does; a row that goes on behind
the end of a line of the text; a gap for which there is no space, or the reverse."""

_DEVIATION: Final = (0.02, 0.25)
"""How well letters tell the width of a line without its gaps: a share of the width, and em. Measured on justified text:
1 %."""

_MAX_STATES: Final = 60
_UNCLEAR: Final = 0.35
"""The share of their width by which the rows of a block may differ from what they should hold; beyond that the block is
unclear."""

_HYPHENS: Final = frozenset("-‐‑–—/\u00ad")


@dataclass(frozen=True, slots=True)
class _Breaks:
    """Where a line may end."""

    ends: NDArray[np.int_]
    """The index behind the line's last character."""
    starts: NDArray[np.int_]
    """The index of the next line's first character."""
    after_hyphen: NDArray[np.float64]
    """The cost of a break at each place in a row of ink that ends in a hyphen."""
    after_letter: NDArray[np.float64]
    """The cost of a break at each place in any other row."""
    is_divided: NDArray[np.bool_]
    """Whether the break is within a word, which then has a hyphen that the text lacks."""
    spaces: NDArray[np.int_]
    """How many spaces are before the break."""


def text_in_rows(text: str, rows: Sequence[InkRow]) -> list[tuple[int, int]] | None:
    """Which characters are in each row, from where to where; None if rows and text do not fit.

    text: words with one space between them, or a line feed where a line ends.
    """
    if not text or not rows:
        return None
    if len(rows) == 1:
        return [(0, len(text))]
    em = float(np.median([row.height for row in rows])) / _EM_OF_ROW
    inked = np.array([_closed_width(row, em) for row in rows])
    advances = np.array([0 if letter in " \n" else advance(letter) for letter in text], dtype=float)
    sums = np.concatenate(([0.0], np.cumsum(advances)))
    if sums[-1] <= 0:
        return None
    breaks = _breaks_of(text)
    scale = inked.sum() / sums[-1]
    found: list[tuple[int, int]] | None = None
    for _ in range(2):  # the second time with the scale of the rows that have text
        found = _best(breaks, sums * scale, rows, inked, em)
        if found is None:
            return None
        filled = sum(width for width, (start, end) in zip(inked, found, strict=True) if start < end)
        scale = filled / sums[-1]
    expected = np.array([(sums[end] - sums[start]) * scale for start, end in found or ()])
    if np.abs(expected - inked).sum() > _UNCLEAR * inked.sum():
        return None
    return found


def _closed_width(row: InkRow, em: float) -> float:
    """The width of the row's ink as if its words stood together."""
    wide = _word_gaps(row, em)
    return max(1.0, row.right - row.left - sum(wide) + 0.08 * em * len(wide))


def _word_gaps(row: InkRow, em: float) -> list[int]:
    """The widths of the gaps that are between words."""
    return [end - start for start, end in row.gaps if end - start > _WORD_GAP * em]


def _breaks_of(text: str) -> _Breaks:
    found = [(0, 0, 0.0, 0.0, False)]
    for index, letter in enumerate(text):
        before = text[index - 1] if index else " "
        if letter in " \n":
            cost = -_IN_LINE if letter == "\n" else 0.0
            hyphen_cost = cost if before in _HYPHENS else cost + _NO_HYPHEN
            found.append((index, index + 1, hyphen_cost, cost, False))
        elif before not in " \n" and advance(letter):
            is_within, is_wide = divides(text, index), WIDE in (advance(letter), advance(before))
            hyphen_cost, cost = _NO_HYPHEN if is_wide else 0.0, _IN_WORD if is_within else 0.0
            found.append((index, index, hyphen_cost, cost, is_within))
    found.append((len(text), len(text), 0.0, 0.0, False))
    ends, starts, after_hyphen, after_letter, is_divided = map(np.array, zip(*found, strict=True))
    spaces = np.cumsum([0, *(letter in " \n" for letter in text)])
    return _Breaks(ends, starts, after_hyphen, after_letter, is_divided, spaces[ends])


def divides(text: str, end: int) -> bool:
    """Whether a line of the text that ends at `end` ends within a word, with a hyphen that the text lacks."""
    if not 0 < end < len(text) or text[end] in " \n" or text[end - 1] in " \n":
        return False
    return text[end - 1] not in _HYPHENS and WIDE not in (advance(text[end]), advance(text[end - 1]))


def _best(
    breaks: _Breaks, sums: NDArray[np.float64], rows: Sequence[InkRow], inked: NDArray[np.float64], em: float
) -> list[tuple[int, int]] | None:
    """The cheapest division. sums: the width of the text up to each character, in px. inked: of each row, without the
    gaps between words."""
    usual = float(np.median(inked[inked >= np.median(inked)]))
    deviation = _DEVIATION[0] * usual + _DEVIATION[1] * em
    ends, starts = sums[breaks.ends], sums[breaks.starts]
    states, costs = np.array([0]), np.array([0.0])
    steps: list[tuple[NDArray[np.int_], NDArray[np.int_]]] = []
    hyphen = breaks.is_divided * advance("-") * em / 1000
    for row, width in zip(rows, inked, strict=True):
        low = int(np.searchsorted(ends, starts[states[0]] + 0.4 * width))
        high = int(np.searchsorted(ends, starts[states[-1]] + 1.8 * width + 1, side="right"))
        filled = np.arange(low, high)
        reached = np.union1d(filled, states)
        long = ends[reached] + hyphen[reached]
        off = np.abs(long[None, :] - starts[states][:, None] - width) / deviation
        off = np.where(off < 3, off**2, 6 * off - 9)  # a formula may be far wider than its letters
        spaces = breaks.spaces[reached][None, :] - breaks.spaces[states][:, None] - (states > 0)[:, None]
        ending = (breaks.after_hyphen if row.ends_in_hyphen else breaks.after_letter)[reached]
        total = costs[:, None] + off + _GAP_TOO_MANY * np.abs(spaces - len(_word_gaps(row, em))) + ending[None, :]
        total[reached[None, :] <= states[:, None]] = np.inf
        stays = np.searchsorted(reached, states)
        total[np.arange(len(states)), stays] = costs + _NO_WORD * min(1.0, (3 * width / usual) ** 2)
        origin = total.argmin(axis=0)
        cheapest = total[origin, np.arange(len(reached))]
        kept = np.sort(np.argsort(cheapest, kind="stable")[:_MAX_STATES])
        kept = kept[np.isfinite(cheapest[kept])]
        steps.append((reached[kept], states[origin[kept]]))
        states, costs = reached[kept], cheapest[kept]
    return _traced(steps, breaks) if states[-1] == len(ends) - 1 else None


def _traced(steps: Sequence[tuple[NDArray[np.int_], NDArray[np.int_]]], breaks: _Breaks) -> list[tuple[int, int]]:
    """What is in each row, from the last one back. steps: for each row, the breaks where it may end, and those where it
    then begins."""
    found, state = [], len(breaks.ends) - 1
    for reached, origins in reversed(steps):
        origin = int(origins[int(np.searchsorted(reached, state))])
        start = int(breaks.starts[origin])
        found.append((start, start if origin == state else int(breaks.ends[state])))
        state = origin
    return found[::-1]


def words_in_row(words: Sequence[str], row: InkRow) -> list[tuple[float, float]]:
    """The left and right of each word, so that the gaps between them are gaps of the ink, as far as there are any."""
    if len(words) == 1:
        return [(row.left, row.right)]
    em = row.height / _EM_OF_ROW
    widths = np.array([max(1, sum(map(advance, word))) for word in words], dtype=float)
    gaps = _candidates(widths, row)
    inner = np.array([end - start for start, end in gaps], dtype=float)
    threshold = _WORD_GAP * em
    within = np.concatenate(([0.0], np.cumsum(np.clip(inner / threshold - 1, 0, 4))))  # costs of gaps inside of a word
    between = np.clip(1 - inner / threshold, 0, 1)
    lefts = np.array([row.left, *(end for _, end in gaps)], dtype=float)
    rights = np.array([*(start for start, _ in gaps), row.right], dtype=float)
    off = rights[None, :] - lefts[:, None]  # [from the gap before it, to the gap behind it]
    inside = np.maximum(within[None, :] - within[:, None], 0)
    costs = (
        np.minimum(np.abs(off - width) / (0.5 * em + 0.15 * width), 6.0) ** 2 + inside
        for width in widths * _letter_scale(widths, row, inner, threshold)
    )
    return [(float(lefts[start]), float(rights[end])) for start, end in cheapest_pieces(costs, between)]


def cheapest_pieces(costs_of: Iterable[NDArray[np.float64]], gap_costs: NDArray[np.float64]) -> list[tuple[int, int]]:
    """The cheapest way to divide a stretch with gaps into pieces, with a gap between each two: of each piece, the gap
    before it + 1, and the gap behind it. costs_of: for each piece, what it costs from each gap to each."""
    order = np.arange(len(gap_costs) + 1)
    costs = np.where(order == 0, 0.0, np.inf)
    origins = []
    for piece in costs_of:
        total = np.where(order[:, None] > order[None, :], np.inf, costs[:, None] + piece)
        origin = total.argmin(axis=0)
        origins.append(origin)
        costs = np.concatenate(([np.inf], total[origin, order][:-1] + gap_costs))
    found, end = [], len(gap_costs)
    for origin in reversed(origins):
        start = int(origin[end])
        found.append((start, end))
        end = start - 1
    return found[::-1]


def _candidates(widths: NDArray[np.float64], row: InkRow) -> list[tuple[float, float]]:
    """The row's gaps, and one without width where each word should end by its letters, as words may touch."""
    ends = np.cumsum(widths + advance(" "))[:-1] / (widths.sum() + advance(" ") * (len(widths) - 1))
    expected = row.left + ends * (row.right - row.left)
    return sorted([*row.gaps, *((float(at), float(at)) for at in expected)])


def _letter_scale(widths: NDArray[np.float64], row: InkRow, inner: NDArray[np.float64], threshold: float) -> float:
    """Px for each 1/1000 em of a letter: the width of the row less its widest gaps, one for each space."""
    number = len(widths) - 1
    spaces = np.sort(inner)[::-1][:number]
    return float(max(1.0, row.right - row.left - spaces[spaces > threshold].sum()) / widths.sum())
