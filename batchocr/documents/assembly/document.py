"""What a document is once its pages are put together: pieces in reading order, which know their pages and boxes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from batchocr.data import Box, PageResult, Status
from batchocr.pages.kinds import Kind, kind_of
from batchocr.pages.protocol.markdown import block_markdown, figure_markdown


@dataclass(frozen=True, slots=True)
class Place:
    """Where on a page something stands."""

    page_index: int
    bbox: Box
    """The box of the whole block, as in Block."""
    block: int
    """The block's index in the `blocks` of the page's row."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A heading, paragraph, list, table, formula, figure, …, over as many columns and pages as it takes."""

    type: str
    """The type of the first of the piece's blocks, as MinerU calls it: `text`, `title`, `table`, `equation`, `image`,
    `chart`, `code`, `list`, …; a footnote of the page that belongs to no figure is a piece of its own."""
    content: str | None
    """The raw content of all blocks of the piece, as in Block.content; None if the piece is not read."""
    places: tuple[Place, ...]
    """The places of the piece, one for each of its blocks, at least one."""
    level: int | None = None
    """The level of a heading; 1 is the highest. None for all other pieces."""
    captions: tuple[Piece, ...] = ()
    """The captions of a figure, table or code block, in reading order; captions have none of their own."""
    footnotes: tuple[Piece, ...] = ()
    """The footnotes of a figure, table or code block, in reading order; footnotes have none of their own."""
    description: str | None = None
    """The description of a figure that was read, as in Block."""

    @property
    def kind(self) -> Kind:
        return kind_of(self.type)

    @property
    def with_captions(self) -> list[Piece]:
        """The piece among its captions and footnotes, in reading order."""
        around = [*self.captions, self, *self.footnotes]
        return sorted(around, key=lambda each: (each.places[0].page_index, each.places[0].block))


@dataclass(frozen=True, slots=True)
class Gap:
    """A mark that something is missing here. The mark of a degraded page stands before what was read of the page."""

    page_index: int | None
    """The page that is missing, as a whole or in part; None if nothing of the document could be read."""
    status: Status
    reason: str

    @property
    def in_words(self) -> tuple[str, str]:
        """Which page, or that the document, was not read or not in full; and why."""
        what = "This document" if self.page_index is None else f"Page {self.page_index + 1}"
        skipped = "was skipped" if self.page_index is None else "is missing"
        said = {"degraded": "was read in part", "skipped": skipped}.get(self.status, "could not be read")
        return f"{what} {said}", " ".join(self.reason.split())

    @property
    def markdown(self) -> str:
        """A line that says what is missing, and why."""
        what, why = self.in_words
        return f"**{what}:** {block_markdown('text', why)}"


@dataclass(frozen=True, slots=True)
class PageEnd:
    """The end of a page: all pieces that begin on it stand before."""

    page_index: int


@dataclass(frozen=True, slots=True)
class AssembledDocument:
    """A document, put together from its rows."""

    source: str
    doc_id: str | None
    """SHA-256 of the file, hex; None if the document could not be read."""
    page_count: int | None
    """The number of pages; None if the document could not be read."""
    rows: tuple[PageResult, ...]
    """All rows of the document. Page headers, footers, page numbers and marginal text are in these rows only."""
    parts: tuple[Piece | Gap | PageEnd, ...]
    """What the document consists of, in reading order. A PageEnd follows the last part that begins on its page; there
    is one for each row of a page."""

    @property
    def markdown(self) -> str:
        """The text, as `export --format md` writes it, with `![image](#page-3-block-5)` in place of each figure's file;
        ends with one newline, or is empty."""
        return joined_markdown(self.parts, _markdown)


def joined_markdown(
    parts: Sequence[Piece | Gap | PageEnd], of_piece: Callable[[Piece], str], *, page_breaks: bool = False
) -> str:
    """The text of a document; ends with one newline, or is empty."""
    texts = []
    for part in parts:
        if isinstance(part, Gap):
            texts.append(part.markdown)
        elif isinstance(part, Piece):
            texts += map(of_piece, part.with_captions)
        elif page_breaks:
            texts.append(f"*End of page {part.page_index + 1}*")
    return "\n\n".join(filter(None, texts)) + "\n" if any(texts) else ""


def _markdown(piece: Piece) -> str:
    if piece.kind.role == "figure":
        target = f"#page-{piece.places[0].page_index + 1}-block-{piece.places[0].block}"
        return figure_markdown(piece.type, target, piece.content, piece.description)
    return block_markdown(piece.type, piece.content or "", level=piece.level)
