"""What each type of block is, and how it is written. But for MinerU's protocol and files no module asks for a name.

Sources: `BlockType` of mineru-vl-utils; the names of MinerU's second content list, of Docling's labels, of hOCR's
classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

Role = Literal[
    "text", "heading", "list", "table", "formula", "number", "code", "figure", "caption", "footnote", "furniture"
]
"""The role of a block on the page. number: of a formula."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What a type of block is."""

    role: Role
    """The role as which all formats write the block. The lines of a list are items, those of code stay as they are.
    Furniture belongs to the sheet of paper, and is left out of the text."""
    level: int = 1
    """The level of a heading of which nothing else tells it."""
    of: frozenset[Role] = frozenset()
    """The roles of what a caption or a footnote of this kind may belong to; empty for a footnote of the page."""
    holds: frozenset[str] = frozenset()
    """Types of blocks around which a block of this kind is a box; then it says nothing itself."""
    goes_on: bool = False
    """Whether a page or a column may cut a block of this kind in two."""
    is_as_printed: bool = True
    """Whether a block's content is the letters that stand on the page, lines joined."""
    has_formulas: bool = False
    """Whether some of what is code is formulas."""
    mineru: str = "paragraph"
    """What MinerU calls a block of this kind in its second content list."""
    docling: str = "text"
    """Docling's label for a block of this kind, where it is written as text."""
    hocr: str = "ocr_line"
    """hOCR's class for the lines of a block of this kind."""
    html: str = ""
    """The class of a block's element in HTML."""

    @property
    def is_paragraph(self) -> bool:
        """Whether a block of this kind is running text, which a page or a column may cut."""
        return self.role == "text" and self.goes_on


FLOATS: Final = frozenset[Role](("figure", "table", "code", "caption", "footnote"))
"""What may stand between the two halves of a paragraph."""

LIST: Final = "list"
"""The type of a list that is put together of its items."""
CONTENTS: Final = "index"
"""The type of a table of contents that is put together of its entries."""
HOSTS: Final = frozenset[Role](("figure", "table", "code"))
"""What captions and footnotes belong to."""


def _heading(level: int, *, docling: str = "section_header") -> Kind:
    return Kind("heading", level, mineru="title", docling=docling, hocr="ocr_header")


def _caption(*of: Role) -> Kind:
    return Kind("caption", of=frozenset(of) or HOSTS, docling="caption", hocr="ocr_caption", html="caption")


def _footnote(*of: Role) -> Kind:
    return Kind("footnote", of=frozenset(of) or HOSTS, docling="footnote", html="footnote")


_FORMULA: Final = Kind("formula", is_as_printed=False, mineru="equation_interline", docling="formula")
_KINDS: Final[Mapping[str, Kind]] = {
    "text": Kind("text", goes_on=True),
    "list_item": Kind("text"),
    "phonetic": Kind("text", is_as_printed=False),
    "unknown": Kind("text", is_as_printed=False),
    "title": _heading(1),
    "doc_title": _heading(1, docling="title"),
    "paragraph_title": _heading(2),
    LIST: Kind(
        "list", goes_on=True, holds=frozenset(("text", "list_item", "ref_text")), mineru="list", docling="list_item"
    ),
    "ref_text": Kind("list", goes_on=True, mineru="list", docling="reference"),
    CONTENTS: Kind("list", is_as_printed=False, mineru="index"),
    "table": Kind("table", is_as_printed=False, mineru="table", html="wide"),
    **dict.fromkeys(("equation", "equation_block"), _FORMULA),
    "formula_number": Kind("number", is_as_printed=False),
    "code": Kind("code", is_as_printed=False, mineru="code"),
    "algorithm": Kind("code", is_as_printed=False, has_formulas=True, mineru="algorithm"),
    "image": Kind("figure", is_as_printed=False, mineru="image"),
    "chart": Kind("figure", is_as_printed=False, mineru="chart"),
    "image_block": Kind("figure", holds=frozenset(("image", "chart")), is_as_printed=False, mineru="image"),
    "image_caption": _caption("figure"),
    "table_caption": _caption("table"),
    "code_caption": _caption("code"),
    "caption": _caption(),
    "image_footnote": _footnote("figure"),
    "table_footnote": _footnote("table"),
    "footnote": _footnote(),
    "page_footnote": Kind("footnote", mineru="page_footnote", docling="footnote", html="footnote"),
    "header": Kind("furniture", mineru="page_header", docling="page_header"),
    "footer": Kind("furniture", mineru="page_footer", docling="page_footer"),
    "page_number": Kind("furniture", mineru="page_number", docling="page_footer"),
    "aside_text": Kind("furniture", mineru="page_aside_text"),
}

_UNKNOWN: Final = _KINDS["unknown"]


def kind_of(type: str) -> Kind:
    """The kind of a type of block; a type that is not known is text, but text of which the PDF's own letters are never
    taken."""
    return _KINDS.get(type, _UNKNOWN)
