"""A chunk is as inert in a renderer of Markdown as the document is, wherever it was cut."""

from __future__ import annotations

import random

import pytest

pytest.importorskip("pykatex", reason="KaTeX as a package is not there for this version of Python")

from batchocr.documents.export.chunks import chunks
from tests.support.active_markup import active_in
from tests.support.hostile_markdown import any_blocks
from tests.support.markdown_renderers import MARKDOWN_RENDERERS
from tests.support.pieces import document_of, piece

pytestmark = pytest.mark.slow

NUM_DOCUMENTS = 40
MAX_CHARS = 60
TABLE = (
    "<table><tr><td>[x]{a='</td></tr>"
    + "<tr><td>' onclick=</td><td>b}</td></tr><tr><td>evil()}</td></tr>" * 9
    + "</table>"
)


@pytest.fixture(scope="module")
def texts() -> list[str]:
    dice = random.Random(18)
    documents = [
        document_of(*(piece(block.type, f"{block.content}. {block.content} A") for block in any_blocks(dice)))
        for _ in range(NUM_DOCUMENTS)
    ]
    cut = [
        chunk["text"]
        for document in [*documents, document_of(piece("table", TABLE))]
        for chunk in chunks(document, MAX_CHARS)
    ]
    assert len(cut) > 5 * NUM_DOCUMENTS
    return cut


@pytest.mark.parametrize("name", MARKDOWN_RENDERERS)
def test_nothing_in_a_chunk_is_active_in_a_renderer(name: str, texts: list[str]) -> None:
    rendered = MARKDOWN_RENDERERS[name](texts)
    assert [(text, found) for text, html in zip(texts, rendered, strict=True) if (found := active_in(html))] == []
