"""Pieces while they are made: they grow, block by block, and past the end of a page or column."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from batchocr.data import Box
from batchocr.documents.assembly import sentences
from batchocr.documents.assembly.document import Piece, Place
from batchocr.documents.assembly.item_marks import FIRST_ITEMS, MarkKind, item_mark
from batchocr.documents.assembly.joined_tables import TablePart, joined, next_part
from batchocr.documents.assembly.tables import table_rows
from batchocr.pages.kinds import LIST, Kind, kind_of
from batchocr.pages.protocol.markdown import NESTED, nesting
from batchocr.pages.searchable.letters import runs_leftwards


@dataclass(slots=True)
class Draft:
    """A piece in the making."""

    type: str
    kind: Kind
    texts: list[str]
    """Parts of the draft's text, to be joined as they are; empty for a piece that is not read, such as a figure."""
    places: list[Place]
    boxes: list[Box]
    """The boxes of the draft's places, on the page as it stands upright."""
    level: int | None = None
    tables: list[TablePart] = field(default_factory=list)
    """The parts of a table to which others were joined, the draft's own first; they then count in place of `texts`."""
    captions: list[Draft] = field(default_factory=list)
    footnotes: list[Draft] = field(default_factory=list)
    goes_on: bool = False
    """Whether the model says that the draft continues a text of an earlier page."""
    description: str | None = None
    """The description of a figure that was read."""
    is_ended: bool = False
    """Whether the draft's last block is a line that ends before its column does."""
    is_on_slide: bool = False
    """Whether the draft's page is wider than high."""
    words: sentences.Words = frozenset
    """The words of the document, by which hyphens are judged."""

    def become(self, type: str) -> None:
        """Be of this type from now on."""
        self.type, self.kind = type, kind_of(type)

    def is_open(self, other: Draft, *, fits: bool) -> bool:
        """Whether the text goes on with the other's. fits: as in `goes_on`. On a slide only prose in mid-sentence
        does."""
        begins = self.texts[0] if self.kind.is_paragraph else self.texts[-1]
        if self.is_on_slide and not (other.texts[0][0].islower() and sentences.has_inner_sentence(self.texts[-1])):
            return False
        return sentences.goes_on(self.texts[-1], other.texts[0], fits=fits, begins=begins)

    def go_on_with(self, other: Draft) -> None:
        """Append another's text to the last paragraph or item of this one."""
        self.texts[-1], space = sentences.between(self.texts[-1], other.texts[0], self.words)
        self._append(other, space)

    def add_items(self, other: Draft) -> None:
        """Append the items of another list to the items of this list."""
        self._append(other, "\n")

    def add_tag(self, number: Draft) -> bool:
        """Write a number to this formula; returns whether the draft `number` is one."""
        found = _FORMULA_NUMBER.fullmatch(number.texts[0])
        if found is None or "\\tag" in self.texts[-1]:
            return False
        latex = self.texts[-1].removesuffix("\\]").removesuffix("$$").rstrip()
        self.texts[-1] = f"{latex} \\tag{{{found[1]}}}{self.texts[-1][len(latex) :]}"
        self.places += number.places
        self.boxes += number.boxes
        return True

    def _append(self, other: Draft, between: str) -> None:
        self.texts += [between, *other.texts]
        self.places += other.places
        self.boxes += other.boxes
        self.is_ended = other.is_ended

    def piece(self) -> Piece:
        """The finished piece."""
        content = joined(self.tables) if len(self.tables) > 1 else "".join(self.texts)
        return Piece(
            type=self.type,
            content=content or None,
            places=tuple(self.places),
            level=self.level,
            captions=tuple(caption.piece() for caption in self.captions),
            footnotes=tuple(footnote.piece() for footnote in self.footnotes),
            description=self.description,
        )


