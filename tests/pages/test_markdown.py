"""Blocks as Markdown."""

from __future__ import annotations

import time
from html import escape

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from mineru_vl_utils.post_process.json2markdown import json2md

from batchocr.data import Block
from batchocr.pages.protocol.markdown import to_markdown


def block(type: str, content: str | None, *, merge_prev: bool = False) -> Block:
    return Block(type, (0.1, 0.1, 0.9, 0.2), 0, content, merge_prev)


def markdown(type: str, content: str | None) -> str:
    return to_markdown([block(type, content)])


def test_blocks_follow_each_other_with_a_blank_line_between_and_one_newline_at_the_end() -> None:
    assert to_markdown([block("text", "One."), block("text", "Two.")]) == "One.\n\nTwo.\n"


def test_a_page_without_blocks_is_empty() -> None:
    assert to_markdown([]) == ""


def test_blocks_without_content_vanish() -> None:
    assert to_markdown([block("text", None), block("list", None), block("text", " \n"), block("title", "")]) == ""


def test_what_belongs_to_the_sheet_is_left_out_and_footnotes_stay() -> None:
    sheet = [block(type, "x") for type in ("header", "footer", "page_number", "aside_text")]
    assert to_markdown([*sheet, block("page_footnote", "* A note.")]) == "\\* A note.\n"


def test_headings_are_marked_and_take_one_line() -> None:
    assert markdown("doc_title", "On\nSundials") == "# On Sundials\n"
    assert markdown("title", "1  A clock") == "# 1 A clock\n"
    assert markdown("paragraph_title", "Noon") == "## Noon\n"


def test_display_formulas_stand_between_double_dollars_without_blank_lines() -> None:
    assert markdown("equation", "\\[\na = b\n\n+ c\n\\]") == "$$\na = b\n+ c\n$$\n"
    assert markdown("equation", "\\[\n\n\\]") == ""


def test_inline_formulas_stand_between_dollars_without_inner_space() -> None:
    assert markdown("text", r"Let \( x \) be \(y_1\), \[1, 2\].") == "Let $x$ be $y_1$, \\[1, 2\\].\n"
    assert markdown("title", r"The \( n \)-th hour") == "# The $n$-th hour\n"
    assert markdown("text", r"open \( a, open \( b \)") == r"open \( a, open $b$" + "\n"


def test_tables_stay_html_in_one_piece() -> None:
    html = "<table><tr><td>a\n\nb \\( x \\)</td></tr></table>"
    assert markdown("table", html) == "<table><tr><td>a\nb \\( x \\)</td></tr></table>\n"


def test_figures_point_to_their_block() -> None:
    blocks = [block("header", "h"), block("image", None), block("image_caption", "Figure 1."), block("chart", None)]
    assert to_markdown(blocks) == "![image](#block-1)\n\nFigure 1.\n\n![chart](#block-3)\n"


def test_code_stands_in_fences_longer_than_those_inside() -> None:
    assert markdown("code", "a = 1\n\nb = 2") == "```\na = 1\n\nb = 2\n```\n"
    assert markdown("code", "see ```` here") == "`````\nsee ```` here\n`````\n"
    assert markdown("code", "```python\na = 1\n```") == "```python\na = 1\n```\n"


def test_bullets_become_list_items() -> None:
    assert markdown("text", "• a spirit level;\n•a pencil") == "- a spirit level;\n- a pencil\n"


@pytest.mark.parametrize("type", ["text", "list", "image_caption"])
@pytest.mark.parametrize(
    "printed",
    [
        "The crate is 5*3*2 feet, and __init__ is a name.",
        "The ~~old~~ fare is $4, the new one $5$.",
        "# of passengers: 40\n+ 3 degrees at noon\n> 5 apples",
        "Fares\n=====\nTolls\n-\nTaxes\n----",
        "AT&amp;T, &copy; and `code`",
    ],
)
def test_signs_of_markdown_in_text_are_shown_as_they_were_printed(type: str, printed: str) -> None:
    assert MarkdownIt().render(markdown(type, printed)) == f"<p>{escape(printed, quote=False)}</p>\n"


def test_signs_of_markdown_in_a_heading_are_shown_as_they_were_printed() -> None:
    assert MarkdownIt().render(markdown("title", "*C* and C #")) == "<h1>*C* and C #</h1>\n"


