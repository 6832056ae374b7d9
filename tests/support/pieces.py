"""Assembled documents of blocks of your choice."""

from __future__ import annotations

from collections.abc import Sequence

from batchocr.data import Block, PageResult
from batchocr.documents.assembly.document import AssembledDocument, Gap, PageEnd, Piece, Place

BBOX = (0.1, 0.2, 0.9, 0.4)


def row_of(page_index: int, blocks: Sequence[Block], *, width: int = 800, height: int = 1000) -> PageResult:
    return PageResult(
        source="folder/a.pdf",
        page_index=page_index,
        status="ok",
        doc_id="ab" * 32,
        page_count=9,
        width=width,
        height=height,
        dpi=100.0,
        blocks=tuple(blocks),
    )


def piece(
    type: str,
    content: str | None,
    *,
    page_index: int = 0,
    level: int | None = None,
    captions: Sequence[str] = (),
    footnotes: Sequence[str] = (),
) -> Piece:
    """A piece of one block; captions stand before it, footnotes behind."""
    place = Place(page_index, BBOX, 0)
    notes = (("caption", captions), ("footnote", footnotes))
    of_piece = [tuple(Piece(f"{type}_{kind}", text, (place,)) for text in texts) for kind, texts in notes]
    return Piece(type, content, (place,), level, captions=of_piece[0], footnotes=of_piece[1])


def document_of(*parts: Piece | Gap | PageEnd, rows: Sequence[PageResult] = ()) -> AssembledDocument:
    """A document of these parts, numbered as blocks of their pages unless `rows` are given."""
    if rows:
        return AssembledDocument("folder/a.pdf", "ab" * 32, 9, tuple(rows), parts)
    blocks: dict[int, list[Block]] = {0: []}

    def numbered(given: Piece) -> Piece:
        places = []
        captions = tuple(map(numbered, given.captions))
        for place in given.places:
            of_page = blocks.setdefault(place.page_index, [])
            places.append(Place(place.page_index, place.bbox, len(of_page)))
            of_page.append(Block(given.type, place.bbox, 0, given.content))
        footnotes = tuple(map(numbered, given.footnotes))
        return Piece(given.type, given.content, tuple(places), given.level, captions, footnotes)

    numbered_parts = tuple(numbered(part) if isinstance(part, Piece) else part for part in parts)
    all_rows = tuple(row_of(page_index, blocks[page_index]) for page_index in sorted(blocks))
    return AssembledDocument("folder/a.pdf", "ab" * 32, 9, all_rows, numbered_parts)
