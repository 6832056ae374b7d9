"""A formula becomes MathML that shows it, and nothing else, whatever it holds."""

from __future__ import annotations

from batchocr.markup.mathml import to_mathml


def test_a_formula_is_mathml() -> None:
    assert to_mathml("x^{2}", display=False) == (
        '<math display="inline"><mrow><msup><mi>x</mi><mrow><mn>2</mn></mrow></msup></mrow></math>'
    )


def test_a_formula_that_cannot_be_parsed_is_shown_as_it_is() -> None:
    assert to_mathml(r"\left( a <", display=True) == r'<code class="formula">\left( a &lt;</code>'
