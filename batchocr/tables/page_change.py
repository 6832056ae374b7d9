"""How far two readings of a page differ: their text, their blocks, their status."""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rapidfuzz.distance import Levenshtein

from batchocr.data import Block, PageResult, Status, box_overlap

MIN_OVERLAP = 0.5
"""The least share that two boxes of one block have in common, of the area that either covers: their intersection over
union."""

_LIKELY_SHARE = 20
"""Most pages that differ do so in less than one letter of so many: the distance is looked for there first."""


@dataclass(frozen=True, slots=True)
class BlockChanges:
    """How many blocks were added, lost or changed from one reading to another."""

    added: int = 0
    lost: int = 0
    changed: int = 0
    """Blocks in the same place and of the same type, with another content."""

    def __add__(self, other: BlockChanges) -> BlockChanges:
        return BlockChanges(self.added + other.added, self.lost + other.lost, self.changed + other.changed)


@dataclass(frozen=True, slots=True)
class PageChange:
    """What became of a page."""

    source: str
    page_index: int | None
    statuses: tuple[Status | None, Status | None]
    """The status of the page in each table; None where a table has no row of the page."""
    characters: int
    """The characters of the longer text, its white space folded."""
    characters_changed: int
    """How many of the characters have to be changed, added or taken away to get from one text to the other."""
    blocks: BlockChanges

    @property
    def share(self) -> float:
        """The share of characters that changed, from 0 to 1."""
        return self.characters_changed / self.characters if self.characters else 0.0

    @property
    def is_any(self) -> bool:
        """Whether anything differs."""
        return bool(self.characters_changed or self.statuses[0] != self.statuses[1] or self.blocks != BlockChanges())


def page_change(first: PageResult | None, second: PageResult | None) -> PageChange:
    """How two rows of a page differ; a row that is missing counts as an empty one. At least one is given."""
    row = first or second
    assert row is not None
    characters, changed = _text_change(_text(first), _text(second))
    return PageChange(
        source=row.source,
        page_index=row.page_index,
        statuses=(first.status if first else None, second.status if second else None),
        characters=characters,
        characters_changed=changed,
        blocks=block_changes(first.blocks if first else (), second.blocks if second else ()),
    )


def block_changes(first: Sequence[Block], second: Sequence[Block]) -> BlockChanges:
    """How many blocks were added, lost or changed. A block is the one of the same type whose box overlaps most."""
    found = _same_boxes(first, second)
    taken_first, taken_second = {one for one, _ in found}, {other for _, other in found}
    rest_first = [index for index in range(len(first)) if index not in taken_first]
    rest_second = [index for index in range(len(second)) if index not in taken_second]
    found += _overlapping(first, second, rest_first, rest_second)
    return BlockChanges(
        added=len(second) - len(found),
        lost=len(first) - len(found),
        changed=sum(first[one].content != second[other].content for one, other in found),
    )


def _same_boxes(first: Sequence[Block], second: Sequence[Block]) -> list[tuple[int, int]]:
    """The blocks of one type and one box: nearly all, and of a looping layout, hundreds at one place."""
    waiting: dict[tuple[str, tuple[float, ...]], list[int]] = defaultdict(list)
    for index in reversed(range(len(second))):
        waiting[second[index].type, tuple(second[index].bbox)].append(index)
    pairs = ((index, waiting.get((block.type, tuple(block.bbox)))) for index, block in enumerate(first))
    return [(index, others.pop()) for index, others in pairs if others]


def _overlapping(
    first: Sequence[Block], second: Sequence[Block], rest_first: Iterable[int], rest_second: Iterable[int]
) -> list[tuple[int, int]]:
    """Pairs of blocks of one type whose boxes overlap enough, each block in one at most: the best first."""
    by_type: dict[str, list[int]] = defaultdict(list)
    for other in sorted(rest_second, key=lambda index: second[index].bbox[1]):
        by_type[second[other].type].append(other)
    candidates = []
    for one in rest_first:
        for other in by_type[first[one].type]:
            if second[other].bbox[1] >= first[one].bbox[3]:
                break  # it and those behind it begin below
            overlap = box_overlap(first[one].bbox, second[other].bbox)
            if overlap >= MIN_OVERLAP:
                candidates.append((-overlap, one, other))
    pairs: dict[int, int] = {}
    taken: set[int] = set()
    for _, one, other in sorted(candidates):
        if one not in pairs and other not in taken:
            pairs[one] = other
            taken.add(other)
    return list(pairs.items())


def _text(row: PageResult | None) -> str:
    """The page's Markdown, with one space for all white space and one code point for each accented letter."""
    return " ".join(unicodedata.normalize("NFC", (row and row.markdown) or "").split())


def _text_change(first: str, second: str) -> tuple[int, int]:
    """The length of the longer text, and the Levenshtein distance of the two. Texts of 200,000 characters that have
    nothing in common took 2.5 s; the time grows with the square of the length."""
    characters = max(len(first), len(second))
    return characters, Levenshtein.distance(first, second, score_hint=characters // _LIKELY_SHARE)
