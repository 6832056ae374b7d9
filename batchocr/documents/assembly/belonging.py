"""What belongs to what on a page: captions and footnotes to figures, items to lists, numbers to formulas."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from batchocr.data import Block, shared_area
from batchocr.pages.kinds import Role, kind_of

_NUMBER: Final = r"\s*(?:\d|[A-Z]\W|[IVXL]+\b)"
_NAMED: Final[Sequence[tuple[Role, re.Pattern[str]]]] = (
    ("table", re.compile(rf"\W*(?:(?i:tab(?:le|elle|leau|la|ela|ella|\.)){_NUMBER}|表\s*\d)")),
    ("figure", re.compile(rf"\W*(?:(?i:fig(?:ur[ae]?|\.)|abb(?:ildung|\.)){_NUMBER}|[图圖図]\s*\d)")),
)
"""How a caption says itself what it belongs to; that counts in place of its type: MinerU's model calls nearly every
caption of a table `image_caption` (all of 174 on 3,696 pages of its answers)."""

NUM_NEAR: Final = 8
"""How many blocks before and after a caption, in reading order, it is compared with: the time grows no faster than the
number of blocks."""
_FARTHEST: Final = 0.25
"""The largest distance between a figure and its caption or footnote, as a share of the page."""
_WRONG_SIDE: Final = 0.02
"""What is added to the distance of a caption on the unusual side: a table's caption usually stands above it, a figure's
caption and every footnote below."""
_OTHER_KIND: Final = 0.05
"""What is added to the distance of a block that is not of the kind that the caption or footnote names."""
_INSIDE: Final = 0.8
"""The least share of a block's area that lies in a container if the block is part of it."""


def choose_hosts(blocks: Sequence[Block], hosts: Collection[int]) -> dict[int, int]:
    """For each caption or footnote the figure, table or code block that it belongs to, as indices of blocks.

    hosts: those to choose from. It is the nearest of any kind; one of another kind than is named counts as farther. A
    caption or footnote that is far from all is left out.
    """
    of_all = sorted(hosts)
    chosen = {}
    for index, block in enumerate(blocks):
        if kind_of(block.type).of:
            named = _roles_named(block)
            distances = [(_distance(block, blocks[host], named), host) for host in _near(of_all, index)]
            distance, host = min(distances, default=(1.0, -1))
            if distance <= _FARTHEST:
                chosen[index] = host
    return chosen


def _roles_named(block: Block) -> frozenset[Role]:
    """What a caption or footnote says it belongs to."""
    named = (frozenset([role]) for role, words in _NAMED if words.match(block.content or ""))
    return next(named, kind_of(block.type).of)


def choose_containers(blocks: Sequence[Block], role: Role) -> dict[int, int]:
    """For each block that a block of this role may hold, the first such block that it lies in, as indices."""
    kinds = [kind_of(block.type) for block in blocks]
    containers = [index for index, kind in enumerate(kinds) if kind.role == role and kind.holds]
    chosen = {}
    for index, block in enumerate(blocks):
        if containers:
            around = (
                near
                for near in _near(containers, index)
                if block.type in kinds[near].holds and _share_inside(block, blocks[near]) >= _INSIDE
            )
            if (first := next(around, None)) is not None:
                chosen[index] = first
    return chosen


def choose_formulas(blocks: Sequence[Block]) -> dict[int, int]:
    """For each number of a formula the nearest formula that it stands beside, as indices of blocks."""
    formulas = [index for index, block in enumerate(blocks) if block.content and kind_of(block.type).role == "formula"]
    formulas.sort(key=lambda index: blocks[index].bbox[1])
    tops = [blocks[index].bbox[1] for index in formulas]
    chosen = {}
    for index, block in enumerate(blocks):
        if kind_of(block.type).role == "number":
            x0, y0, x1, y1 = block.bbox
            middle = (y0 + y1) / 2
            end = bisect_right(tops, middle)
            above = formulas[max(0, end - NUM_NEAR) : end]
            beside = [
                (min(abs(x0 - blocks[near].bbox[2]), abs(blocks[near].bbox[0] - x1)), near)
                for near in above
                if blocks[near].bbox[3] >= middle
            ]
            if beside:
                chosen[index] = min(beside)[1]
    return chosen


def _near(indices: Sequence[int], index: int) -> Iterator[int]:
    """Yield the indices nearest to `index` on either side. indices: ascending."""
    middle = bisect_left(indices, index)
    yield from indices[max(0, middle - NUM_NEAR) : middle + NUM_NEAR]


def _distance(block: Block, host: Block, named: Collection[Role]) -> float:
    """How far a caption or footnote is from a figure, table or code block, as a share of the page. named: what it
    says it belongs to."""
    x0, y0, x1, y1 = block.bbox
    left, top, right, bottom = host.bbox
    apart = max(0.0, x0 - right, left - x1) + max(0.0, y0 - bottom, top - y1)
    is_above = y0 + y1 < top + bottom
    role = kind_of(host.type).role
    belongs_above = kind_of(block.type).role == "caption" and role == "table"
    side = 0.0 if is_above == belongs_above else _WRONG_SIDE
    return apart + side + (0.0 if role in named else _OTHER_KIND)


def _share_inside(block: Block, container: Block) -> float:
    x0, y0, x1, y1 = block.bbox
    if (area := (x1 - x0) * (y1 - y0)) > 0:
        return shared_area(block.bbox, container.bbox) / area
    left, top, right, bottom = container.bbox
    return float(left <= x0 <= right and top <= y0 <= bottom)
