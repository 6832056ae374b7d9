"""What several formats need of a piece: its words in one form, and which part of them stands where."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from batchocr.data import Failure, PageResult
from batchocr.documents.assembly.document import AssembledDocument, Piece, Place
from batchocr.documents.export.figures import Figures
from batchocr.documents.export.refusal import FileRefusedError
from batchocr.pages.protocol.markdown import INLINE_FORMULA, nesting
from batchocr.pages.searchable.placed_text import PageText

_ITEM: Final = re.compile(
    r"(?P<bullet>[•●○◦▪■‣∙·–—*-])\s+|(?P<number>\(?(?:\d{1,4}|[A-Za-z]|[ivxIVX]{2,6})[.)]|\[\d{1,4}\])\s+"
)


def with_dollars(text: str) -> str:
    """The text with its formulas between dollar signs, as most programs expect them."""
    return INLINE_FORMULA.sub(lambda formula: f"${formula[1].strip()}$", text)


def missing_figure_in_words(piece: Piece, failure: Failure) -> tuple[str, str]:
    """In words: what is missing here, and why."""
    page = piece.places[0].page_index + 1
    return f"Here is a figure of page {page} that could not be cut out", " ".join(failure.message.split())


def placed_pages(document: AssembledDocument, figures: Figures) -> Iterator[PageText]:
    """The pages of a document with their words. Raises FileRefusedError if the document has no pages, as when it could
    not be opened, or if its file cannot be looked at."""
    if (whole := next((row for row in document.rows if row.page_index is None), None)) is not None:
        raise FileRefusedError(whole.error_message or "it has no pages")
    return figures.text.pages()


def list_items(content: str) -> list[tuple[int, str, str]]:
    """The items of a list: how deep each is nested, its number, '' if it has a bullet or nothing, and its text.

    A line without bullet or number belongs to the item before, if that has one.
    """
    items: list[tuple[int, str, str]] = []
    is_marked = False
    for line in content.split("\n"):
        text = line.strip()
        mark = _ITEM.match(text)
        if not text:
            continue
        if mark is None and is_marked:
            depth, number, before = items[-1]
            items[-1] = (depth, number, f"{before} {text}")
            continue
        is_marked = is_marked or mark is not None
        depth = nesting(line)
        items.append((depth, mark["number"] or "", text[mark.end() :]) if mark else (depth, "", text))
    return items


@dataclass(frozen=True, slots=True)
class Share:
    """The part of a piece's text that stands in a place."""

    place: Place
    start: float
    """Where the part begins, as a share of the text."""
    end: float
    """Where the part ends, as a share of the text."""


def shares_of(piece: Piece, rows: Mapping[int | None, PageResult]) -> list[Share]:
    """The places of the piece, each with its share of the text, by the length of the text there. rows: by page."""
    if len(piece.places) == 1:
        return [Share(piece.places[0], 0.0, 1.0)]
    lengths = [len(rows[place.page_index].blocks[place.block].content or "") for place in piece.places]
    total = sum(lengths) or 1
    ends = [length / total for length in accumulate(lengths)]
    return [Share(place, start, end) for place, start, end in zip(piece.places, [0.0, *ends[:-1]], ends, strict=True)]