def test_a_sign_that_the_model_escaped_itself_is_not_escaped_again() -> None:
    assert markdown("text", r"5\*3 \\* x \(a_1\)*") == r"5\*3 \\\* x $a_1$\*" + "\n"


def test_a_dash_is_an_item_where_the_model_wrote_a_list() -> None:
    assert markdown("text", "- Well, he said.") == "\\- Well, he said.\n"
    assert markdown("text", "- one\n- two") == "- one\n- two\n"
    assert markdown("list", "- one") == "- one\n"


def test_a_continued_text_joins_the_last_text_before_it() -> None:
    blocks = [
        block("text", "it comes out of its drawer, because"),
        block("table", "<table></table>"),
        block("title", "Aside"),
        block("text", "slate does not forgive.", merge_prev=True),
    ]
    assert to_markdown(blocks) == (
        "it comes out of its drawer, because slate does not forgive.\n\n<table></table>\n\n# Aside\n"
    )


def test_a_continued_chinese_text_joins_without_a_space() -> None:
    assert (
        to_markdown([block("text", "日晷有一个"), block("text", "活动部件", merge_prev=True)]) == "日晷有一个活动部件\n"
    )


def test_a_text_that_continues_nothing_is_a_paragraph() -> None:
    assert to_markdown([block("title", "A"), block("text", "b", merge_prev=True)]) == "# A\n\nb\n"


def test_html_in_text_is_shown_as_letters_and_a_comparison_stays_as_it_is() -> None:
    assert markdown("text", "<script>alert(1)</script>") == "&lt;script>alert(1)&lt;/script>\n"
    assert markdown("title", "<b>5 < 6") == "# &lt;b>5 < 6\n"
    assert markdown("text", "<!-- a --> 1<2 i <3 x<y") == "&lt;!-- a --> 1<2 i <3 x&lt;y\n"


def test_raised_and_lowered_letters_stay_but_only_as_plain_pairs_on_a_line() -> None:
    for printed in ("of 3 m<sup>2</sup> a day", "CO<sub>2</sub> and H<sub>2</sub>O", "<sup>1</sup> A note."):
        assert markdown("text", printed) == f"{printed}\n"
    for printed, shown in [
        ("<sup>1", "&lt;sup>1"),
        ("1</sup>", "1&lt;/sup>"),
        ("<sup>1</sub>", "&lt;sup>1&lt;/sub>"),
        ("<sup></sup>", "&lt;sup>&lt;/sup>"),
        ("<sup>a\n\nb</sup>", "&lt;sup>a\n\nb&lt;/sup>"),
        ("<sup onclick=evil()>1</sup>", "&lt;sup onclick=evil()>1&lt;/sup>"),
        ("<SUP>1</SUP>", "&lt;SUP>1&lt;/SUP>"),
        ("<sup><b>1</b></sup>", "&lt;sup>&lt;b>1&lt;/b>&lt;/sup>"),
        ("<sup>5*3</sup>", "<sup>5\\*3</sup>"),
        ("\\hr<sup>ef{https://evil}</sup>{x}", "\\ hr<sup>ef{https://evil}</sup>\\{x}"),
    ]:
        assert markdown("text", printed) == f"{shown}\n"


def test_no_link_leads_out_of_the_page() -> None:
    assert markdown("text", "[a](javascript:alert(1)) ![b](//x.test)") == "[a] (javascript:alert(1)) ![b] (//x.test)\n"
    assert markdown("text", "[1]: http://x.test") == "[1] : http://x.test\n"
    assert markdown("text", "see [1], [2]") == "see [1], [2]\n"


def test_a_formula_keeps_its_mathematics_and_loses_what_loads_or_links() -> None:
    assert markdown("equation", "\\[ a<b, [x](y) \\]") == "$$\na< b, [x] (y)\n$$\n"
    assert markdown("text", r"\( \href{javascript:alert(1)}{x} \)") == "$\\ href{javascript:alert(1)}{x}$\n"
    assert markdown("equation", r"\bbox[x]{y} \data{a} \database") == "$$\n\\ bbox[x]{y} \\ data{a} \\database\n$$\n"
    assert markdown("equation", r"\hrefs \urls \left[ a \right]") == "$$\n\\hrefs \\urls \\left[ a \\right]\n$$\n"


