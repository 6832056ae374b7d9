"""A page's blocks as drafts of pieces: what belongs together on the page is together, in reading order."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from statistics import median
from typing import Final

from batchocr.data import Block, PageResult, shared_area
from batchocr.documents.assembly.document import Place
from batchocr.documents.assembly.item_marks import item_mark
from batchocr.documents.assembly.joining import Draft, go_on_as_line
from batchocr.documents.assembly.sentences import Words
from batchocr.pages.kinds import CONTENTS, HOSTS, LIST, Role, kind_of
from batchocr.pages.protocol.markdown import NESTED
from batchocr.pages.turning import turned_box

_NUMBER: Final = r"\s*(?:\d|[A-Z]\W|[IVXL]+\b)"
_NAMED: Final[Sequence[tuple[Role, re.Pattern[str]]]] = (
    ("table", re.compile(rf"\W*(?:(?i:tab(?:le|elle|leau|la|ela|ella|\.)){_NUMBER}|表\s*\d)")),
    ("figure", re.compile(rf"\W*(?:(?i:fig(?:ur[ae]?|\.)|abb(?:ildung|\.)){_NUMBER}|[图圖図]\s*\d)")),
)
"""How a caption says itself what it belongs to; that counts in place of its type: MinerU's model calls nearly every
caption of a table `image_caption` (all of 174 on 3,696 pages of its answers)."""

_NUM_NEAR: Final = 8
"""How many blocks before and after a caption, in reading order, it is compared with: the time grows no faster than the
number of blocks."""
_FARTHEST: Final = 0.25
"""The largest distance between a figure and its caption or footnote, as a share of the page."""
_WRONG_SIDE: Final = 0.02
"""Added to the distance of a caption on the unusual side: a table's caption usually stands above it, a figure's caption
and every footnote below."""
_OTHER_KIND: Final = 0.05
"""Added to the distance of what is not of the kind that the caption or footnote names."""
_INSIDE: Final = 0.8
"""A block is part of a container if at least this share of its area lies in it."""

_ENTRY: Final = re.compile(r"\S[\s.·…]+(\d{1,4})$")
"""The page at the end of an entry in a table of contents."""
_LEAST_ENTRIES: Final = 3

_INDENT: Final = 0.015
"""How much further right an item begins that is part of the one above, as a share of the page."""
_TWO_LINES: Final = 1.6
"""Height of a text of two lines, as a multiple of one of one line."""
_RAGGED: Final = 0.03
"""How far from the end of its column a line may end that another follows, as a share of the page."""


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


def _near(indices: Sequence[int], index: int) -> Iterator[int]:
    """Yield the indices nearest to `index` on either side. indices: ascending."""
    middle = bisect_left(indices, index)
    yield from indices[max(0, middle - _NUM_NEAR) : middle + _NUM_NEAR]


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


def page_drafts(page_index: int, row: PageResult, words: Words) -> tuple[list[Draft], list[Draft]]:
    """The pieces of a page in reading order, and the footnotes at its foot. words: of the document.

    MinerU's lists and groups of pictures are boxes around other blocks and say nothing themselves: of a list, its items
    are its lines; a group stands for itself only if it has no pictures.
    """
    blocks = row.blocks
    if row.orientation:
        blocks = tuple(replace(block, bbox=turned_box(block.bbox, row.orientation)) for block in blocks)
    places = [Place(page_index, block.bbox, index) for index, block in enumerate(row.blocks)]
    drafts = {index: _draft(places[index], block, words) for index, block in enumerate(blocks) if _is_shown(block)}
    sides = (row.width or 0, row.height or 0)
    for draft in drafts.values():
        draft.is_on_slide = sides[0] > sides[1] if row.orientation in (None, 0, 180) else sides[1] > sides[0]
    list_of = choose_containers(blocks, "list")
    group_of = choose_containers(blocks, "figure")
    for index in {*list_of.values(), *group_of.values()}:
        drafts.pop(index, None)
    _number_formulas(drafts)
    _nest_items([drafts[index] for index in drafts if index in list_of])
    hosts = choose_hosts(blocks, [index for index in drafts if drafts[index].kind.role in HOSTS])
    body: list[Draft] = []
    page_footnotes: list[Draft] = []
    last_text: Draft | None = None
    list_drafts: dict[int, Draft] = {}
    for index, draft in drafts.items():
        block = blocks[index]
        if index in hosts:
            host = drafts[hosts[index]]
            notes = host.captions if draft.kind.role == "caption" else host.footnotes
            if not (notes and go_on_as_line(notes[-1], draft)):
                notes.append(draft)
        elif draft.kind.role == "footnote" and not draft.kind.of:
            page_footnotes.append(draft)
        elif draft.kind.is_paragraph and block.merge_prev and last_text is not None:
            last_text.go_on_with(draft)
        elif index in list_of:
            last_text = _add_item(body, draft, list_drafts, list_of[index])
        elif not (draft.kind.role == "heading" and body and go_on_as_line(body[-1], draft)):
            draft.goes_on = block.merge_prev
            body.append(draft)
            last_text = draft if draft.kind.is_paragraph else last_text
    body = _with_contents(body)
    _find_ended([draft for draft in body if draft.kind.is_paragraph])
    return body, page_footnotes


def _number_formulas(drafts: dict[int, Draft]) -> None:
    """Give each formula the number that stands beside it."""
    formulas = [index for index, draft in drafts.items() if draft.kind.role == "formula"]
    for index in [index for index, draft in drafts.items() if draft.kind.role == "formula number"]:
        x0, y0, _, y1 = drafts[index].boxes[0]
        beside = [
            drafts[near]
            for near in _near(formulas, index)
            if drafts[near].boxes[0][1] <= (y0 + y1) / 2 <= drafts[near].boxes[0][3]
        ]
        nearest = min(beside, key=lambda formula: abs(x0 - formula.boxes[0][2]), default=None)
        if nearest is not None and nearest.add_tag(drafts[index]):
            del drafts[index]


def _nest_items(items: Sequence[Draft]) -> None:
    """Write each item of the page's lists on one line, indented as it stands below others."""
    levels: list[float] = []  # where the items begin that this one may be part of
    bottom = 0.0
    for item in items:
        x0, y0, _, y1 = item.boxes[0]
        text = " ".join(item.texts[0].split())
        if y0 < bottom - _INDENT:
            levels.clear()  # another column, or list
        while levels and x0 < levels[-1] - _INDENT:
            levels.pop()
        if not levels or (x0 > levels[-1] + _INDENT and item_mark(text)[0]):
            levels.append(x0)
        elif x0 <= levels[-1] + _INDENT:
            levels[-1] = x0  # of a sheet that lies askew
        item.texts = [NESTED * (len(levels) - 1) + text]
        bottom = y1


