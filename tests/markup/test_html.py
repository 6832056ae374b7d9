"""A block becomes HTML of its structure, and nothing else, whatever it holds."""

from __future__ import annotations

from batchocr.markup.html import block_html


def test_a_table_keeps_its_spans_and_its_formulas() -> None:
    html = r"<table><tr><td colspan=2 onclick='x'>a \(x<y\) <script></td></tr></table>"
    assert block_html("table", html) == (
        '<table><tbody><tr><td colspan="2">a <math display="inline"><mrow><mi>x</mi><mo>&lt;</mo><mi>y</mi></mrow>'
        "</math> &lt;script&gt;</td></tr></tbody></table>"
    )
