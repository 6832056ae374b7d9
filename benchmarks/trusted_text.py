"""What `--text-layer trust` saves on PDFs whose text is plain, by the blocks of their text layer.

    python -m benchmarks.trusted_text FOLDER

Blocks are MuPDF's (`text_layer.py`), so headings, formulas and the rows of tables count as text. What MuPDF takes for a
table is counted apart: there a layout has one block, which the model reads. Tokens are estimated as there. Pages
without a plain glyph, such as scans, are left out.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import pymupdf

from batchocr.data import NOT_PLAIN, Document, shared_area
from batchocr.errors import PageError
from batchocr.pages.input.render import open_document
from batchocr.pages.protocol.trusted_text import TrustedText
from benchmarks.text_layer import DPI, TextBlock, text_layers

_PATCH_PX = 14
_CHARACTERS_A_TOKEN = 3.6


@dataclass(frozen=True, slots=True)
class Block:
    """A block of a text layer. taken: what trust takes for its text; None if the model reads it."""

    patches: float
    tokens: float
    is_in_table: bool
    taken: str | None


def blocks_of(path: Path, max_pages: int) -> Iterator[Block]:
    """Of the first pages that have a plain glyph. Raises PageError."""
    document = open_document(str(path), password=None, dpi=DPI, text_layer="trust")
    layers = text_layers(Document(str(path), path.name))
    with pymupdf.open(path) as opened:
        for index in range(min(max_pages, document.page_count, len(layers))):
            page = document.render(index)
            if any(glyph.text.strip(f" \xa0{NOT_PLAIN}") for glyph in page.glyphs):
                trusted, tables = TrustedText(page.glyphs, page.image), _tables(opened[index])
                yield from (_block(each, trusted, page.image.size, tables) for each in layers[index])
    document.close()


def _block(block: TextBlock, trusted: TrustedText, size: tuple[int, int], tables: Sequence[Sequence[float]]) -> Block:
    x0, y0, x1, y1 = box = tuple(value / 1000 for value in block.bbox)
    area = (x1 - x0) * (y1 - y0)
    return Block(
        patches=area * size[0] * size[1] / _PATCH_PX**2,
        tokens=2 + len(block.text) / _CHARACTERS_A_TOKEN,
        is_in_table=any(shared_area(box, table) > area / 2 for table in tables),
        taken=trusted.of(box),
    )


def _tables(page: pymupdf.Page) -> list[tuple[float, ...]]:
    """In shares of the page."""
    width, height = page.rect.width, page.rect.height
    with redirect_stdout(StringIO()):  # MuPDF recommends a package
        found = page.find_tables().tables
    return [(box[0] / width, box[1] / height, box[2] / width, box[3] / height) for box in (t.bbox for t in found)]


def _shares(blocks: Sequence[Block]) -> str:
    saved = [block for block in blocks if block.taken is not None]
    patches = sum(block.patches for block in saved) / max(1, sum(block.patches for block in blocks))
    tokens = sum(block.tokens for block in saved) / max(1, sum(block.tokens for block in blocks))
    return f"{len(saved):4} of {len(blocks):4} blocks, {patches:4.0%} of patches, {tokens:4.0%} of tokens"


def main(folder: str, max_pages: str = "10") -> None:
    total: list[Block] = []
    for path in sorted(Path(folder).glob("*.pdf")):
        try:
            blocks = list(blocks_of(path, int(max_pages)))
        except PageError as error:
            print(f"{path.name}: {error}", file=sys.stderr)
            continue
        if blocks:
            total += blocks
            print(f"{path.name:44} {_shares(blocks)}")
    print(f"{'all':44} {_shares(total)}")
    print(f"{'all but tables':44} {_shares([block for block in total if not block.is_in_table])}")


if __name__ == "__main__":
    main(*sys.argv[1:])
