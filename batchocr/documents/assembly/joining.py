"""Pieces while they are made: they grow, block by block, and past the end of a page or column."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from batchocr.documents.assembly.document import Piece, Place
from batchocr.documents.assembly.tables import TableCells, joined, table_rows

_SEEN: Final = 300
"""Characters that are looked at on either side of a joint, and of a caption, however long the texts are."""

_LONG_ENOUGH: Final = 40
"""A text of at least this many characters may have been cut by the end of its column; a shorter one has ended there. A
Chinese or Japanese character counts as three."""

_HYPHENS: Final = ("-", "\u2010", "\u00ad")
_CJK: Final = re.compile(r"[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef]")
"""Han, kana and their punctuation. Not Hangul: Korean has spaces."""

_CLOSING: Final = re.compile(r"""(?:[)\]}"'”’»」』）】》*†‡\u00b9\u00b2\u00b3\u2070-\u2079]|\\\(\s*\^.{1,20}\\\))+$""")
"""What may stand behind the end of a sentence: brackets, quotation marks, the mark of a footnote."""
_SENTENCE_END: Final = (".", "!", "?", ":", "…", "。", "！", "？", "：")
_ABBREVIATION: Final = re.compile(
    r"(?:^|[\s(\[])(?:al|approx|ca|cf|e\. ?g|i\. ?e|z\. ?B|d\. ?h|bzw|Ch|Eqs?|Figs?|No|Nos|pp?|Refs?|Secs?|Tab|Vol|vs)"
    r"\.$"
)
_ITEM_MARK: Final = re.compile(
    r"(?P<bullet>[•●○◦▪■‣∙·–—*-])\s|\(?(?:(?P<number>\d{1,3})|(?P<letter>[A-Za-z]|[ivxIVX]{2,5}))[.)]\s"
    r"|\[(?P<reference>\d{1,4})\]|[(（]?(?P<chinese>[一二三四五六七八九十]{1,3})[、)）]|(?P<circled>[①-⑳])"
)


def item_mark(text: str) -> tuple[str | None, str]:
    """The kind of bullet or number that a list item begins with, and the bullet or number itself; (None, '') without
    one."""
    mark = _ITEM_MARK.match(text)
    return (mark.lastgroup, mark[mark.lastgroup]) if mark and mark.lastgroup else (None, "")


def goes_on(before: str, after: str, *, fits: bool) -> bool:
    """Whether the second text continues the first in mid-sentence, as where a page end cuts a paragraph in two.

    fits: whether both stand in columns of the same width. A second text that begins with a capital has to fit: not
    everything that ends without a full stop was cut.
    """
    tail, head = before[-_SEEN:].rstrip(), after[:_SEEN].lstrip()
    if not tail or not head or _ITEM_MARK.match(head):
        return False
    if tail.endswith(_HYPHENS) and tail[-2:-1].isalnum():
        return head[0].isalnum()
    tail = _CLOSING.sub("", tail)
    if tail.endswith(_SENTENCE_END):
        return bool(_ABBREVIATION.search(tail)) and (head[0].islower() or head[0].isdigit())
    if head[0].islower():
        return True
    return fits and len(tail) + 2 * len(_CJK.findall(tail)) >= _LONG_ENOUGH


@dataclass(slots=True)
class Draft:
    """A piece in the making."""

    type: str
    texts: list[str]
    """Parts of its text, to be joined as they are; empty for a piece that is not read, such as a figure."""
    places: list[Place]
    level: int | None = None
    tables: list[TableCells] = field(default_factory=list)
    """The tables that were joined to this one, itself among them; then they count in place of `texts`."""
    captions: list[Draft] = field(default_factory=list)
    footnotes: list[Draft] = field(default_factory=list)
    goes_on: bool = False
    """Whether the model says that it continues a text of an earlier page."""
    description: str | None = None
    """Of a figure that was read."""

    def go_on_with(self, other: Draft) -> None:
        """Append another's text to the last paragraph or item of this one. A hyphenated word becomes one word; Chinese
        and Japanese are joined without a space."""
        before, after = self.texts[-1], other.texts[0]
        if before.endswith(_HYPHENS) and before[-2:-1].isalnum():
            if before[-1] == "\u00ad" or (before[-2].isalpha() and after[0].islower()):
                self.texts[-1] = before[:-1]
            self._append(other, "")
        else:
            self._append(other, "" if _CJK.match(before[-1]) and _CJK.match(after[0]) else " ")

    def add_items(self, other: Draft) -> None:
        """Append another's items to those of this list."""
        self._append(other, "\n")

    def _append(self, other: Draft, between: str) -> None:
        self.texts += [between, *other.texts]
        self.places += other.places

    def piece(self) -> Piece:
        """The finished piece."""
        content = joined(self.tables) if self.tables else "".join(self.texts)
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
_WIDER: Final = 1.15
"""How much wider the second half of a paragraph may be than the first, which may be indented."""
_CONTINUED: Final = re.compile(
    r"\b(?:continued|continuation|cont['’]?d|cont\.|Fortsetzung|suite|continuación)|续|續|続", re.IGNORECASE
)
_FIRST_ITEMS: Final = ("1", "a", "i", "一")


