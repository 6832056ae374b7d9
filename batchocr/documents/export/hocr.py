"""The words of a document as hOCR 1.2: HTML that says where each line and word is."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Final

from batchocr.documents.assembly.document import AssembledDocument
from batchocr.documents.export.figures import Figures, File
from batchocr.documents.export.formats import FormatOptions
from batchocr.documents.export.words import placed_pages
from batchocr.documents.markup.mathml import shown_characters
from batchocr.pages.kinds import kind_of
from batchocr.pages.searchable.font import ASCENT, DESCENT
from batchocr.pages.searchable.placed_text import BlockWords, Box, PageText, PlacedLine

REVISION: Final = 3

_CAPABILITIES: Final = "ocr_page ocr_carea ocr_par ocr_line ocr_header ocr_caption ocrx_word"
_TEXT_ANGLES: Final = {90: 270, 180: 180, 270: 90}
"""The angle of text in hOCR, by that of its block: hOCR turns text counterclockwise, blocks clockwise."""


def files(document: AssembledDocument, name: str, figures: Figures, options: FormatOptions) -> Iterator[File]:
    """Yield `NAME.hocr`, in px of the pages as they were read; see `Format`. Raises FileRefusedError."""
    language = f' lang="{escape(options.language)}"' if options.language else ""
    parts = [
        f'<!DOCTYPE html>\n<html xmlns="http://www.w3.org/1999/xhtml"{language}>\n<head>\n'
        f"<title>{escape(document.source)}</title>\n"
        '<meta http-equiv="Content-Type" content="text/html; charset=utf-8"/>\n'
        '<meta name="ocr-system" content="batchocr"/>\n'
        f'<meta name="ocr-capabilities" content="{_CAPABILITIES}"/>\n</head>\n<body>\n'
    ]
    parts += [_page(page, document.source) for page in placed_pages(document, figures)]
    made = shown_characters("".join([*parts, "</body>\n</html>\n"]))  # the others are allowed in no XML
    yield File(f"{name}.hocr", made.encode())


def _page(page: PageText, source: str) -> str:
    number = page.page_index + 1
    width, height = page.width or 0, page.height or 0
    image = escape(source.replace('"', "'"))
    dpi = f"; scan_res {page.dpi:.0f} {page.dpi:.0f}" if page.dpi else ""
    title = f"image &quot;{image}&quot;; bbox 0 0 {width} {height}; ppageno {page.page_index}{dpi}"
    blocks = "".join(_block(block, f"{number}_{block.number}", page) for block in page.blocks)
    return f'<div class="ocr_page" id="page_{number}" title="{title}">\n{blocks}</div>\n'


def _block(block: BlockWords, id: str, page: PageText) -> str:
    place = _bbox(block.box, page)
    lines = "".join(_line(block, line, f"{id}_{index}", page) for index, line in enumerate(block.lines, 1))
    return (
        f'<div class="ocr_carea" id="block_{id}" title="{place}">\n'
        f'<p class="ocr_par" dir="auto" id="par_{id}" title="{place}">\n{lines}</p>\n</div>\n'
    )


def _line(block: BlockWords, line: PlacedLine, id: str, page: PageText) -> str:
    confidence = f"; x_wconf {100 * block.confidence:.0f}" if block.confidence is not None else ""
    title = _bbox(line.box, page)
    if block.angle in _TEXT_ANGLES:
        title += f"; textangle {_TEXT_ANGLES[block.angle]}"
    elif not block.is_whole:
        size = (line.box[3] - line.box[1]) * (page.height or 0) / (ASCENT + DESCENT)
        title += f"; baseline 0 {-DESCENT * size:.0f}; x_size {size:.0f}"
    words = " ".join(
        f'<span class="ocrx_word" id="word_{id}_{index}" title="{_bbox(word.box, page)}{confidence}">'
        f"{escape(word.text)}</span>"
        for index, word in enumerate(line.words, 1)
    )
    return f'<span class="{kind_of(block.type).hocr}" id="line_{id}" title="{title}">{words}</span>\n'


def _bbox(box: Box, page: PageText) -> str:
    x0, y0, x1, y1 = box
    width, height = page.width or 0, page.height or 0
    return f"bbox {x0 * width:.0f} {y0 * height:.0f} {x1 * width:.0f} {y1 * height:.0f}"
