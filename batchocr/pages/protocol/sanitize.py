r"""A model's text made inert: nothing in it is active when a browser shows the Markdown, and all of it stays readable.

What a model writes may have been put on the page by a stranger for it to read. The Markdown therefore contains no HTML
but tables, and raised and lowered letters in text; no links but those within the page; no attribute lists, divs or
metadata of Markdown's dialects; no LaTeX commands that load, link, style or define; no control characters but the line
break and the tab. Markup that is refused is spelt out, not dropped: `<script>` is shown as these letters. Code needs
none of this: `markdown.py` fences it, and nothing is active within a fence.

Signs of Markdown in text mean themselves. As in MinerU, ``* _ ` ~ $`` are escaped unless a backslash of the model's is
before them already, or they are in a formula; `markdown.py` sees to those that count at the start of a line. Other
backslashes stay as they are.
"""

from __future__ import annotations

import re
from typing import Final

import nh3

from batchocr.data import valid_text
from batchocr.pages.protocol.attribute_lists import without_lists, without_lists_in_html, without_values

_TABLE_TAGS: Final = frozenset(
    ("table", "caption", "colgroup", "col", "thead", "tbody", "tfoot", "tr", "th", "td", "img", "br", "sub", "sup")
)
_SPAN: Final = re.compile("[0-9]{1,4}")
_WITHIN_PAGE: Final = re.compile("#[a-z0-9=,.-]*")

# C0 and C1, which a terminal obeys, and what reorders the letters of a line, which deceives a reader.
_CONTROLS: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_TAG_START: Final = re.compile("<(?=[A-Za-z/!?])")
_TAG_IN_TEXT: Final = re.compile(rf"(<(su[bp])>[^<>\n]+</\2>)|{_TAG_START.pattern}")
"""Raised or lowered letters, in the group, or the beginning of any other tag."""
_NO_TABLE_TAG: Final = re.compile(rf"<(?!/?(?:{'|'.join(sorted(_TABLE_TAGS))})(?![^\t\n\f />]))", re.IGNORECASE)
# A Markdown renderer resolves these to characters, which a formula renderer that runs after it then reads.
_REFERENCE: Final = re.compile("&(?=#[0-9]|#[Xx][0-9A-Fa-f]|bsol;)")
_ANY_REFERENCE: Final = re.compile("&(?=#[0-9]|#[Xx][0-9A-Fa-f]|[A-Za-z][A-Za-z0-9]*;)")
_SIGN: Final = re.compile(r"(\\\[(?:(?!\\[\[\]]).)+\\\])|(?<!\\)(?:\\\\)*(?=[*_`~$])", re.DOTALL)
"""Where a backslash is needed; or, in the group, a formula that the model wrote in a text."""
_LINK_JOINT: Final = re.compile(r"\](?=[(:])")
_FENCE: Final = re.compile("`{3,}|~{3,}")
_METADATA: Final = re.compile(r"-(?<![^\n>]-)(?=--[ \t]*$)", re.MULTILINE)
"""What pandoc may take for the beginning of a document's settings, among them scripts and style sheets."""
_ACTIVE_COMMAND: Final = re.compile(
    r"\\(?=(?:href|url|includegraphics|require|csname|mmlToken|style|class|cssId|bbox|data|html(?:Class|Data|Id|Style)"
    r"|unicode|enclose|[A-Za-z]*color(?:box)?|[a-z]?def|let|(?:re)?new(?:command|environment)|Declare[A-Za-z]+)"
    r"(?![A-Za-z])|[bx]?cancel(?:to)?\s*\[)"
)
_TAG: Final = re.compile("</?[a-z][^>]*>")
_COMMAND: Final = re.compile(rf"\\(?:[A-Za-z\s]+|{_TAG.pattern})*\[?")
"""A backslash and the letters behind it, also behind tags of a table: whoever takes out the text drops the tags."""


def harmless_characters(text: str) -> str:
    """The text without control characters, except line breaks and tabs, and without those that reorder letters. Lone
    surrogates, which no file can hold, are escaped."""
    return valid_text(_CONTROLS.sub("", text))


def inert_text(text: str, *, before_formula: bool = False) -> str:
    r"""Text in which no HTML, link, attribute, div, fence or LaTeX command is active, and no sign of Markdown. "5 < 6"
    stays as it is, "<b>" becomes "&lt;b>", "5*3" becomes "5\*3", "m<sup>2</sup>" is raised: a pair on one line, without
    attributes and other tags in it. before_formula: an attribute list that begins in it may go on in a formula."""
    text = _inert(_TAG_IN_TEXT.sub(lambda tag: tag[1] or "&lt;", _ANY_REFERENCE.sub("&amp;", text)))
    text = _METADATA.sub(r"\-", text).replace(":::", r"\:::")
    text = without_lists(text, goes_on=before_formula)
    return _SIGN.sub(lambda found: found[0] if found[1] else f"{found[0]}\\", text)


def inert_formula(latex: str) -> str:
    """The formula, in which nothing but mathematics is active. Inserted spaces see to that; LaTeX ignores them."""
    latex = _inert(_TAG_START.sub("< ", _REFERENCE.sub("& ", latex))).replace(":::", ":{}:{}:")
    return without_values(latex)


def inert_table(html: str) -> str:
    """The table with its structure only: spans, and pictures that refer to a place on the page.

    A tag that does not belong in a table becomes text; a tag left open is closed. No line is blank: a blank line would
    end the HTML for a Markdown reader.
    """
    cleaned = table_structure(html)
    if "<tbody" not in html.lower():  # HTML requires it, but MinerU writes none
        cleaned = cleaned.replace("<tbody>", "").replace("</tbody>", "")
    # Only now is the text what a browser will see: characters like `&#92;` are resolved, tags between others dropped.
    text = without_blank_lines(_inert(harmless_characters(cleaned)))
    return without_lists_in_html(_METADATA.sub("&#45;", text).replace(":::", "&#58;::"))


def table_structure(html: str) -> str:
    """The table's tags, spans and pictures, well-formed; every other tag is text."""
    return nh3.clean(
        _NO_TABLE_TAG.sub("&lt;", html),
        tags=set(_TABLE_TAGS),
        clean_content_tags=set(),
        attributes={"td": {"colspan", "rowspan"}, "th": {"colspan", "rowspan"}, "img": {"src"}},
        attribute_filter=_allowed_value,
        link_rel=None,
    )


def without_blank_lines(text: str) -> str:
    """The text without blank lines, which a Markdown reader takes for the end of a formula or of HTML."""
    return "\n".join(line for line in text.split("\n") if line.strip())


def _allowed_value(_tag: str, attribute: str, value: str) -> str | None:
    allowed = _WITHIN_PAGE if attribute == "src" else _SPAN
    return value if allowed.fullmatch(value) else None


def _inert(text: str) -> str:
    def parted(command: re.Match[str]) -> str:
        is_active = _ACTIVE_COMMAND.match(_TAG.sub("", command[0]))
        return command[0].replace("\\", "\\ ") if is_active else command[0]

    text = _LINK_JOINT.sub("] ", text)
    text = _FENCE.sub(r"\\\g<0>", text)
    return _COMMAND.sub(parted, text)
