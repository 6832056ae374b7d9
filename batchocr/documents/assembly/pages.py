"""A page's blocks as drafts of pieces: what belongs together on the page is together, in reading order."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from statistics import median
from typing import Final

from batchocr.data import Block, PageResult
from batchocr.documents.assembly.belonging import NUM_NEAR, choose_containers, choose_formulas, choose_hosts
from batchocr.documents.assembly.document import Place
from batchocr.documents.assembly.joining import Draft, go_on_as_line
from batchocr.documents.assembly.lists import OpenList
from batchocr.documents.assembly.sentences import Words
from batchocr.pages.kinds import CONTENTS, HOSTS, kind_of
from batchocr.pages.turning import turned_box

_ENTRY: Final = re.compile(r"\S[\s.·…]+(?:(\d{1,3})|[ivxl]{1,6})$")
"""The page at the end of an entry in a table of contents."""
_LEAST_ENTRIES: Final = 3
_LARGEST_GAP: Final = 0.06
"""The largest gap between entries of a table of contents, as a share of the page."""

_TWO_LINES: Final = 1.6
"""Height of a text of two lines, as a multiple of one of one line."""
_RAGGED: Final = 0.03
"""How far from the end of its column a line may end that another line follows, as a share of the page."""


def page_drafts(page_index: int, row: PageResult, words: Words) -> tuple[list[Draft], list[Draft]]:
    """The pieces of a page in reading order, and the footnotes at its foot. words: of the document.

    MinerU's lists and groups of pictures are boxes around other blocks and say nothing themselves: of a list, its items
    are its lines; a group stands for itself only if it has no pictures.
    """
    blocks = row.blocks
    if row.orientation:
        blocks = tuple(replace(block, bbox=turned_box(block.bbox, row.orientation)) for block in blocks)
    places = [Place(page_index, block.bbox, index) for index, block in enumerate(row.blocks)]
    width, height = (row.width or 0, row.height or 0)[:: -1 if row.orientation in (90, 270) else 1]
    drafts = {
        index: _draft(places[index], block, words, is_on_slide=width > height)
        for index, block in enumerate(blocks)
        if _is_shown(block)
    }
    list_of = choose_containers(blocks, "list")
    group_of = choose_containers(blocks, "figure")
    for index in {*list_of.values(), *group_of.values()}:
        drafts.pop(index, None)
    for number, formula in choose_formulas(blocks).items():
        if number in drafts and formula in drafts and drafts[formula].add_tag(drafts[number]):
            del drafts[number]
    hosts = choose_hosts(blocks, [index for index in drafts if drafts[index].kind.role in HOSTS])
    body: list[Draft] = []
    page_footnotes: list[Draft] = []
    last_text: Draft | None = None
    lists: dict[int, OpenList] = {}
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
            begun = lists.get(list_of[index])
            if begun is not None and body[-1] is begun.draft:
                begun.add(draft)
            else:  # the first, or something else has come between
                begun = lists[list_of[index]] = OpenList.begin(draft)
                body.append(draft)
            last_text = begun.draft
        elif not (draft.kind.role == "heading" and body and go_on_as_line(body[-1], draft)):
            draft.goes_on = block.merge_prev
            body.append(draft)
            last_text = draft if draft.kind.is_paragraph else last_text
    body = _with_contents(body)
    _find_ended([draft for draft in body if draft.kind.is_paragraph])
    return body, page_footnotes


def _with_contents(body: Sequence[Draft]) -> list[Draft]:
    """The pieces, but with headings that end in page numbers, one right below the other, turned into a table of
    contents.

    Numbers that count the headings themselves are none of pages.
    """
    made: list[Draft] = []
    for _, run in groupby(body, key=lambda draft: _page_named(draft) is not None):
        first, *others = run
        pages = [page for draft in (first, *others) if (page := _page_named(draft)) is not None]
        is_close = all(_is_right_below(one, other) for one, other in pairwise((first, *others)))
        made.append(first)
        if is_close and len(pages) >= _LEAST_ENTRIES and pages == sorted(pages) and pages[-1] >= pages[0] + len(pages):
            first.become(CONTENTS)
            for draft in others:
                first.add_items(draft)
        else:
            made += others
    return made


def _page_named(draft: Draft) -> int | None:
    """The page that a heading ends with, 0 for a Roman number."""
    entry = _ENTRY.search(draft.texts[-1]) if draft.kind.role == "heading" else None
    return int(entry[1] or 0) if entry else None


def _is_right_below(above: Draft, below: Draft) -> bool:
    (_, top, _, bottom), (_, y, _, _) = above.boxes[-1], below.boxes[0]
    return top < y <= bottom + _LARGEST_GAP


def _find_ended(texts: Sequence[Draft]) -> None:
    """Mark the texts of a line that ends before its column does: no other line follows.

    The column ends where most of the texts do that stand above or below. A text of several lines is as wide as it.
    """
    boxes = [draft.boxes[-1] for draft in texts]
    least_height = min((y1 - y0 for _, y0, _, y1 in boxes), default=0.0)
    for at, (x0, y0, x1, y1) in enumerate(boxes):
        if y1 - y0 < _TWO_LINES * least_height:
            near = boxes[max(0, at - NUM_NEAR) : at + NUM_NEAR]
            beside = [box[2] for box in near if box[0] <= x1 and x0 <= box[2]] or [x1]  # none if its sides are swapped
            texts[at].is_ended = x1 < median(beside) - _RAGGED


def _is_shown(block: Block) -> bool:
    """Whether the block has anything to show."""
    role = kind_of(block.type).role
    if role == "figure":
        return True
    return role != "furniture" and bool(block.content and block.content.strip())


def _draft(place: Place, block: Block, words: Words, *, is_on_slide: bool) -> Draft:
    """The piece of a block. block: as it stands on the upright page. place: the block's own place."""
    content = (block.content or "").strip()
    kind = kind_of(block.type)
    is_figure = kind.role == "figure"
    return Draft(
        type=kind.mineru if is_figure else block.type,  # a group of pictures is one
        kind=kind,
        texts=[content] if content else [],
        places=[place],
        boxes=[block.bbox],
        words=words,
        is_on_slide=is_on_slide,
        description=block.description if is_figure else None,
    )
