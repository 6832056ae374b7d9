"""The text of documents as data: as in Markdown, with nothing made inert."""

from __future__ import annotations

import pytest

from batchocr.data import Block
from batchocr.documents.export.data_text import text_of
from batchocr.documents.export.figures import pieces_of
from tests.support.documents import block, document_of_pages, piece

CELLS = "<table><tr><td>1</td><td>2</td></tr></table>"


def test_text_without_signs_of_its_own_is_that_of_the_markdown() -> None:
    blocks = [
        block("header", "Left out"),
        block("title", "A\ntitle"),
        block("text", "Some \\( x \\) here."),
        block("equation", "\\[\nx\n\n= 1\n\\]"),
        block("list", "• one\n• two"),
        block("table", CELLS),
        block("code", "```python\na `b`\n```"),
        block("page_footnote", "1 A note."),
        block("page_number", "7"),
    ]
    document = document_of_pages(blocks)
    assert text_of(pieces_of(document)) + "\n" == document.markdown


@pytest.mark.parametrize(
    "content", ["5*3 = a_b", "# 1", "<b>x</b> &lt;", "{onclick=x}", "[a](https://b.c)", "$5", "\\href{a}{b}", "---"]
)
@pytest.mark.parametrize("type", ["text", "title", "code"])
def test_nothing_that_the_model_wrote_is_escaped(type: str, content: str) -> None:
    around = {"text": "{}", "title": "# {}", "code": "```\n{}\n```"}[type]
    assert text_of([piece(type, content)]) == around.format(content)


def test_a_table_stays_as_it_was_written_whole_or_not() -> None:
    odd = '<table onload="x"><tr>\n\n<td>{a=b}<script></td></table>'
    assert text_of([piece("table", odd)]) == odd.replace("\n\n", "\n")
    assert text_of([piece("table", "<fcel>1<nl>")]) == "<fcel>1<nl>"


def test_of_figures_there_is_what_was_read_in_them() -> None:
    picture = '<table><tr><td>1 <img src="#bbox=0.1,0.2,0.3,0.4"/></td></tr></table>'
    chart = Block("chart", (0, 0, 1, 1), 0, "| a | b |\n| --- | --- |\n| 1 | 2 |", description="A chart")
    [drawn] = pieces_of(document_of_pages([chart]))
    assert text_of([piece("image", None), piece("table", picture)]) == "<table><tr><td>1 </td></tr></table>"
    assert text_of([drawn]) == "<table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>2</td></tr></table>"


def test_a_heading_has_its_level_down_to_the_sixth() -> None:
    assert text_of(piece("title", "T", level=level) for level in (2, 9)) == "## T\n\n###### T"
