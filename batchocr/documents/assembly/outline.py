"""Which heading is which entry of a PDF's outline."""

from __future__ import annotations

import unicodedata
from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rapidfuzz import fuzz

from batchocr.data import OutlineEntry
from batchocr.documents.assembly.numbering import parse_number

_SEEN: Final = 200
_NUM_COMPARED: Final = 32
"""How many headings and entries of a page are compared pairwise at most. Those with equal text are matched before
that."""

_SIMILAR: Final = 82.0
"""Least similarity, of 100, between a heading and its entry. Less is enough if the entry leads to the heading's
place."""
_SIMILAR_THERE: Final = 55.0
_THERE: Final = 0.03
"""How far from a heading, as a share of the page, an entry may lead that means it."""
_CUT_OFF: Final = 12
"""Least length of a title that is matched with a longer one which begins with it."""


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading as an outline may name it."""

    text: str
    page_index: int
    top: float
    """Where the heading begins, as a share of the page's height."""
    width: float = 0.0
    """The width of the heading's box, along its lines, in any unit that is the same for all headings."""
    height: float = 0.0
    """The height of the heading's box, across its lines, in the unit of `width`."""


def outline_levels(headings: Sequence[Heading], outline: Sequence[OutlineEntry]) -> list[int | None]:
    """For each heading the level of its entry in the outline, None if it has none. Both in reading order."""
    names = [_Name.of(heading.text) for heading in headings]
    levels: list[int | None] = [None] * len(headings)
    left = _match_same(headings, names, outline, levels)
    _match_similar(headings, names, left, levels)
    return levels


@dataclass(frozen=True, slots=True)
class _Name:
    """A title as titles are compared: small letters and digits only."""

    whole: str
    """The title with its number."""
    rest: str
    """The title without its number; it may be empty."""

    @classmethod
    def of(cls, title: str) -> _Name:
        number = parse_number(title)
        whole = _plain(title)
        return cls(whole, _plain(number.rest) if number else whole)

    def similarity(self, other: _Name) -> float:
        """How much two titles are alike, from 0 to 100."""
        shorter, longer = sorted((self.whole, other.whole), key=len)
        if len(shorter) >= _CUT_OFF and longer.startswith(shorter):
            return 100.0
        return max(fuzz.ratio(self.whole, other.whole), fuzz.ratio(self.rest, other.rest) if self.rest else 0.0)


def _plain(title: str) -> str:
    return "".join(letter for letter in unicodedata.normalize("NFKC", title[:_SEEN]).casefold() if letter.isalnum())


def _match_same(
    headings: Sequence[Heading],
    names: Sequence[_Name],
    outline: Sequence[OutlineEntry],
    levels: list[int | None],
) -> list[OutlineEntry]:
    """Give each heading the level of the entry of the same name: on its page, else on the page before or after, where a
    careless outline leads. Returns the other entries."""
    places: dict[tuple[int, str], deque[int]] = defaultdict(deque)
    for at, (heading, name) in enumerate(zip(headings, names, strict=True)):
        for key in {name.whole, name.rest} - {""}:
            places[heading.page_index, key].append(at)
    left: list[OutlineEntry] = []
    for entry in outline:
        name = _Name.of(entry.title)
        pages = (entry.page_index, entry.page_index + 1, entry.page_index - 1)
        found = (_first_free(places.get((page, key)), levels) for page in pages for key in (name.whole, name.rest))
        same = next((at for at in found if at is not None), None)
        if same is None:
            left.append(entry)
        else:
            levels[same] = max(1, entry.level)
    return left


def _first_free(places: deque[int] | None, levels: Sequence[int | None]) -> int | None:
    """The first heading of these that has no level; headings before it are forgotten."""
    while places:
        at = places.popleft()
        if levels[at] is None:
            return at
    return None


def _match_similar(
    headings: Sequence[Heading], names: Sequence[_Name], left: Sequence[OutlineEntry], levels: list[int | None]
) -> None:
    """Give the headings without a level that of the entry on their page that is most like them, if it is enough so."""
    free: dict[int, list[int]] = defaultdict(list)
    for at, heading in enumerate(headings):
        if levels[at] is None and len(free[heading.page_index]) < _NUM_COMPARED:
            free[heading.page_index].append(at)
    compared: Counter[int] = Counter()
    for entry in left:
        compared[entry.page_index] += 1
        name = _Name.of(entry.title)
        if not name.whole or compared[entry.page_index] > _NUM_COMPARED:
            continue
        ratings = [
            (names[at].similarity(name) - (_SIMILAR_THERE if _is_there(headings[at], entry) else _SIMILAR), -at)
            for at in free.get(entry.page_index, ())
            if levels[at] is None
        ]
        surplus, at = max(ratings, default=(-1.0, 0))
        if surplus >= 0:
            levels[-at] = max(1, entry.level)


def _is_there(heading: Heading, entry: OutlineEntry) -> bool:
    return entry.y is not None and abs(entry.y - heading.top) <= _THERE