def go_on_as_text(before: Draft, draft: Draft) -> bool:
    """Join the draft to the paragraph or list of the page before if it continues that; returns whether it does."""
    if before.type == draft.type == "list":
        return _go_on_with_items(before, draft)
    types = (before.type, draft.type)
    if types not in (("text", "text"), ("ref_text", "ref_text"), ("list", "text"), ("list", "ref_text")):
        return False
    fits = types == ("text", "text") and _width(draft.places[0]) <= _WIDER * _width(before.places[-1])
    if not (draft.goes_on or goes_on(before.texts[-1], draft.texts[0], fits=fits)):
        return False
    before.go_on_with(draft)
    return True


def go_on_as_list(before: Draft, draft: Draft) -> bool:
    """Join the draft to the list in the column before if it continues that; returns whether it does."""
    last, first = before.places[-1], draft.places[0]
    is_next_column = (
        first.page_index == last.page_index and last.bbox[2] <= first.bbox[0] and first.bbox[1] < last.bbox[1]
    )
    return before.type == draft.type == "list" and is_next_column and _go_on_with_items(before, draft)


def _go_on_with_items(before: Draft, draft: Draft) -> bool:
    """Join the second list to the first if it has the rest of the last item, or further items; returns whether it
    does."""
    (kind, _), (next_kind, next_name) = item_mark(before.texts[0]), item_mark(draft.texts[0])
    if goes_on(before.texts[-1], draft.texts[0], fits=kind is not None):
        before.go_on_with(draft)
        return True
    if kind != next_kind or next_name in _FIRST_ITEMS:
        return False
    before.add_items(draft)
    return True


def go_on_as_footnote(before: Draft, draft: Draft) -> bool:
    """Join the draft to the last footnote of the page before if it continues that; returns whether it does."""
    if not goes_on(before.texts[-1], draft.texts[0], fits=False):
        return False
    before.go_on_with(draft)
    return True


def go_on_as_table(before: Draft, draft: Draft) -> bool:
    """Join the draft to the table of the page before if it continues that; returns whether it does.

    It does if it has as many columns and is as wide, if no footnote stands below the first, and if its caption, should
    there be one, says that the table continues. A table with a caption in its HTML does not: only its rows would be
    kept.
    """
    one, other = _width(before.places[-1]), _width(draft.places[0])
    if before.footnotes or abs(one - other) > _SAME_WIDTH * max(one, other):
        return False
    if not all(_says_continued(caption, before) for caption in draft.captions):
        return False
    first = before.tables[0] if before.tables else table_rows(before.texts[0])
    rest = table_rows(draft.texts[0])
    if first is None or rest is None or first.num_columns != rest.num_columns or rest.says_more:
        return False
    before.tables = before.tables or [first]
    before.tables.append(rest)
    before.places += draft.places
    before.captions += draft.captions
    before.footnotes += draft.footnotes
    return True


def _says_continued(caption: Draft, before: Draft) -> bool:
    """Whether a table's caption says that the table continues, or repeats the caption of its first part."""
    text = caption.texts[0][:_SEEN]
    return bool(_CONTINUED.search(text)) or any(text == first.texts[0][:_SEEN] for first in before.captions)


def _width(place: Place) -> float:
    return place.bbox[2] - place.bbox[0]