def test_attribute_lists_and_divs_in_text_are_letters() -> None:
    assert markdown("title", 'A {onclick="x"}') == '# A \\{onclick="x"}\n'
    assert markdown("text", "pay\n{: .a style=x }") == "pay\n\\{: .a style=x }\n"
    assert markdown("text", "[x]{.a} `b`{=html} *c*{#d}") == r"[x]\{.a} \`b\`\{=html} \*c\*\{#d}" + "\n"
    assert markdown("text", "::: {.a}\nb\n:::") == "\\::: \\{.a}\nb\n\\:::\n"
    assert markdown("text", "---\ncss: x\n---") == "\\---\ncss: x\n\\---\n"


def test_an_attribute_list_is_no_longer_one_however_it_is_escaped_or_nested() -> None:
    assert markdown("title", r"A \{on=x} \\{on=x}") == r"# A \{on=x} \\\{on=x}" + "\n"
    assert markdown("title", "A {a{ on=x}") == "# A \\{a\\{ on=x}\n"
    assert markdown("title", r"A {a \( on=x} \)") == "# A \\{a $on=x}$\n"
    assert markdown("title", r"A \( x {a \) on=x}") == r"# A \( x \{a \) on=x}" + "\n"


def test_braces_that_are_no_attribute_list_stay_as_they_are() -> None:
    assert markdown("text", "the set {1, 2} and f{x} = y^{2}") == "the set {1, 2} and f{x} = y^{2}\n"
    assert markdown("text", r"\[ \sum_{i=1}^{n} \frac{a}{b} \]") == r"\[ \sum_{i=1}^{n} \frac{a}{b} \]" + "\n"


def test_an_attribute_in_a_formula_gets_no_value_and_the_formula_stays_the_same() -> None:
    latex = r"\sum_{i=1}^{n} \sqrt[3]{x} \left\{ a \right\}"
    assert markdown("text", rf"\( {latex} \)") == f"${latex}$\n"
    assert markdown("text", r"\( *a*{onclick=x} \underset{'={}} \)") == r"$*a*{onclick =x} \underset{'={}}$" + "\n"
    assert markdown("text", "\\( a\n\n# b\n\\)") == "$a # b$\n"
    assert cell('{onclick="x"} $x_{i=1}$ :::\n---\nb') == (
        '<table><tr><td>&#123;onclick="x"} $x_{i=1}$ &#58;::\n&#45;--\nb</td></tr></table>\n'
    )


@pytest.mark.parametrize(
    "command",
    [
        *(r"\unicode[x]{65}", r"\color{red}", r"\textcolor{a}{b}", r"\fcolorbox{a}{b}{c}", r"\rowcolor{a}"),
        *(r"\cancel [a]{x}", r"\enclose{a}[b]{c}", r"\def\a{b}", r"\let\a\b", r"\newcommand{a}{b}"),
    ],
)
def test_commands_that_style_or_define_are_letters(command: str) -> None:
    assert markdown("text", rf"\( {command} \)") == f"$\\ {command[1:]}$\n"


def test_commands_that_only_look_like_those_stay() -> None:
    latex = r"\cancel{x} \left( \deg \databar \boldsymbol{x} \unicodes"
    assert markdown("text", rf"\( {latex} \)") == f"${latex}$\n"


def test_code_that_a_renderer_would_draw_has_no_language() -> None:
    assert markdown("code", "```Mermaid\na\n```") == "```\na\n```\n"


def test_a_table_keeps_its_structure_only() -> None:
    html = (
        '<table onclick="x"><tr><td colspan=2 rowspan="3" style="x">5 &lt; 6 <script>x</script></td>'
        '<td><img src="#bbox=0,0.1,1,1e-05"/><img src="http://x.test/a.png"/></td></tr></table>'
    )
    assert markdown("table", html) == (
        '<table><tr><td colspan="2" rowspan="3">5 &lt; 6 &lt;script&gt;x&lt;/script&gt;</td>'
        '<td><img src="#bbox=0,0.1,1,1e-05"><img></td></tr></table>\n'
    )


def test_a_table_that_is_cut_off_is_closed() -> None:
    blocks = [block("table", "<table><tr><td>a<td>b"), block("text", "after")]
    assert to_markdown(blocks) == "<table><tr><td>a</td><td>b</td></tr></table>\n\nafter\n"
    assert markdown("table", "<table><tbody><tr><td>a") == "<table><tbody><tr><td>a</td></tr></tbody></table>\n"


