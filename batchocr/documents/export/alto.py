"""The words of a document as ALTO 4.4: what libraries and archives keep beside the images of pages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from xml.sax.saxutils import escape, quoteattr

from batchocr.documents.assembly.document import AssembledDocument
from batchocr.documents.export.figures import Figures, File
from batchocr.documents.export.formats import FormatOptions
from batchocr.documents.export.words import placed_pages
from batchocr.documents.markup.mathml import shown_characters
from batchocr.pages.searchable.placed_text import BlockWords, Box, PageText, PlacedLine

REVISION: Final = 3

_NAMESPACE: Final = "http://www.loc.gov/standards/alto/ns-v4#"


def files(document: AssembledDocument, name: str, figures: Figures, options: FormatOptions) -> Iterator[File]:
    """Yield `NAME.alto.xml`, in px of the pages as they were read; see `Format`. Raises FileRefusedError."""
    language = f" LANG={quoteattr(options.language)}" if options.language else ""
    parts = [
        f'<?xml version="1.0" encoding="UTF-8"?>\n<alto xmlns="{_NAMESPACE}" SCHEMAVERSION="4.4">\n<Description>\n'
        "<MeasurementUnit>pixel</MeasurementUnit>\n"
        f"<sourceImageInformation><fileName>{escape(document.source)}</fileName></sourceImageInformation>\n"
        '<Processing ID="batchocr"><processingSoftware><softwareName>batchocr</softwareName></processingSoftware>'
        "</Processing>\n</Description>\n<Layout>\n"
    ]
    parts += [_page(page, language) for page in placed_pages(document, figures)]
    made = shown_characters("".join([*parts, "</Layout>\n</alto>\n"]))  # the others are allowed in no XML
    yield File(f"{name}.alto.xml", made.encode())


def _page(page: PageText, language: str) -> str:
    number = page.page_index + 1
    size = f' HEIGHT="{page.height}" WIDTH="{page.width}"' if page.width and page.height else ""
    blocks = "".join(_block(block, f"{number}_{block.number}", page) for block in page.blocks)
    space = f'<PrintSpace HPOS="0" VPOS="0"{size}>\n{blocks}</PrintSpace>\n' if size else ""
    return f'<Page ID="page_{number}" PHYSICAL_IMG_NR="{number}"{size}{language}>\n{space}</Page>\n'


def _block(block: BlockWords, id: str, page: PageText) -> str:
    turned = f' ROTATION="{360 - block.angle}"' if block.angle else ""
    lines = "".join(_line(line, f"{id}_{index}", page, block.confidence) for index, line in enumerate(block.lines, 1))
    return f'<TextBlock ID="block_{id}" {_place(block.box, page)}{turned}>\n{lines}</TextBlock>\n'


def _line(line: PlacedLine, id: str, page: PageText, confidence: float | None) -> str:
    sure = f' WC="{min(1.0, max(0.0, confidence)):.3f}"' if confidence is not None else ""
    words = "<SP/>".join(
        f'<String ID="word_{id}_{index}" {_place(word.box, page)}{sure} CONTENT={quoteattr(word.text)}/>'
        for index, word in enumerate(line.words, 1)
    )
    return f'<TextLine ID="line_{id}" {_place(line.box, page)}>{words}</TextLine>\n'


def _place(box: Box, page: PageText) -> str:
    x0, y0, x1, y1 = box
    width, height = page.width or 0, page.height or 0
    return (
        f'HPOS="{x0 * width:.0f}" VPOS="{y0 * height:.0f}" '
        f'WIDTH="{(x1 - x0) * width:.0f}" HEIGHT="{(y1 - y0) * height:.0f}"'
    )
