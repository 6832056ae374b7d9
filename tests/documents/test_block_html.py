"""A block becomes HTML of its structure, and nothing else, whatever it holds."""

from __future__ import annotations

import re
import time

import pytest

from batchocr.documents.markup.html import block_html
from tests.support.strict_html import acting_in, text_of


@pytest.mark.parametrize("type", ["text", "title", "list", "ref_text", "image_caption", "table"])
def test_each_block_runs_from_the_side_that_its_own_text_does(type: str) -> None:
    text = "• שלום" if type == "list" else "<table><tr><td>שלום</table>" if type == "table" else "שלום"
    assert re.findall("<([a-z0-9]+)([^>]*)>", block_html(type, text))[0][1] == ' dir="auto"'


def test_a_table_keeps_its_spans_and_its_formulas() -> None:
    html = r"<table><tr><td colspan=2 onclick='x'>a \(x<y\) <script></td></tr></table>"
    assert block_html("table", html) == (
        '<table dir="auto"><tbody><tr><td colspan="2">a '
        '<math display="inline"><mrow><mi>x</mi><mo>&lt;</mo><mi>y</mi></mrow>'
        "</math> &lt;script&gt;</td></tr></tbody></table>"
    )


def test_a_picture_in_a_table_refers_to_nothing() -> None:
    html = '<table><tr><td>a<img src="#bbox=0.1,0.2,0.3,1e-05"/><img src="http://x.test/a.png"/></td></tr></table>'
    assert block_html("table", html) == (
        '<table dir="auto"><tbody><tr><td>a<span class="picture" data-bbox="0.1,0.2,0.3,1e-05"></span>'
        '<span class="picture" data-bbox=""></span></td></tr></tbody></table>'
    )


def test_a_table_that_could_not_be_parsed_is_shown_as_it_is() -> None:
    assert block_html("table", "a | <b>\n  c") == (
        "<p><em>A table that could not be parsed, as the model wrote it:</em></p>"
        "<pre><code>a | &lt;b&gt;\n  c</code></pre>"
    )


@pytest.mark.parametrize(
    ("type", "content", "html"),
    [
        ("title", "2.1 <b>\nx", '<h1 dir="auto">2.1 &lt;b&gt;\nx</h1>'),
        ("text", "a & b\nc", '<p dir="auto">a &amp; b\nc</p>'),
        (
            "text",
            "Three:\n• a\n• b\nend",
            '<p dir="auto">Three:</p><ul dir="auto"><li>a</li><li>b</li></ul><p dir="auto">end</p>',
        ),
        ("list", "• a\n  b", '<ul dir="auto"><li>a</li></ul><p dir="auto">  b</p>'),
        ("ref_text", "[1] a\n\n[2] b", '<p dir="auto">[1] a</p><p dir="auto">[2] b</p>'),
        ("code", "```python\nif a < b:\n  c\n```", "<pre><code>if a &lt; b:\n  c</code></pre>"),
        ("equation", "\\[\nx\n\\]", '<div class="formula"><math display="block"><mrow><mi>x</mi></mrow></math></div>'),
        ("image_caption", "Figure 1", '<p dir="auto">Figure 1</p>'),
        ("image", None, ""),
        ("text", " \x00\n ", ""),
    ],
)
def test_a_block_is_the_html_of_its_type(type: str, content: str | None, html: str) -> None:
    assert block_html(type, content) == html


def test_a_heading_has_its_level() -> None:
    assert block_html("title", "a", level=3) == '<h3 dir="auto">a</h3>'
    assert block_html("title", "a", level=12) == '<h6 dir="auto">a</h6>'


def test_a_formula_in_a_text_is_mathml() -> None:
    assert block_html("text", r"of \( x^2 \).") == (
        '<p dir="auto">of <math display="inline"><mrow><msup><mi>x</mi><mn>2</mn></msup></mrow></math>.</p>'
    )


def test_raised_letters_are_raised_in_plain_pairs_alone() -> None:
    assert block_html("text", "3 m<sup>2</sup>, x<sub>a&b</sub>") == (
        '<p dir="auto">3 m<sup>2</sup>, x<sub>a&amp;b</sub></p>'
    )
    for content in ("<sup>1", "<sup>1</sub>", "<sup x=1>1</sup>", "<sup><b>1</b></sup>", "<sup>a\nb</sup>"):
        assert "<su" not in block_html("text", content)


def test_text_is_shown_as_it_was_read() -> None:
    text = "a < b && c > d \"e\" 'f' &amp; &lt;g&gt; <!-- --> \\( never closed"
    assert text_of(block_html("text", text)) == text


@pytest.mark.parametrize(
    "content",
    [
        "<table>" * 3_000,
        "<table><tr><td>" * 2_000,
        "<table><caption>" * 2_000,
        "<table>" + "</td><td>&#x202e;&#xfffe;&#0;" * 2_000,
        r"<table><tr><td>\(<td>\)</td>\(<script>\)</table></table>",
        "<table><colgroup><col span=9><col></table><table><td>\ufdd0",
        "<table><tr><td rowspan=99999 colspan=-1>x<td colspan=9999>",
        "<table><svg><style><img src=x onerror=alert(1)></style></svg><math><mi//xlink:href='data:x,<script>'>",
    ],
)
def test_odd_tables_are_valid_html(content: str) -> None:
    assert acting_in(block_html("table", content)) == []


@pytest.mark.slow
@pytest.mark.parametrize("piece", ["<table><tr><td>", "\\(", "\\(x\\) ", "<", "&", "• a\n", "</td><td>", "`", "\n\n"])
def test_long_texts_take_no_quadratic_time(piece: str) -> None:
    started = time.process_time()
    for type in ("text", "table", "code", "equation"):
        content = "<table><tr><td>" * (type == "table") + piece * (100_000 // len(piece))
        assert len(block_html(type, content)) < 4_000_000
    assert time.process_time() - started < 5
