"""What the end of a page or column has cut: paragraphs, lists, footnotes and tables, and how they are joined again."""

from __future__ import annotations

import re
from typing import Final

from batchocr.documents.assembly.document import Place
from batchocr.documents.assembly.draft import Draft
from batchocr.documents.assembly.joining import goes_on, item_mark
from batchocr.documents.assembly.table_rows import table_rows

_SAME_WIDTH: Final = 0.1
"""By how much the widths of two parts of a table may differ, as a share of the wider."""
_WIDER: Final = 1.15
"""How much wider the second half of a paragraph may be than the first, which may be indented."""
_CONTINUED: Final = re.compile(
    r"\b(?:continued|continuation|cont['’]?d|cont\.|Fortsetzung|suite|continuación)|续|續|続", re.IGNORECASE
)
_SEEN: Final = 300
"""Characters of a caption that are looked at."""
_FIRST_ITEMS: Final = ("1", "a", "i", "一")


def go_on_as_text(before: Draft, draft: Draft) -> bool:
    """Whether a paragraph or list of the page before goes on with this one; if so, it has been joined to it."""
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
    """Whether a list goes on with this one in the next column of its page; if so, it has been joined to it."""
    last, first = before.places[-1], draft.places[0]
    is_next_column = (
        first.page_index == last.page_index and last.bbox[2] <= first.bbox[0] and first.bbox[1] < last.bbox[1]
    )
    return before.type == draft.type == "list" and is_next_column and _go_on_with_items(before, draft)


def _go_on_with_items(before: Draft, draft: Draft) -> bool:
    """Whether the second list has the rest of the first one's last item, or further items; then they are joined."""
    (kind, _), (next_kind, next_name) = item_mark(before.texts[0]), item_mark(draft.texts[0])
    if goes_on(before.texts[-1], draft.texts[0], fits=kind is not None):
        before.go_on_with(draft)
        return True
    if kind != next_kind or next_name in _FIRST_ITEMS:
        return False
    before.add_items(draft)
    return True


def go_on_as_footnote(before: Draft, draft: Draft) -> bool:
    """Whether the last footnote of the page before goes on with this one; if so, it has been joined to it."""
    if not goes_on(before.texts[-1], draft.texts[0], fits=False):
        return False
    before.go_on_with(draft)
    return True


def go_on_as_table(before: Draft, draft: Draft) -> bool:
    """Whether a table of the page before goes on with this one; if so, it has been joined to it.

    It has as many columns and is as wide, nothing stands below the first, and the second has no caption, or one that
    says that it continues; none within its HTML, of which only the rows would be left.
    """
    one, other = _width(before.places[-1]), _width(draft.places[0])
    if before.footnotes or abs(one - other) > _SAME_WIDTH * max(one, other):
        return False
    if not all(_says_continued(caption, before) for caption in draft.captions):
        return False
    first = before.rows or table_rows(before.texts[0])
    rest = table_rows(draft.texts[0])
    if first is None or rest is None or first.num_columns != rest.num_columns or rest.says_more:
        return False
    first.add(rest)
    before.rows = first
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
