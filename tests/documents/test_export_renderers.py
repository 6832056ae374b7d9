"""Documents put together of what models write are as inert as pages are, and are read as what they are."""

from __future__ import annotations

import random
import re

import pytest

pytest.importorskip("pykatex", reason="KaTeX as a package is not there for this version of Python")

from markdown_it import MarkdownIt

from batchocr.data import Block
from batchocr.documents.assembly.assemble import assemble
from batchocr.documents.assembly.document import AssembledDocument, Gap, PageEnd
from batchocr.documents.export.formats import FormatOptions
from batchocr.documents.export.markdown import document_markdown
from tests.support.active_markup import active_in
from tests.support.documents import block, document_of, text_row
from tests.support.hostile_markdown import LISTS, any_blocks
from tests.support.markdown_renderers import MARKDOWN_RENDERERS

pytestmark = pytest.mark.slow

NUM_DOCUMENTS = 40

HALVES = [
    ("see <scr", "ipt>evil()</script>"),
    ("pay {onclick=", "evil()} b"),
    ("[x]", "(https://evil)"),
    ("a ::", ": {onclick=evil()}"),
    (r"\( \hr", r"ef{https://evil}{x} \)"),
    ("`" * 2, "`{=html}\n<b>\n```"),
    ("&#x3", "c;script>"),
]
"""Paragraphs that two pages, or columns, have a harmless half of each."""


class NoFigures:
    """Every picture is the same file."""

    def __contains__(self, _place: object) -> bool:
        return True

    def __getitem__(self, _place: object) -> str:
        return "b.images/page-1.png"


def text_of(document: AssembledDocument) -> str:
    text = document_markdown(document, NoFigures(), FormatOptions(page_breaks=True))  # type: ignore[arg-type]
    return text.replace("b.images/page-1.png", "#page-1")


def hostile_documents() -> list[str]:
    dice = random.Random(18)
    pages = [any_blocks(dice) for _ in range(3 * NUM_DOCUMENTS)]
    documents = [
        assemble("a.pdf", [text_row("a.pdf", index, *blocks) for index, blocks in enumerate(pages[start : start + 3])])
        for start in range(0, len(pages), 3)
    ]
    for first, second in HALVES:
        halves = [Block("text", (0.1, 0.8, 0.9, 0.9), 0, first), Block("text", (0.1, 0.1, 0.9, 0.2), 0, second, True)]
        documents.append(assemble("a.pdf", [text_row("a.pdf", index, half) for index, half in enumerate(halves)]))
        documents.append(document_of([block("text", first + second)]))
    marks = [
        Gap(0, "failed", text) for text in [*LISTS, "<script>evil()</script>", "[x](https://evil)", "**", "$\\href"]
    ]
    return [
        *map(text_of, documents),
        *(document.markdown for document in documents),
        *(mark.markdown for mark in marks),
    ]


@pytest.mark.parametrize("name", MARKDOWN_RENDERERS)
def test_nothing_in_a_document_is_active_in_a_renderer(name: str) -> None:
    texts = hostile_documents()
    rendered = MARKDOWN_RENDERERS[name](texts)
    assert len(rendered) == len(texts)
    assert [(text, found) for text, html in zip(texts, rendered, strict=True) if (found := active_in(html))] == []


def test_a_reader_of_markdown_finds_what_was_set() -> None:
    document = document_of(
        [block("title", "1 A * clock"), block("text", "Some text."), block("image")],
        [block("table", "<table><tr><td>5</td></tr></table>"), block("code", "x = 1\n\ny = 2")],
    )
    tokens = MarkdownIt("commonmark", {"html": True}).parse(text_of(document))
    found = [(token.type, token.content.strip()) for token in tokens if token.content]
    assert found == [
        ("inline", "1 A * clock"),
        ("inline", "Some text."),
        ("inline", "![image](#page-1)"),
        ("inline", "*End of page 1*"),
        ("html_block", "<table><tr><td>5</td></tr></table>"),
        ("fence", "x = 1\n\ny = 2"),
        ("inline", "*End of page 2*"),
    ]
    assert isinstance(document.parts[-1], PageEnd)
    assert not re.search(r"\]\((?!#)", text_of(document))