def _with_contents(body: Sequence[Draft]) -> list[Draft]:
    """The pieces, with headings that end in page numbers, one below the other, as what they are: a table of contents.

    Numbers that count the headings themselves are none of pages.
    """
    made: list[Draft] = []
    for is_entry, run in groupby(body, key=lambda draft: _page_named(draft) > 0):
        first, *others = run
        pages = [_page_named(draft) for draft in (first, *others)]
        made.append(first)
        if is_entry and len(pages) >= _LEAST_ENTRIES and pages == sorted(pages) and pages[-1] >= pages[0] + len(pages):
            first.type = CONTENTS
            for draft in others:
                first.add_items(draft)
        else:
            made += others
    return made


def _page_named(draft: Draft) -> int:
    """The page that a heading ends with; 0 for none."""
    entry = _ENTRY.search(draft.texts[-1]) if draft.kind.role == "heading" else None
    return int(entry[1]) if entry else 0


def _find_ended(texts: Sequence[Draft]) -> None:
    """Mark the texts of a line that ends before its column does: no other line follows.

    The column ends where most of the texts do that stand above or below. A text of several lines is as wide as it.
    """
    boxes = [draft.boxes[-1] for draft in texts]
    least_height = min((y1 - y0 for _, y0, _, y1 in boxes), default=0.0)
    for at, (x0, y0, x1, y1) in enumerate(boxes):
        if y1 - y0 < _TWO_LINES * least_height:
            near = boxes[max(0, at - _NUM_NEAR) : at + _NUM_NEAR]
            beside = [box[2] for box in near if box[0] <= x1 and x0 <= box[2]] or [x1]  # none if its sides are swapped
            texts[at].is_ended = x1 < median(beside) - _RAGGED


def _is_shown(block: Block) -> bool:
    """Whether the block has anything to show."""
    role = kind_of(block.type).role
    if role == "figure":
        return True
    return role != "furniture" and bool(block.content and block.content.strip())


def _draft(place: Place, block: Block, words: Words) -> Draft:
    """The piece of a block, which is as it stands on the upright page; place: its own."""
    content = (block.content or "").strip()
    kind = kind_of(block.type)
    is_figure = kind.role == "figure"
    return Draft(
        type=kind.mineru if is_figure else block.type,  # a group of pictures is one
        texts=[content] if content else [],
        places=[place],
        boxes=[block.bbox],
        words=words,
        description=block.description if is_figure else None,
    )


def _add_item(body: list[Draft], item: Draft, list_drafts: dict[int, Draft], container: int) -> Draft:
    """Add an item to its list, and return the list; begin it anew if something else has come between."""
    begun = list_drafts.get(container)
    if begun is not None and body[-1] is begun:
        begun.add_items(item)
        return begun
    item.type = LIST
    list_drafts[container] = item
    body.append(item)
    return item