_SAME_WIDTH: Final = 0.1
"""By how much the widths of two parts of a table may differ, as a share of the wider."""
_WIDER: Final = 1.2
"""How much wider the second half of a paragraph may be than the first, which may be indented."""
_FEW_LINES: Final = 150
"""The characters that are more than a line or two of a column."""
_LEAST_FILLED: Final = 0.5
"""How far down its page a table reaches at least if it goes on on the next page, as a share of the page."""
_LEAST_COLUMN: Final = 0.12
"""The least width of a column, as a share of the page: newspapers have six. What is narrower is in a drawing."""
_BESIDE: Final = 0.02
"""How much higher the top of the next column has to be than the last text, as a share of the page: texts that begin
side by side may be of a form."""
_SAME_HEIGHT: Final = 1.5
"""By which factor two lines may differ in height."""
_CONTINUED: Final = re.compile(
    r"\b(?:continued|continuation|cont['’]?d|cont\.|Fortsetzung|suite|continuación)|续表|續表|続き|[(（][续續続]",
    re.IGNORECASE,
)
_ITEMS_SEEN: Final = 20
"""Items at the end of a list by which its kinds of marks are known."""
_NUMBERED: Final = re.compile(r"\d+")
_FORMULA_NUMBER: Final = re.compile(r"[(（\[]?\s*([\w.'′–-]{1,12})\s*[)）\]]?")


def go_on_as_text(before: Draft, draft: Draft) -> bool:
    """Join the draft to the paragraph or list of the page before if it continues that; returns whether it does."""
    if before.type == draft.type == LIST:
        return _go_on_with_items(before, draft)
    if not (before.kind.goes_on and draft.kind.goes_on and before.type in (draft.type, LIST)):
        return False
    fits = before.kind.is_paragraph and draft.kind.is_paragraph and _fits(before, draft)
    if not draft.goes_on and (before.is_ended or not before.is_open(draft, fits=fits)):
        return False
    before.go_on_with(draft)
    return True


def go_on_in_page(before: Draft, draft: Draft) -> bool:
    """Join the draft to the paragraph or list before it on the page if it continues that; returns whether it does.

    MinerU's model of 2605 does not say so, though its blocks have `merge_prev` for it (MinerU #5181). Higher up in the
    next column what holds for pages does; beside and below, a text goes on only with a small letter. The second half of
    a paragraph is never wider than the first.
    """
    last, first = before.boxes[-1], draft.boxes[0]
    are_texts = before.kind.is_paragraph and draft.kind.is_paragraph
    if are_texts and not (_is_no_wider(before, draft) and _width(last) >= _LEAST_COLUMN):
        return False
    is_right = first[0] >= (last[0] + last[2]) / 2
    if is_right and first[1] < last[1] - _BESIDE:
        return go_on_as_text(before, draft)
    follows = is_right or first[1] >= last[1]
    if before.is_ended or not (are_texts and follows and sentences.may_be_parted(before.texts[-1], draft.texts[0])):
        return False
    if not before.is_open(draft, fits=False):
        return False
    before.go_on_with(draft)
    return True


def go_on_as_line(before: Draft, draft: Draft) -> bool:
    """Join the draft to the heading or caption above it if both are lines of one; returns whether it does.

    They are if they are of one type, one stands right below the other, both are as high, and begin or are centred
    alike.
    """
    (x0, y0, x1, y1), (left, top, right, bottom) = before.boxes[-1], draft.boxes[0]
    heights = sorted((y1 - y0, bottom - top))
    is_below = -0.5 * heights[0] <= top - y1 <= heights[0] and heights[1] <= _SAME_HEIGHT * heights[0]
    beginnings = abs(right - x1) if runs_leftwards(draft.texts[0]) else abs(left - x0)
    is_alike = min(beginnings, abs(left + right - x0 - x1) / 2) <= _BESIDE
    if not (
        before.type == draft.type and is_below and is_alike and sentences.are_one_line(before.texts[-1], draft.texts[0])
    ):
        return False
    before.go_on_with(draft)
    return True


