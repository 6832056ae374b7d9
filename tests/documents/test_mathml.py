"""A formula becomes MathML that shows it, and nothing else, whatever it holds."""

from __future__ import annotations

import re
import time
from xml.etree import ElementTree

import pytest

from batchocr.documents.markup.mathml import to_mathml
from tests.support.strict_html import acting_in, text_of


def shown(latex: str, *, display: bool = True) -> str:
    """The text of the formula; fails if it is no MathML."""
    mathml = to_mathml(latex, display=display)
    assert mathml.startswith("<math")
    return text_of(mathml).replace(" ", "")


@pytest.mark.parametrize("latex", [r"\left( a <", "x_{i}_{j}", "", "   ", r"\newcommand{\a}{b} \a"])
def test_a_formula_that_cannot_be_parsed_is_shown_as_it_is(latex: str) -> None:
    written = latex.strip().replace("<", "&lt;")
    assert to_mathml(latex, display=True) == f'<code class="formula">{written}</code>'


@pytest.mark.parametrize(
    ("latex", "text"),
    [
        (r"\begin{aligned} a &= b \\ &\leq c \end{aligned}", "a=b≤c"),
        (r"\begin{align} a &= b \\ c &= d \end{align}", "a=bc=d"),
        (r"\begin{array} { r l } { \mathbf { x } } & { = { \cal L } } \end{array}", "𝐱=ℒ"),
        (r"\begin{array}{*{2}{c}@{}p{2cm}} a & b \end{array}", "ab"),
        (r"\begin{gathered} a \\ b \end{gathered}", "ab"),
        (r"\operatorname* {a r g m a x}_{\theta} p", "argmaxθp"),
        (r"\mathrm{softmax}(\frac{QK^{T}}{\sqrt{d_k}})V \tag{1}", "softmax(QKTdk)V(1)"),
        (r"x \tag {3 . 1}", "x(3.1)"),
        (r"\mathop { \arg \min } \limits _ { \theta } \pmb { u } ^ { \mathrm { T } }", "argminθ𝐮T"),
        (r"\left\{ \begin{array} { l l } { a } & { { \mathrm { i f ~ } } b } \end{array} \right.", "{aifb"),
        (r"\bigg [ \mathrm { c l i p } \big ( x \big ) \Bigg ] \textcircled { 1 }", "[clip(x)]1"),
        (r"x \tag*{*} \label{eq:1} \nonumber", "x*"),
        (r"\mathbb{RN} \mathbf{Ah1} \mathit{hi}", "ℝℕ𝐀𝐡𝟏ℎ𝑖"),
        (r"25^{\circ}\mathrm{C}, a \not= b \not\in C", "25∘C,a≠b∉C"),
        (r"\text{if } x < 5 \,\&\, y > \text{a<b&lt;}", "ifx<5&y>a<b<"),
        (r"中文 \text{中文} é", "中文中文é"),
    ],
)
def test_what_models_write_is_shown_without_commands(latex: str, text: str) -> None:
    assert shown(latex) == text


@pytest.mark.parametrize("sign", [r"\sum", r"\prod", r"\bigcup", r"\bigoplus", r"\mathop { \sum }"])
@pytest.mark.parametrize("around", ["%s", r"\left( %s \right)", r"\begin{array}{r l} { a } & { = %s } \end{array}"])
def test_limits_of_large_signs_stand_above_and_below_in_a_displayed_formula(sign: str, around: str) -> None:
    formula = around % (sign + " _ { i = 1 } ^ { n } x")
    assert "<munderover>" in to_mathml(formula, display=True)
    assert "<msubsup>" in to_mathml(formula, display=False)


def test_limits_stand_below_in_a_displayed_formula_alone_and_at_the_side_where_it_says_so() -> None:
    assert "<munder><mo>lim</mo>" in to_mathml(r"\lim_{x} x", display=True)
    assert "<munder>" not in to_mathml(r"\lim_{x} x", display=False)
    assert "<msubsup>" in to_mathml(r"{ \sum \nolimits _ { i } ^ { n } x }", display=True)
    assert "<msub>" in to_mathml(r"\int _ { 0 } f", display=True)


@pytest.mark.parametrize("sign", [r"\bigoplus", r"\bigsqcup", r"\biguplus", r"\bigodot", r"\bigcap"])
def test_a_sign_that_grows_is_an_operator(sign: str) -> None:
    assert "<mo>" in to_mathml(sign, display=True)


def test_a_sign_made_of_others_is_a_row_as_html_has_no_formula_in_a_sign() -> None:
    math = ElementTree.fromstring(to_mathml(r"\mathop{\mathrm{a b}}_x \fbox{y} \vec{z}", display=False))
    assert [child.tag for sign in math.iter() if sign.tag in ("mi", "mn", "mo", "mtext") for child in sign] == []


HOSTILE = [
    r"\text{</math><script>alert(1)</script>}",
    r"\text{</mtext></math><img src=x onerror=alert(1)>}",
    r"\mathrm{<style><!--</style>-->}",
    r"<math><mtext><table><mglyph><style><img src=x>",
    r"\href{javascript:alert(1)}{x}",
    r"\style{position:fixed}{x} \class{a}{x}",
    r"\color{red;}x \textcolor{url(https://evil)}{x} \colorbox{white}{x}",
    r"\unicode{x202e} \unicode{60}script\unicode{62} \unicode{xD800} \unicode{0}",
    r"\hspace{-9999em} \kern-500pt \rule{9999em}{9999em} \hspace{1em; x} \raise99999em x",
    "x\x00\x1b[2J\u202e\ud800\ufffe\U0001ffff \x85",
    r'\operatorname{" onload="alert(1)} \begin{array}{"><script>} x \end{array}',
    r"\verb|<script>| \genfrac<>{9999em}{0}{a}{b}",
    r"&lt;script&gt; &#60;script&#62; &amp;lt;b>",
]


@pytest.mark.parametrize("latex", HOSTILE)
def test_a_formula_does_nothing_but_show(latex: str) -> None:
    for display in (True, False):
        assert acting_in(to_mathml(latex, display=display)) == []


def test_no_space_is_so_wide_that_it_covers_other_text() -> None:
    mathml = to_mathml(r"a \hspace{-99em} b \hspace{2em} \rule{999em}{9em}", display=False)
    assert re.findall('(?:width|height)="([^"]*)"', mathml) == ["2em", "9em"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "piece",
    [
        *("{", r"\frac{", r"\sqrt", "x^{", r"\left(", r"\begin{array}{c}", "[", "(", "x'", r"\tag{", r"\text{", "&"),
        *(r"\color{a}{", r"\hat", r"\\", "x", r"\not", r"\begin{", r"\begin{array}{", r"{a\over ", "_", r"\foo "),
        *(r"\operatorname{", r"\mathop{", r"\mathop{{}", r"\sum_"),
    ],
)
def test_no_formula_takes_long_or_ends_the_process(piece: str) -> None:
    started = time.perf_counter()
    for count in (60, 9_990 // len(piece), 200_000):
        made = to_mathml(piece * count, display=True)
        assert len(made) <= 60 * len(piece * count) + 100
    assert time.perf_counter() - started < 3


def test_columns_that_repeat_without_end_are_cut() -> None:
    assert len(to_mathml(r"\begin{array}{*{99}{" + "c" * 9_000 + r"}} a \end{array}", display=True)) < 1_000
