"""The promise of SECURITY.md for Markdown, kept by the renderers that people use."""

from __future__ import annotations

import random

import pytest

pytest.importorskip("pykatex", reason="KaTeX as a package is not there for this version of Python")

from batchocr.data import Block
from batchocr.pages.protocol.markdown import to_markdown
from batchocr.pages.protocol.sanitize import inert_formula
from tests.support.active_markup import active_in
from tests.support.hostile_markdown import COMMANDS, LISTS, any_blocks, formulas_in
from tests.support.markdown_renderers import FORMULA_RENDERERS, MARKDOWN_RENDERERS, mathjax

pytestmark = pytest.mark.slow

NUM_PAGES = 60
"""`python -m benchmarks.attack markdown` renders 15,000."""


def block(type: str, content: str) -> Block:
    return Block(type, (0.1, 0.1, 0.9, 0.2), 0, content)


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


@pytest.mark.parametrize("name", MARKDOWN_RENDERERS)
def test_nothing_a_model_writes_is_active_in_a_renderer(name: str) -> None:
    pages = [to_markdown(page) for page in hostile_pages()]
    rendered = MARKDOWN_RENDERERS[name](pages)
    assert len(rendered) == len(pages)
    active = [(page, found) for page, html in zip(pages, rendered, strict=True) if (found := active_in(html))]
    assert active == []


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