def _fits(before: Draft, draft: Draft) -> bool:
    """Whether both pieces stand in columns of one width. A text of few lines may be narrower than its column."""
    is_narrow = _WIDER * _width(draft.boxes[0]) < _width(before.boxes[-1]) and len(draft.texts[0]) >= _FEW_LINES
    return _is_no_wider(before, draft) and not is_narrow


def _is_no_wider(before: Draft, draft: Draft) -> bool:
    return _width(draft.boxes[0]) <= _WIDER * _width(before.boxes[-1])


def _go_on_with_items(before: Draft, draft: Draft) -> bool:
    """Join the second list to the first if it has the rest of the last item, or further items; returns whether it
    does.

    Further items have the marks of others, and are nested as these are.
    """
    lines = [line for text in before.texts[-_ITEMS_SEEN:] for line in text.split("\n")[-_ITEMS_SEEN:]]
    depth_of: dict[MarkKind, int] = {kind: nesting(line) for line in lines if (kind := item_mark(line)[0])}
    if before.is_open(draft, fits=bool(depth_of)):
        before.go_on_with(draft)
        return True
    next_kind, next_name = item_mark(draft.texts[0])
    if before.is_on_slide or (depth_of and next_kind not in depth_of) or next_name in FIRST_ITEMS:
        return False
    deeper = 0
    for at, text in enumerate(draft.texts):
        kind, depth = item_mark(text)[0], nesting(text)
        deeper = depth_of[kind] - depth if kind in depth_of else deeper
        if text.strip():
            draft.texts[at] = NESTED * max(0, depth + deeper) + text.lstrip(" ")
    before.add_items(draft)
    return True


def go_on_as_footnote(before: Draft, draft: Draft) -> bool:
    """Join the draft to the last footnote of the page before if it continues that; returns whether it does."""
    if not sentences.goes_on(before.texts[-1], draft.texts[0], fits=False):
        return False
    before.go_on_with(draft)
    return True


def go_on_as_table(before: Draft, draft: Draft) -> bool:
    """Join the draft to the table of the page before if it continues that; returns whether it does.

    It does if it is as wide, and repeats the heading or has as many columns. A caption above it has to say that the
    table continues; one below it is the whole table's, unless both have one. A footnote below the first part ends the
    table, as does the free rest of a page, unless the heading is repeated. A table with a caption in its HTML is
    another: only its rows would be kept.
    """
    one, other = _width(before.boxes[-1]), _width(draft.boxes[0])
    if abs(one - other) > _SAME_WIDTH * max(one, other):
        return False
    above = (caption for caption in draft.captions if before.captions or caption.boxes[0][1] < draft.boxes[0][1])
    if not all(_says_continued(caption, before) for caption in above):
        return False
    if not before.tables and (first := table_rows(before.texts[0])) is not None:
        before.tables.append(TablePart(first))
    rest = table_rows(draft.texts[0])
    part = next_part(before.tables, rest) if before.tables and rest is not None else None
    is_ended = before.footnotes or before.boxes[-1][3] < _LEAST_FILLED
    if part is None or (is_ended and not part.num_repeated):
        return False
    before.tables.append(part)
    before.places += draft.places
    before.boxes += draft.boxes
    before.captions += draft.captions
    before.footnotes += draft.footnotes
    return True


def _says_continued(caption: Draft, before: Draft) -> bool:
    """Whether a table's caption says that the table continues, or repeats the caption of its first part."""
    text, firsts = caption.texts[0][: sentences.SEEN], [first.texts[0][: sentences.SEEN] for first in before.captions]
    number, numbers = _NUMBERED.search(text), [_NUMBERED.search(first) for first in firsts]
    is_other = number is not None and any(first and first[0] != number[0] for first in numbers)
    return (bool(_CONTINUED.search(text)) and not is_other) or text in firsts


def _width(box: Box) -> float:
    return box[2] - box[0]