def cell(content: str) -> str:
    """The Markdown of a table with this one cell."""
    return markdown("table", f"<table><tr><td>{content}</td></tr></table>")


def test_a_table_holds_no_control_character_however_it_is_written() -> None:
    assert cell("&#x202e;abc&#27;[31m&#x9b;2J&#8294;&#127;") == "<table><tr><td>abc[31m›2J</td></tr></table>\n"


@pytest.mark.parametrize(
    "command", ["&#92;href{a}", "&bsol;href{a}", "\\h&#114;ef{a}", "\\&#104;ref{a}", "\\h&#27;ref{a}"]
)
def test_a_formula_in_a_table_has_no_active_command_however_it_is_written(command: str) -> None:
    assert cell(f"${command}$") == "<table><tr><td>$\\ href{a}$</td></tr></table>\n"


@pytest.mark.parametrize(
    "dropped", ["<tbody></tbody>", "</td>", "<tr>", "<col>", "</caption>", "<td-x>", "<thead><tbody>"]
)
def test_tags_that_a_table_loses_join_no_command_and_no_link(dropped: str) -> None:
    html = f"<table><tr><td>x</td></tr></table>\\hr{dropped}ef{{x}} [a]{dropped}(https://evil) ``{dropped}`"
    made = markdown("table", html)
    assert "\\href" not in made and "](" not in made
    assert "```" not in made.replace("\\```", "")


def test_no_blank_line_ends_a_table_however_it_is_written() -> None:
    blank = "a&#13;&#13;[b]&#40;https://evil) ![x]&#40;https://evil/p.png)"
    assert cell(blank) == "<table><tr><td>a[b] (https://evil) ![x] (https://evil/p.png)</td></tr></table>\n"
    assert cell("a&#10;&#9;&#x0a;&NewLine;&#12;&#10;b") == "<table><tr><td>a\nb</td></tr></table>\n"


def test_a_character_reference_in_text_writes_no_command_and_no_reordering() -> None:
    assert markdown("text", r"$&#92;href{a}{x}$ &bsol;url \h&#X72;ef") == (
        "\\$&amp;#92;href{a}{x}\\$ &amp;bsol;url \\h&amp;#X72;ef\n"
    )
    assert markdown("text", "a&#x202e;b < R&#D") == "a&amp;#x202e;b < R&#D\n"
    assert markdown("text", r"\( a &#92;href{x} \)") == "$a & #92;href{x}$\n"


def test_what_a_model_fenced_itself_ends_with_the_block() -> None:
    assert markdown("code", "```html\n```\n<b>\n```\nx\n```") == "````html\n```\n<b>\n```\nx\n````\n"
    assert to_markdown([block("text", "```"), block("code", "<b>")]) == "\\`\\`\\`\n\n```\n<b>\n```\n"


def test_characters_that_command_a_terminal_or_reorder_letters_are_left_out() -> None:
    assert markdown("text", "a\x1b[2J\x00\x9b\u202eb\tc\nd\ud800") == "a[2Jb\tc\nd\\ud800\n"


PLAIN_TEXTS = st.lists(st.builds(block, st.just("text"), st.text("ab 日"), merge_prev=st.booleans()))


@given(PLAIN_TEXTS)
@settings(max_examples=60)
def test_plain_texts_are_joined_as_json2md_joins_them(blocks: list[Block]) -> None:
    stripped = [{"type": "text", "content": (b.content or "").strip(), "merge_prev": b.merge_prev} for b in blocks]
    assert to_markdown(blocks).rstrip("\n") == json2md(stripped)


def test_formulas_opened_and_never_closed_take_no_quadratic_time() -> None:
    content = "\\( a " * 60_000
    started = time.perf_counter()
    assert markdown("text", content) == content.strip() + "\n"
    assert time.perf_counter() - started < 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "piece", ["{ a", "{=", "a= ", "\\\\", "\\{", "{x}", "{  ", ":::", "---\n", "{a b=", "`{", "\\[ *", "&a"]
)
def test_braces_without_end_take_no_quadratic_time(piece: str) -> None:
    started = time.perf_counter()
    for type in ("text", "equation", "table"):
        assert len(markdown(type, ("<table><tr><td>" * (type == "table")) + piece * 60_000)) >= 60_000
    assert time.perf_counter() - started < 5
