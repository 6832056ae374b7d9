r"""A model's text made inert: nothing in it acts where a browser shows the Markdown, and all of it stays readable.

What a model writes, a stranger may have put on the page for it to read. Of HTML the Markdown therefore holds tables
only; of links, only those that point within the page; of LaTeX, no command that loads, links or styles; of control
characters, the line break and the tab. What is refused is spelt out, not dropped: `<script>` is shown as these letters.
Code needs none of this: `output/markdown.py` fences it, and within a fence nothing acts.
"""

from __future__ import annotations

import re
from typing import Final

import nh3

_TABLE_TAGS: Final = frozenset(
    ("table", "caption", "colgroup", "col", "thead", "tbody", "tfoot", "tr", "th", "td", "img", "br", "sub", "sup")
)
_SPAN: Final = re.compile("[0-9]{1,4}")
_WITHIN_PAGE: Final = re.compile("#[a-z0-9=,.-]*")

# C0 and C1, and what reorders the letters of a line. A terminal obeys the former, a reader is deceived by the latter.
_CONTROLS: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_TAG_START: Final = re.compile("<(?=[A-Za-z/!?])")
_NO_TABLE_TAG: Final = re.compile(rf"<(?!/?(?:{'|'.join(sorted(_TABLE_TAGS))})(?![^\t\n\f />]))", re.IGNORECASE)
# A Markdown renderer writes out what these stand for, and a formula renderer that comes after it reads that.
_REFERENCE: Final = re.compile("&(?=#[0-9]|#[Xx][0-9A-Fa-f]|bsol;)")
_LINK_JOINT: Final = re.compile(r"\](?=[(:])")
_FENCE: Final = re.compile("`{3,}|~{3,}")
_ACTIVE_COMMAND: Final = re.compile(
    r"\\(?=(?:href|url|includegraphics|require|csname|mmlToken|style|class|cssId|bbox|data|html(?:Class|Data|Id|Style))"
    r"(?![A-Za-z]))"
)


def harmless_characters(text: str) -> str:
    """The text without control characters, but for line breaks and tabs, and without those that reorder letters. Lone
    surrogates, which no file can hold, are spelt out."""
    return _CONTROLS.sub("", text).encode("utf-8", "backslashreplace").decode()


def inert_text(text: str) -> str:
    """Text in which no HTML, link, fence or LaTeX command acts. "5 < 6" stays as it is, "<b>" becomes "&lt;b>"."""
    return _inert(_TAG_START.sub("&lt;", _REFERENCE.sub("&amp;", text)))


def inert_formula(latex: str) -> str:
    """The formula, in which nothing but mathematics acts. It is spaces that see to it, and LaTeX overlooks them."""
    return _inert(_TAG_START.sub("< ", _REFERENCE.sub("& ", latex)))


def inert_table(html: str) -> str:
    """The table with its structure only: spans, and pictures that are a place on the page.

    A tag that is none of a table's becomes text; a tag left open is closed. No line is blank: it would end the HTML for
    a Markdown reader.
    """
    cleaned = nh3.clean(
        _NO_TABLE_TAG.sub("&lt;", html),
        tags=set(_TABLE_TAGS),
        clean_content_tags=set(),
        attributes={"td": {"colspan", "rowspan"}, "th": {"colspan", "rowspan"}, "img": {"src"}},
        attribute_filter=_allowed_value,
        link_rel=None,
    )
    if "<tbody" not in html.lower():  # HTML demands it, but MinerU writes none
        cleaned = cleaned.replace("<tbody>", "").replace("</tbody>", "")
    # Only now is the text what a browser will see: characters were written as `&#92;`, tags between others dropped.
    return without_blank_lines(_inert(harmless_characters(cleaned)))


def without_blank_lines(text: str) -> str:
    """The text without its blank lines, at which a Markdown reader takes a formula, or HTML, to end."""
    return "\n".join(line for line in text.split("\n") if line.strip())


def _allowed_value(_tag: str, attribute: str, value: str) -> str | None:
    allowed = _WITHIN_PAGE if attribute == "src" else _SPAN
    return value if allowed.fullmatch(value) else None


def _inert(text: str) -> str:
    text = _LINK_JOINT.sub("] ", text)
    text = _FENCE.sub(r"\\\g<0>", text)
    return _ACTIVE_COMMAND.sub(r"\\ ", text)
