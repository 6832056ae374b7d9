r"""Attribute lists of Markdown's dialects, `{onclick="…" .class}`, made letters.

Depending on the dialect, they work behind headings, paragraphs, emphasis, brackets or any word: in pandoc,
Python-Markdown's extra, kramdown, markdown-it-attrs. In text the brace is escaped. In a formula `\{` would be another
thing than `{`: there a space, which LaTeX ignores and no dialect allows, takes the value from it: `onclick ="…"`.
"""

from __future__ import annotations

import re
from typing import Final

_UP_TO_BRACE: Final = re.compile(r"(?:[^}\\]+|\\.|\\\Z)+", re.DOTALL)
"""What a list may stretch over. Each function goes through these once: many braces take no quadratic time."""
_VALUE: Final = re.compile(r"(?<=[A-Za-z]{2})=|=(?=[\"'])")
"""The `=` of an attribute that could do something: behind a name of two letters or more, or before a quote. Not that of
`i=1` below a sum."""
_BRACE: Final = re.compile(r"(?<!\\)((?:\\\\)*)\{")
_FREE_BRACE: Final = re.compile(r"(?<![\\\w^}])((?:\\\\)*)\{")
"""A brace that is not within or behind a LaTeX command, as there may be in a text whose formulas have other signs."""
_WITHOUT_VALUE: Final = re.compile(
    r"(?<!\\)((?:\\\\)*)(?:(?<![\w^}])\{(?=[ \t]*[:#.%]|[^{}\n]*\}[ \t#|]*$)|(?<=[*`)~\]])\{)", re.MULTILINE
)
"""Attribute lists that do nothing, but would vanish: `{#id}`, and any behind emphasis or at the end of a line."""
_ESCAPED: Final = r"\1\\{"


def without_lists(text: str, *, goes_on: bool) -> str:
    """The Markdown text with the braces escaped that begin a list. goes_on: the rest of a list may follow the text."""

    def escaped(match: re.Match[str]) -> str:
        part = match[0]
        to_value = len(part) if goes_on and match.end() == len(text) else _end_of_last_value(part)
        to_equals = max(to_value, part.rfind("="))
        between = _FREE_BRACE.sub(_ESCAPED, part[to_value:to_equals])
        return _BRACE.sub(_ESCAPED, part[:to_value]) + between + part[to_equals:]

    return _WITHOUT_VALUE.sub(_ESCAPED, _UP_TO_BRACE.sub(escaped, text))


def without_lists_in_html(html: str) -> str:
    """The HTML with the braces as references that begin a list with values: pandoc reads Markdown in HTML."""

    def escaped(match: re.Match[str]) -> str:
        end = _end_of_last_value(match[0])
        return match[0][:end].replace("{", "&#123;") + match[0][end:]

    return _UP_TO_BRACE.sub(escaped, html)


def without_values(latex: str) -> str:
    """The formula, the same to LaTeX, in which no attribute of two letters or more has a value."""

    def parted(match: re.Match[str]) -> str:
        before, brace, inside = match[0].partition("{")
        return before + brace + _VALUE.sub(" =", inside)

    return _UP_TO_BRACE.sub(parted, latex)


def _end_of_last_value(text: str) -> int:
    return max((match.end() for match in _VALUE.finditer(text)), default=0)
