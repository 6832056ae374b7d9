"""Documents and tables made of what was set, so that no model's mistake hides one of ours."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import pymupdf
from PIL import Image

from batchocr.data import Block, Encoding, Failure, PageResult
from batchocr.documents.assembly.document import AssembledDocument, Gap, PageEnd, Piece, Place
from batchocr.documents.export.figures import Cut, Picture
from batchocr.pages.input.render import open_document
from batchocr.pages.kinds import kind_of
from batchocr.pages.parts import encoded
from batchocr.tables.schema import RunMetadata
from tests.support.tables import put_table

METADATA = RunMetadata("0.1.0", "acme/reader", "f" * 64, "a" * 64, {"dpi": "200"})
DPI = 100
PAGE = (300, 400)
"""Of drawn PDFs, in pt."""
BBOX = (0.1, 0.2, 0.9, 0.4)
"""Of pieces."""


def block(type: str, content: str | None = None, bbox: tuple[float, ...] = (0.1, 0.1, 0.9, 0.2)) -> Block:
    x0, y0, x1, y1 = bbox
    return Block(type, (x0, y0, x1, y1), 0, content)


def draw(path: Path, num_pages: int = 1, *, figure: tuple[float, ...] = (0.2, 0.25, 0.6, 0.5)) -> Path:
    """A PDF with noise in the place of a figure on each page, another one each time."""
    width, height = PAGE
    box = (figure[0] * width, figure[1] * height, figure[2] * width, figure[3] * height)
    with pymupdf.open() as document:
        for number in range(num_pages):
            page = document.new_page(width=width, height=height)
            page.insert_text((30, 30), f"Page {number + 1}")
            noise = Image.effect_noise((120, 100), 60 + number).convert("RGB")
            page.insert_image(box, pixmap=pymupdf.Pixmap(pymupdf.csRGB, *noise.size, noise.tobytes(), False))
        path.parent.mkdir(parents=True, exist_ok=True)
        document.save(path)
    return path


@lru_cache(maxsize=32)
def page_of(path: Path, page_index: int = 0) -> Image.Image:
    """The pixels of a page, as a run draws them. path: of a file that does not change."""
    document = open_document(str(path), password=None, dpi=DPI)
    try:
        return document.render(page_index).image
    finally:
        document.close()


def rows_of(path: Path, source: str, *pages: Sequence[Block]) -> list[PageResult]:
    """Rows as a run writes them, with these blocks on the pages of the file."""
    doc_id = hashlib.sha256(path.read_bytes()).hexdigest()
    rows = []
    for index, blocks in enumerate(pages):
        width, height = page_of(path, index).size
        row = text_row(source, index, *blocks, doc_id=doc_id)
        rows.append(replace(row, page_count=len(pages), width=width, height=height, dpi=float(DPI)))
    return rows


def text_row(source: str, page_index: int, *blocks: Block, doc_id: str = "d" * 64) -> PageResult:
    """A row of a page that is nowhere."""
    return PageResult(source, page_index, "ok", doc_id, 9, 300, 400, 100.0, markdown="", blocks=blocks)


def write_table(path: Path, rows: Sequence[PageResult], metadata: RunMetadata = METADATA) -> Path:
    put_table(path, rows, metadata)
    return path


def document_of_pages(*pages: Sequence[Block | Piece | Gap]) -> AssembledDocument:
    """A document as its pages say: a piece for each block, those given in place of theirs."""
    rows, parts = [], list[Piece | Gap | PageEnd]()
    for page_index, things in enumerate(pages):
        blocks = [thing for thing in things if isinstance(thing, Block)]
        rows.append(text_row("a/b.pdf", page_index, *blocks))
        for thing in things:
            if isinstance(thing, Block):
                if kind_of(thing.type).role == "furniture":
                    continue
                place = Place(page_index, thing.bbox, blocks.index(thing))
                level = 1 if thing.type == "title" else None
                thing = Piece(thing.type, thing.content, (place,), level, description=thing.description)
            parts.append(thing)
        parts.append(PageEnd(page_index))
    return AssembledDocument("a/b.pdf", "d" * 64, len(pages), tuple(rows), tuple(parts))


def row_of(page_index: int, blocks: Sequence[Block]) -> PageResult:
    return text_row("folder/a.pdf", page_index, *blocks, doc_id="ab" * 32)


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


class SolidFigures:
    """Pictures of one colour; none of those on `missing` pages."""

    def __init__(self, *missing: int) -> None:
        self._missing = missing

    def cut(self, places: Iterable[Place], encoding: Encoding) -> Cut:
        return ((place, self._picture(place, encoding)) for place in dict.fromkeys(places))

    def _picture(self, place: Place, encoding: Encoding) -> Picture | Failure:
        if place.page_index in self._missing:
            return Failure("not_found", "a/b.pdf is not there")
        colour = (place.page_index, place.block, round(1000 * place.bbox[1]) % 256)
        return Picture(encoded(Image.new("RGB", (8, 6), colour), encoding), f"{place} {encoding}")
