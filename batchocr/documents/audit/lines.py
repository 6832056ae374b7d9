"""Which lines of the second reader are in which block, and in which order they are read there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from batchocr.data import Block, Box, around, box_area, shared_area
from batchocr.pages.protocol.second_reader import INK, LINE, WORD

_MIN_INSIDE: Final = 0.5
_SAME_ROW: Final = 0.5
_TURNS: Final = {0: (0, 1, 3, 2), 90: (1, 3, 0, 2), 180: (2, 0, 1, 3), 270: (3, 1, 0, 2)}


@dataclass(frozen=True, slots=True)
class ReadLine:
    """A line as the second reader read it."""

    box: Box
    text: str
    score: float
    """How sure the reader is, from 0 to 1; 0 if there is only ink."""
    doubted: tuple[str, ...] = ()
    """The words that the reader is not sure of."""


def lines_of(blocks: Iterable[Block]) -> list[ReadLine]:
    """The lines among what `SecondReader` returns, each with its words."""
    lines: list[tuple[Block, list[str]]] = []
    for block in blocks:
        if block.type in (LINE, INK):
            lines.append((block, []))
        elif block.type == WORD and lines:
            lines[-1][1].append(block.content or "")
    return [
        ReadLine(line.bbox, line.content or "", (line.confidence or 0.0) if line.type == LINE else 0.0, tuple(words))
        for line, words in lines
    ]


def by_block(lines: Sequence[ReadLine], blocks: Sequence[Block]) -> dict[int | None, list[ReadLine]]:
    """The lines in each block, by the block's index; lines in no block under None. A line in several blocks counts for
    a block that was read, if one was, as pictures lie behind text; then for the block that holds most of it; then for
    the smallest."""
    found: dict[int | None, list[ReadLine]] = defaultdict(list)
    for line in lines:
        area = box_area(line.box)
        shares = ((shared_area(line.box, block.bbox) / area if area else 0.0) for block in blocks)
        inside = [
            (blocks[index].content is not None, round(share, 1), -box_area(blocks[index].bbox), index)
            for index, share in enumerate(shares)
            if share >= _MIN_INSIDE
        ]
        found[max(inside)[-1] if inside else None].append(line)
    return found


def paragraphs(lines: Sequence[ReadLine]) -> list[list[ReadLine]]:
    """The lines that were read, in groups: lines of a group are no further apart than a line is high."""
    groups: list[list[ReadLine]] = []
    for line in in_reading_order([line for line in lines if line.text], 0):
        x0, y0, x1, y1 = line.box
        margin = min(x1 - x0, y1 - y0)
        near = (x0 - 3 * margin, y0 - margin, x1 + 3 * margin, y1 + margin)
        group = next((group for group in groups if shared_area(near, around([one.box for one in group])) > 0), [])
        if not group:
            groups.append(group)
        group.append(line)
    return groups


def in_reading_order(lines: Sequence[ReadLine], quarter_turns: int) -> list[ReadLine]:
    """The lines row by row, as the page reads when it is turned so many times by 90° against the clock."""
    placed = sorted(((_turned(line.box, quarter_turns), line) for line in lines), key=lambda item: item[0][1])
    rows: list[list[tuple[Box, ReadLine]]] = []
    for box, line in placed:
        if rows and _is_in_row(box, rows[-1][-1][0]):
            rows[-1].append((box, line))
        else:
            rows.append([(box, line)])
    return [line for row in rows for _, line in sorted(row, key=lambda item: item[0][0])]


def turns_to_try(angle: int | None) -> tuple[int, ...]:
    """In how many quarter turns the lines of a block may be read, the likeliest first. angle: of the block."""
    return _TURNS.get(angle or 0, _TURNS[0])


def _turned(box: Box, quarter_turns: int) -> Box:
    x0, y0, x1, y1 = box
    for _ in range(quarter_turns):
        x0, y0, x1, y1 = y0, 1 - x1, y1, 1 - x0
    return x0, y0, x1, y1


def _is_in_row(box: Box, other: Box) -> bool:
    shared = min(box[3], other[3]) - max(box[1], other[1])
    return shared > _SAME_ROW * min(box[3] - box[1], other[3] - other[1])
