"""Real documents in every format, compared word by word with what is in their rows.

The rows are made of the documents' own text, so that no model's mistake hides one of ours.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pymupdf
import pytest

from batchocr.data import Block, PageResult
from batchocr.documents.assembly.assemble import assemble
from batchocr.documents.assembly.document import AssembledDocument
from batchocr.documents.export.figures import pieces_of
from batchocr.documents.export.formats import Format, FormatOptions, format_named
from tests.support.documents import SolidFigures, text_row
from tests.support.strict_html import parsed

pytestmark = pytest.mark.slow

MAX_PAGES = 3
WORD = re.compile(r"[^\W_]+")
TITLE_SIZE = 12.5


@pytest.fixture(scope="module")
def documents(corpus: Path) -> list[AssembledDocument]:
    found = []
    for path in sorted((corpus / "real").glob("*.pdf")):
        with pymupdf.open(path) as pdf:
            rows = [row_of(path.name, page) for page in pdf.pages(0, min(MAX_PAGES, len(pdf)))]
        found.append(assemble(path.name, rows))
    assert sum(len(words_in(document)) for document in found) > 10_000
    return found


def row_of(source: str, page: pymupdf.Page) -> PageResult:
    """The page's blocks of text and its images; what the text says of LaTeX or Markdown stays what it is."""
    width, height = page.rect.width, page.rect.height
    blocks = []
    for block in page.get_text("dict")["blocks"]:
        x0, y0, x1, y1 = block["bbox"]
        box = (x0 / width, y0 / height, x1 / width, y1 / height)
        spans = [span for line in block.get("lines", []) for span in line["spans"]]
        text = " ".join(span["text"].strip() for span in spans).strip()
        if block["type"] == 1:
            blocks.append(Block("image", box, 0, None))
        elif text:
            is_title = max(span["size"] for span in spans) > TITLE_SIZE and len(text) < 100
            blocks.append(Block("title" if is_title else "text", box, 0, text))
    return text_row(source, page.number, *blocks)


def words_in(document: AssembledDocument) -> list[str]:
    return WORD.findall(" ".join(piece.content or "" for piece in pieces_of(document)))


def written(format: Format, document: AssembledDocument, suffix: str) -> str:
    files = format.files(document, "a", SolidFigures(), FormatOptions())
    [text] = [file.data.decode() for file in files if file.path.endswith(suffix)]
    return text


def test_html_has_every_word_in_order(documents: list[AssembledDocument]) -> None:
    for document in documents:
        main = parsed(written(format_named("html"), document, ".html")).find("body/main")
        for mark in main.findall("div[@class='page']"):
            mark.text = ""
        assert WORD.findall(" ".join(main.itertext())) == words_in(document), document.source


def test_chunks_have_every_word_in_order(documents: list[AssembledDocument]) -> None:
    for document in documents:
        chunks = [json.loads(line) for line in written(format_named("chunks"), document, ".jsonl").splitlines()]
        texts = [chunk["text"].replace("&lt;", "<").replace("&amp;", "&") for chunk in chunks]
        assert WORD.findall(" ".join(texts)) == words_in(document), document.source
        assert all(len(chunk["text"]) <= FormatOptions().max_chars for chunk in chunks)
        assert len({chunk["id"] for chunk in chunks}) == len(chunks)


def test_docling_exports_every_word_in_order(documents: list[AssembledDocument]) -> None:
    docling_core = pytest.importorskip("docling_core.types.doc")
    for document in documents:
        loaded = docling_core.DoclingDocument.model_validate_json(
            written(format_named("docling"), document, ".docling.json")
        )
        markdown = loaded.export_to_markdown(escape_html=False, escape_underscores=False, image_placeholder="")
        assert WORD.findall(markdown) == words_in(document), document.source
