"""The promise of SECURITY.md for Markdown, of pages, documents and chunks, kept by the renderers that people use."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

pytest.importorskip("pykatex", reason="KaTeX as a package is not there for this version of Python")

from batchocr.data import Block
from batchocr.documents.assembly.assemble import assemble
from batchocr.documents.assembly.document import AssembledDocument, Gap
from batchocr.documents.export import md
from batchocr.documents.export.chunks import chunks
from batchocr.documents.export.formats import FormatOptions
from batchocr.pages.protocol.markdown import to_markdown
from batchocr.pages.protocol.sanitize import inert_formula
from tests.support.active_markup import active_in
from tests.support.documents import SolidFigures, block, document_of, document_of_pages, piece, text_row
from tests.support.hostile_markdown import COMMANDS, LISTS, any_blocks, formulas_in
from tests.support.markdown_renderers import FORMULA_RENDERERS, MARKDOWN_RENDERERS, mathjax

pytestmark = pytest.mark.slow

NUM_PAGES = 60
"""`python -m benchmarks.attack markdown` renders 15,000."""
NUM_DOCUMENTS = 40
MAX_CHARS = 60
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
TABLE = (
    "<table><tr><td>[x]{a='</td></tr>"
    + "<tr><td>' onclick=</td><td>b}</td></tr><tr><td>evil()}</td></tr>" * 9
    + "</table>"
)


def places_of(attributes: str) -> list[list[Block]]:
    """Pages with this attribute list wherever some dialect looks for one."""
    texts = [
        *("pay {}", "pay\n{}", "{}\npay", "*pay*{}", "`pay`{}", "[pay]{}", "- pay {}", "::: {}\npay\n:::", "A {}\n==="),
        *("| a |\n|---|\n| b {} |", ": cap {}", "\\( *a*{} \\)5", "x \\( x {} | \\)5", "<https://evil>{}", "pay{} b"),
    ]
    contents = [text.replace("{}", attributes) for text in texts]
    return [
        [block("title", f"Invoice {attributes}")],
        *([block("text", content)] for content in contents),
        *([block("table", f"<table><tr><td>{content}</td></tr></table>")] for content in contents),
        *([block("equation", f"\\[\n{content}\n\\]")] for content in contents),
    ]


def hostile_pages() -> list[list[Block]]:
    dice = random.Random(17)
    listed = [page for attributes in LISTS[:5] for page in places_of(attributes)]
    return listed + [any_blocks(dice) for _ in range(NUM_PAGES)]


def text_of(document: AssembledDocument) -> str:
    *_, text = md.files(document, "b", SolidFigures(), FormatOptions(page_breaks=True))
    return text.data.decode().replace("b.images/", "#")


def texts_of_pages() -> list[str]:
    return [to_markdown(page) for page in hostile_pages()]


def texts_of_documents() -> list[str]:
    dice = random.Random(18)
    pages = [any_blocks(dice) for _ in range(3 * NUM_DOCUMENTS)]
    documents = [
        assemble("a.pdf", [text_row("a.pdf", index, *blocks) for index, blocks in enumerate(pages[start : start + 3])])
        for start in range(0, len(pages), 3)
    ]
    for first, second in HALVES:
        halves = [Block("text", (0.1, 0.8, 0.9, 0.9), 0, first), Block("text", (0.1, 0.1, 0.9, 0.2), 0, second, True)]
        documents.append(assemble("a.pdf", [text_row("a.pdf", index, half) for index, half in enumerate(halves)]))
        documents.append(document_of_pages([block("text", first + second)]))
    marks = [
        Gap(0, "failed", text) for text in [*LISTS, "<script>evil()</script>", "[x](https://evil)", "**", "$\\href"]
    ]
    return [
        *map(text_of, documents),
        *(document.markdown for document in documents),
        *(mark.markdown for mark in marks),
    ]


def texts_of_chunks() -> list[str]:
    dice = random.Random(18)
    documents = [
        document_of(*(piece(each.type, f"{each.content}. {each.content} A") for each in any_blocks(dice)))
        for _ in range(NUM_DOCUMENTS)
    ]
    documents.append(document_of(piece("table", TABLE)))
    cut = [chunk["text"] for document in documents for chunk in chunks(document, MAX_CHARS)]
    assert len(cut) > 5 * NUM_DOCUMENTS
    return cut


@pytest.mark.parametrize("make_texts", [texts_of_pages, texts_of_documents, texts_of_chunks])
@pytest.mark.parametrize("name", MARKDOWN_RENDERERS)
def test_nothing_a_model_writes_is_active_in_a_renderer(name: str, make_texts: Callable[[], list[str]]) -> None:
    texts = make_texts()
    rendered = MARKDOWN_RENDERERS[name](texts)
    assert len(rendered) == len(texts)
    assert [(text, found) for text, html in zip(texts, rendered, strict=True) if (found := active_in(html))] == []


@pytest.mark.parametrize("name", FORMULA_RENDERERS)
def test_nothing_in_a_formula_is_active_in_a_renderer(name: str) -> None:
    pages = [*hostile_pages(), *([block("equation", command)] for command in COMMANDS)]
    formulas = [formula for page in pages for formula in formulas_in(to_markdown(page))]
    rendered = FORMULA_RENDERERS[name](formulas)
    active = [
        (latex, found)
        for latex, html in zip(formulas, rendered, strict=True)
        if (found := active_in(html, formulas=True))
    ]
    assert active == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pandoc", "# A {onclick=evil()}"),
        ("pandoc", "::: {onclick=evil()}\nx\n:::"),
        ("pandoc", "---\ncss: https://evil\n---"),
        ("pandoc, commonmark_x", "a{onclick=evil()} b"),
        ("Python-Markdown, extra", "# A {: onclick=evil() }"),
        ("markdown-it, attrs", '[x]{style="background:url(https://evil)"}'),
        ("mistune", "<b onclick=evil()>"),
        ("cmark-gfm", "[x](https://evil)"),
    ],
)
def test_what_is_active_in_a_renderer_is_seen(name: str, text: str) -> None:
    assert active_in(MARKDOWN_RENDERERS[name]([text])[0])


def test_commands_that_link_or_style_are_seen_in_mathjax() -> None:
    names = ("href", "unicode[", "color", "textcolor", "colorbox", "fcolorbox", "enclose", "bbox", "cancel[", "let")
    commands = [command for command in COMMANDS if command.startswith(tuple(f"\\{name}" for name in names))]
    assert sum(bool(active_in(html, formulas=True)) for html in mathjax(commands)) >= len(names)


def test_a_formula_looks_the_same_after_it_was_made_inert() -> None:
    formulas = [
        *(r"\sum_{i=1}^{n} x_{ij}", r"\sqrt[3]{x}", r"\left\{ a : b \right\}", r"\underset{max=3}{x}", r"\cancel{x}"),
        *(r"\begin{cases} a & x=1 \\ b & x=2 \end{cases}", r"\{ x \mid y = {a} \}", r"{a_{x=1}}^{b'=c}", r"a<b"),
    ]
    assert mathjax([inert_formula(latex) for latex in formulas]) == mathjax(formulas)
