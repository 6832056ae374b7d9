"""What a good model would answer for real pages, from their text layer: layouts, texts, and their lengths.

The product's own protocol cuts the blocks, so the requests are those of a run. Every block counts as text: headings,
formulas and the parts of tables, too. Numbers of tokens are estimated: one per 3.6 characters, and 22 per block of a
layout.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pymupdf

from batchocr.data import Completion, Document, Page
from batchocr.errors import PageError
from batchocr.pages.input.render import open_document
from batchocr.pages.input.sources import find_documents
from batchocr.pages.protocol.families.mineru import MinerUProtocol
from benchmarks.speed.forced_engine import Foreseen, pixels_key
from benchmarks.trace import LAYOUT_SIZE, Ask, TracePage

DPI = 200
_CHARACTERS_A_TOKEN = 3.6
_LAYOUT_TOKENS_A_BLOCK = 22
_LEAST_LETTERS = 8
"""Shorter blocks are left out: text layers split formulas into pieces."""
_THINNEST = 8 * 72 / DPI
_BANDS = 8
_BAND_TEXT = "Text that no layer tells, as long as such a band may hold. " * 5


@dataclass(frozen=True, slots=True)
class TextBlock:
    """bbox: in thousandths of the page, x0 < x1, y0 < y1."""

    bbox: tuple[int, int, int, int]
    text: str


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one request. key: `pixels_key` of its image."""

    key: bytes
    ask: Ask
    text: str


@dataclass(frozen=True, slots=True)
class PageAnswers:
    layout: Answer
    blocks: tuple[Answer, ...]

    @property
    def asks(self) -> TracePage:
        return TracePage(self.layout.ask, tuple(answer.ask for answer in self.blocks))

    @property
    def foreseen(self) -> dict[bytes, Foreseen]:
        return {answer.key: Foreseen(answer.text, answer.ask.output_tokens) for answer in (self.layout, *self.blocks)}


def read_answers(inputs: Sequence[str]) -> Iterator[PageAnswers]:
    """Read all pages that can be rendered. A page without text counts as eight bands of text."""
    protocol = MinerUProtocol(max_new_tokens=8192, penalties=True)
    for document in find_documents(inputs).documents:
        try:
            opened = open_document(document.path, password=None, dpi=DPI)
            texts = text_layers(document)
            for index in range(opened.page_count):
                blocks = texts[index] if index < len(texts) else []
                yield _answers(protocol, opened.render(index), blocks or _bands())
            opened.close()
        except PageError as error:
            print(f"{document.source}: {error}", file=sys.stderr)


def _answers(protocol: MinerUProtocol, page: Page, blocks: list[TextBlock]) -> PageAnswers:
    text = "\n".join(layout_line(block) for block in blocks)
    reader = protocol.read(page)
    [layout] = next(reader)
    requests = reader.send([Completion(text, "stop", 0, 0, 1.0, 0.0)])
    reader.close()
    height, width = layout.pixels.height, layout.pixels.width
    ask = Ask("layout", height, width, _LAYOUT_TOKENS_A_BLOCK * len(blocks), LAYOUT_SIZE)
    return PageAnswers(
        Answer(pixels_key(layout.pixels), ask, text),
        tuple(
            Answer(
                pixels_key(request.pixels),
                Ask("text", request.pixels.height, request.pixels.width, _tokens(block)),
                block.text,
            )
            for block, request in zip(blocks, requests, strict=True)
        ),
    )


def layout_line(block: TextBlock) -> str:
    box = " ".join(f"{value:03}" for value in block.bbox)
    return f"<|box_start|>{box}<|box_end|><|ref_start|>text<|ref_end|><|rotate_up|>"


def _tokens(block: TextBlock) -> int:
    return 2 + round(len(block.text) / _CHARACTERS_A_TOKEN)


def _bands() -> list[TextBlock]:
    height = 1000 // _BANDS
    return [TextBlock((60, top + 10, 940, top + height - 10), _BAND_TEXT) for top in range(0, 1000, height)]


def text_layers(document: Document) -> list[list[TextBlock]]:
    """The text blocks of each page; an empty list if the document is not a PDF."""
    with pymupdf.open(document.path) as opened:
        if not opened.is_pdf:
            return []
        return [_text_blocks(page) for page in opened]


def _text_blocks(page: pymupdf.Page) -> list[TextBlock]:
    """The blocks in text-layer order, without those that are short, outside the page, or thinner than 8 px."""
    found = [(box, " ".join(text.split())) for *box, text, _, type in page.get_text("blocks") if type == 0]
    boxes = ((_box(page, pymupdf.Rect(box)), text) for box, text in found if len(text) >= _LEAST_LETTERS)
    return [TextBlock(box, text) for box, text in boxes if box is not None]


def _box(page: pymupdf.Page, rect: pymupdf.Rect) -> tuple[int, int, int, int] | None:
    """The box in thousandths of the page as shown; PyMuPDF gives positions on the page before rotation."""
    shown = (rect * page.rotation_matrix).normalize() & page.rect
    if shown.is_empty or shown.width < _THINNEST or shown.height < _THINNEST:
        return None
    across, down = 1000 / page.rect.width, 1000 / page.rect.height
    x0, x1 = int((shown.x0 - page.rect.x0) * across), round((shown.x1 - page.rect.x0) * across)
    y0, y1 = int((shown.y0 - page.rect.y0) * down), round((shown.y1 - page.rect.y0) * down)
    return (x0, y0, x1, y1) if x0 < x1 and y0 < y1 else None
