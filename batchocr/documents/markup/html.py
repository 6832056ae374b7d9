r"""Blocks as HTML that may stand in any page, whatever a model wrote.

All text is escaped; the only tags are those written here, those of raised letters, a table's
(`pages/protocol/sanitize.py`) and a formula's (`mathml.py`); no attribute has a value from the model but spans and
numbers. Nothing in it refers to anything. Each block runs from the left or from the right by its own text. An item or a
cell does so by the page's style: a `dir` of its own would take it out of the text by which its list or table is judged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape, unescape
from itertools import groupby
from typing import Final

from batchocr.documents.markup.mathml import shown_characters, to_mathml
from batchocr.pages.kinds import kind_of
from batchocr.pages.protocol.markdown import INLINE_FORMULA, NESTED, code_in, figure_parts, latex_in, nesting
from batchocr.pages.protocol.sanitize import table_structure

_NO_TABLE: Final = "<p><em>A table that could not be parsed, as the model wrote it:</em></p>"

_BULLET: Final = re.compile(r"[•●○◦▪■‣∙][ \t]*")
_TAG: Final = re.compile("(<[^>]*>)")
_RAISED: Final = re.compile(r"&lt;(su[bp])&gt;((?:(?!&[lg]t;).)+)&lt;/\1&gt;")
"""A pattern of raised or lowered letters, escaped."""
_PICTURE: Final = re.compile('<img(?: src="#(?:bbox=)?([^"]*)")?>')


def block_html(type: str, content: str | None, *, level: int | None = None) -> str:
    """The block as HTML; '' for one without content. For a figure: what was read in it. level: of a heading, 1 to 6."""
    text = shown_characters(content or "").strip()
    if not text:
        return ""
    kind = kind_of(type)
    if kind.role == "heading":
        heading = f"h{min(level or kind.level, 6)}"
        return f'<{heading} dir="auto">{inline_html(text)}</{heading}>'
    if kind.role == "formula":
        return f'<div class="formula">{to_mathml(latex_in(text), display=True)}</div>'
    if kind.role == "table":
        return table_html(text) if text.startswith("<table") else _NO_TABLE + _preformatted(text)
    if kind.role == "code":
        code = code_in(text)[1]
        return f"<pre><code>{inline_html(code)}</code></pre>" if kind.has_formulas else _preformatted(code)
    if kind.role == "figure":
        return "".join(block_html(type, part) for type, part in figure_parts(text))
    return _paragraphs(text, joined=kind.role != "list")


def inline_html(text: str) -> str:
    r"""The text as it may stand within a line, with `\( x \)` as a formula."""
    parts = INLINE_FORMULA.split(shown_characters(text))  # text and formulas alternate
    return "".join(
        to_mathml(part, display=False) if index % 2 else _RAISED.sub(r"<\1>\2</\1>", escape(part, quote=False))
        for index, part in enumerate(parts)
    )


def table_html(html: str) -> str:
    """The table with its structure, its text and its formulas. A picture in it is `<span class="picture"
    data-bbox="x0,y0,x1,y1">`, in shares of the page."""
    marked = _PICTURE.sub(
        lambda picture: f'<span class="picture" data-bbox="{picture[1] or ""}"></span>',
        shown_characters(table_structure(html)),
    )
    parts = _TAG.split(marked)  # text and tags alternate
    made = "".join(part if index % 2 else inline_html(unescape(part)) for index, part in enumerate(parts))
    return made.replace("<table>", '<table dir="auto">', 1)


def _paragraphs(text: str, *, joined: bool) -> str:
    """The lines of a text as paragraphs, lines with bullets as lists. joined: whether lines without bullets are one
    paragraph, or one each and may be nested."""
    made, depth = [], 0
    for level, group in groupby(text.split("\n"), key=lambda line: 0 if joined else nesting(line)):
        lines = [line.removeprefix(NESTED * level) for line in group]
        made += ['<div class="nested">' * (level - depth), "</div>" * (depth - level)]
        made += _of_one_level(lines, joined=joined)
        depth = level
    return "".join([*made, "</div>" * depth])


def _of_one_level(lines: Sequence[str], *, joined: bool) -> Iterator[str]:
    for bulleted, group in groupby(lines, key=lambda line: _BULLET.match(line) is not None):
        if bulleted:
            yield _list(list(group))
        else:
            for line in ["\n".join(group)] if joined else group:
                if line.strip():
                    yield f'<p dir="auto">{inline_html(line)}</p>'


def _list(lines: list[str]) -> str:
    items = "".join(f"<li>{inline_html(_BULLET.sub('', line, count=1))}</li>" for line in lines)
    return f'<ul dir="auto">{items}</ul>'


def _preformatted(text: str) -> str:
    return f"<pre><code>{escape(text, quote=False)}</code></pre>"
