"""For text of any kind: nothing in the Markdown made of it is active, and it ends with one newline or is empty."""

from __future__ import annotations

import os
import re
from html import escape, unescape

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from batchocr.data import Block
from batchocr.pages.protocol.markdown import to_markdown
from tests.support.active_markup import active_in
from tests.support.hostile_markdown import COMMANDS, PIECES

NUM_EXAMPLES = 20_000 if os.environ.get("BATCHOCR_FULL") == "1" else 150

COMMANDS_THAT_ACT = re.compile(r"\\(?:href|url|includegraphics|require|style|htmlStyle|mmlToken|bbox|data)(?![A-Za-z])")
CHARACTERS_THAT_ACT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def what_acts(markdown: str) -> set[str]:
    """What is active in the Markdown, for a renderer that lets through everything that Markdown allows."""
    reader = MarkdownIt("commonmark", {"html": True}).enable("table")
    reader.validateLink = lambda url: True  # type: ignore[method-assign]
    html = reader.render(markdown)
    outside_code = re.sub("<pre>.*?</pre>", "", html, flags=re.DOTALL)  # formulas are not rendered there
    outside_code = re.sub("</?(?:t[dhr]|table|caption)[ >]", "\n\\g<0>", outside_code)  # nor over the edges of cells
    shown = unescape(re.sub("<[^>]*>", "", outside_code))
    return active_in(html) | {*COMMANDS_THAT_ACT.findall(shown), *CHARACTERS_THAT_ACT.findall(unescape(html))}


def block(type: str, content: str | None, *, merge_prev: bool = False) -> Block:
    return Block(type, (0.1, 0.1, 0.9, 0.2), 0, content, merge_prev)


FRAGMENTS = st.sampled_from([*PIECES, *COMMANDS])
DISGUISED = st.sampled_from(
    [
        *("&#92;", "&bsol;", r"\h", "&#104;", "ref{x}{y}", r"\hr", "ef{x}{y}", r"\bbox[x]{y}", r"\data{x}{y}", "&#93;"),
        *("&#x202e;", "&#27;", "&#8294;", "&#13;", "&#10;", "&NewLine;", "&Tab;", "&#0;", "&#x85;", "&amp;", "&#40;"),
        *("&lpar;", "&lbrack;", "&rsqb;", "&excl;", "[a]", "(https://x.test)", "&grave;``", "``", "&#96;", "&num;"),
        *("<tbody></tbody>", "<tbody>", "</table>", "</td>", "<tr>", "<td>", "<col>", "<br>", "<sub></sub>", "<td-x>"),
        *("&lt;script>", "&#60;img src=x>", "&colon;", "\n", " ", "a", "$", "|", "\\", r"\href%", "日", "\ud800", "\r"),
        *("<svg/onload=alert(1)>", "<?php", "<![CDATA[", "<form action=//x.test>", "\x00", "\x1b]0;x\x07", "\x9b2J"),
    ]
)
"""Disguises of something active, and text that is dropped from between two halves of it."""

CONTENTS = st.none() | st.lists(FRAGMENTS, max_size=8).map("".join) | st.text(max_size=20)
TYPES = st.sampled_from(["text", "title", "equation", "table", "code", "image", "header", "list_item", "odd <b>"])
TABLES = st.lists(DISGUISED | FRAGMENTS, max_size=12).map(lambda parts: "<table><tr><td>" + "".join(parts))
DISGUISES = st.lists(DISGUISED, max_size=8).map("".join)
BLOCKS = st.lists(
    st.builds(block, TYPES, CONTENTS | DISGUISES, merge_prev=st.booleans())
    | st.builds(block, st.just("table"), TABLES),
    max_size=5,
)
settings.register_profile("text", max_examples=NUM_EXAMPLES, suppress_health_check=[HealthCheck.too_slow])


@given(BLOCKS)
@settings(settings.get_profile("text"))
@example([block("text", "<"), block("text", "script>日", merge_prev=True)])
@example([block("text", "[a]"), block("text", "(javascript:alert(1))日", merge_prev=True)])
@example([block("text", "```"), block("code", "<script>alert(1)</script>")])
@example([block("code", "```a\n```\n<script>alert(1)</script>\n```\nb```")])
@example([block("table", "<table>[a](javascript:alert(1))<tr><td>x</table>")])
@example([block("table", "[a](javascript:alert(1))")])
@example([block("table", "<table><tr><td>\ud800")])
@example([block("table", "<table><tr><td>&#x202e;abc&#27;[31m")])
@example([block("table", "<table><tr><td>$&#92;href{javascript:alert(1)}{x}$")])
@example([block("table", "<table><tr><td>x</td></tr></table>\\hr<tbody></tbody>ef{x}")])
@example([block("table", "<table><tr><td>\\hr</table>ef{x}{y}")])
@example([block("table", "<table><tr><td>\\hr<br>ef{x}{y}")])
@example([block("table", "<table><tr><td>\\<sub>h</sub>ref{x}{y}")])
@example([block("table", "<table><tr><td>a&#13;&#13;[click]&#40;https://evil) ![x]&#40;https://evil/p.png)")])
@example([block("text", "$&#92;href{javascript:alert(1)}{x}$ &#x202e;")])
def test_nothing_in_the_markdown_acts_whatever_a_model_writes(blocks: list[Block]) -> None:
    markdown = to_markdown(blocks)
    assert what_acts(markdown) == set()
    assert not CHARACTERS_THAT_ACT.search(markdown)
    assert markdown == "" or (markdown.endswith("\n") and markdown.strip() and not markdown.endswith("\n\n"))


@given(st.lists(st.text(st.sampled_from("ab 5<6>=.,;:日é-+'\"{}"), min_size=1, max_size=12), min_size=1, max_size=4))
@settings(settings.get_profile("text"))
def test_plain_text_is_shown_as_it_was_read(lines: list[str]) -> None:
    text = "x " + " ".join(" ".join(lines).split()) + " x"
    shown = re.sub("<[^>]*>", "", MarkdownIt("commonmark", {"html": False}).render(to_markdown([block("text", text)])))
    assert unescape(shown).strip() == text


@given(st.lists(st.text(st.sampled_from('ab 5<6>=+#*_`~$&;|!?:日é"'), min_size=1, max_size=12), min_size=1, max_size=4))
@settings(settings.get_profile("text"))
def test_every_line_is_shown_with_the_signs_that_it_was_read_with(lines: list[str]) -> None:
    text = "\n".join(" ".join(line.split()) for line in lines if line.strip())
    shown = MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(to_markdown([block("text", text)]))
    assert shown.strip() == (f"<p>{escape(text)}</p>" if text else "")
