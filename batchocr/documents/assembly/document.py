"""What a document is once its pages are put together: pieces in reading order, which know their pages and boxes."""

from __future__ import annotations

from dataclasses import dataclass

from batchocr.data import PageResult, Status


@dataclass(frozen=True, slots=True)
class Place:
    """Where on a page something stands.

    bbox: as in Block, of a whole block. block: its index in the `blocks` of the page's row.
    """

    page_index: int
    bbox: tuple[float, float, float, float]
    block: int


@dataclass(frozen=True, slots=True)
class Piece:
    """A heading, paragraph, list, table, formula, figure, …, over as many columns and pages as it takes.

    type: MinerU's, of the first of its blocks: `text`, `title`, `table`, `equation`, `image`, `chart`, `code`, `list`,
    …; a footnote of the page that belongs to no figure is a piece of its own. content: raw, as in Block.content, of all
    its blocks; None for one that is not read. places: one for each of its blocks, at least one. level: of a heading, 1
    is the highest; None for all others. captions, footnotes: of a figure, table or code block, in reading order; these
    have none of their own.
    """

    type: str
    content: str | None
    places: tuple[Place, ...]
    level: int | None = None
    captions: tuple[Piece, ...] = ()
    footnotes: tuple[Piece, ...] = ()


@dataclass(frozen=True, slots=True)
class Gap:
    """A mark that something is missing here. page_index: None if nothing of the document could be read.

    Of a degraded page it stands before what was read of the page.
    """

    page_index: int | None
    status: Status
    reason: str


@dataclass(frozen=True, slots=True)
class PageEnd:
    """The end of a page: all pieces that begin on it stand before."""

    page_index: int


@dataclass(frozen=True, slots=True)
class AssembledDocument:
    """A document, put together from its rows.

    doc_id, page_count: None if the document could not be read. parts: in reading order; a PageEnd follows the last part
    that begins on its page, and there is one for each row of a page. Page headers, footers, page numbers and marginal
    text are in `rows` only.
    """

    source: str
    doc_id: str | None
    page_count: int | None
    rows: tuple[PageResult, ...]
    parts: tuple[Piece | Gap | PageEnd, ...]
