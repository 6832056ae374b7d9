r"""LaTeX formulas as MathML that may stand in a page of HTML, whatever a model wrote.

latex2mathml parses, and only what stands in the lists below is written of its elements: no link, no style, no colour,
no size that covers other text. math-core, the other kept library, ended the process at 3,000 nested commands and never
ended at 40 brackets that are not closed (version 0.9); latex2mathml raises at worst.
"""

from __future__ import annotations

import re
from functools import lru_cache
from html import escape, unescape
from typing import Final
from xml.etree.ElementTree import Element

from latex2mathml.converter import Converter

from batchocr.documents.markup.characters import shown_characters
from batchocr.documents.markup.latex import understood
from batchocr.documents.markup.letters import styled

_MAX_CHARACTERS: Final = 10_000
"""Of a formula that is parsed: some take latex2mathml quadratic time. A full page of mathematics has 3,000."""

_SHORT: Final = 100

_MAX_DEPTH: Final = 100
"""Of elements in elements. Deeper, a parser's own limit would depend on who calls it."""

_DEFINITION: Final = re.compile(
    r"\\(?:[a-z]*def|(?:re|provide)?new[a-z]+|newenvironment|let|Declare[A-Za-z]+)(?![A-Za-z])"
)
"""What defines macros: a few that expand into each other would fill the memory."""

_ELEMENTS: Final = frozenset(
    {
        *("math", "mrow", "mi", "mn", "mo", "mtext", "mspace", "mstyle", "mpadded", "mphantom", "mfrac", "msqrt"),
        *("mroot", "msub", "msup", "msubsup", "munder", "mover", "munderover", "mtable", "mtr", "mtd", "menclose"),
    }
)
_TOKENS: Final = frozenset({"mi", "mn", "mo", "mtext"})
_LARGE: Final = frozenset("⨀⨁⨄⨆")
"""Signs that grow in a displayed formula, and that latex2mathml takes for letters."""
_YES_OR_NO: Final = re.compile("true|false")
_LENGTH: Final = re.compile(r"(?:-?\d|\+?\d\d?)?(?:\.\d{1,4})?(?:em|ex|px|pt|mm|cm)|0")
_ATTRIBUTES: Final = {
    "accent": _YES_OR_NO,
    "columnalign": re.compile("left|center|right"),
    "depth": _LENGTH,
    "display": re.compile("block|inline"),
    "displaystyle": _YES_OR_NO,
    "fence": _YES_OR_NO,
    "form": re.compile("prefix|infix|postfix"),
    "height": _LENGTH,
    "largeop": _YES_OR_NO,
    "linethickness": _LENGTH,
    "lspace": _LENGTH,
    "mathvariant": re.compile("normal"),
    "maxsize": _LENGTH,
    "minsize": _LENGTH,
    "movablelimits": _YES_OR_NO,
    "notation": re.compile("box|updiagonalstrike|downdiagonalstrike|updiagonalstrike downdiagonalstrike"),
    "rspace": _LENGTH,
    "scriptlevel": re.compile("[0-3]"),
    "separator": _YES_OR_NO,
    "stretchy": _YES_OR_NO,
    "symmetric": _YES_OR_NO,
    "voffset": _LENGTH,
    "width": _LENGTH,
}
"""Attributes of MathML Core that change nothing but the formula, and `columnalign` and `notation`, which the style
sheet heeds."""

MATHML_STYLE: Final = """\
math {
  font-family: "STIX Two Math", "Cambria Math", "Latin Modern Math", "Libertinus Math", "DejaVu Math TeX Gyre", math;
  font-size: 1.05em;
}
math[display="block"] { margin: 0.6em 0; }
mtd[columnalign="left"] { text-align: -webkit-left; text-align: left; justify-items: start; }
mtd[columnalign="right"] { text-align: -webkit-right; text-align: right; justify-items: end; }
menclose[notation="box"] { border: 1px solid; padding: 0.15em; }
menclose[notation*="strike"] { text-decoration: line-through; }
"""
"""A style sheet for pages with formulas."""


def to_mathml(latex: str, *, display: bool) -> str:
    """The formula as a `math` element; one that cannot be parsed as it is, in a `code` element."""
    source = shown_characters(latex).strip()
    made = (_remembered if len(source) <= _SHORT else _parsed)(source, display)
    return made or f'<code class="formula">{escape(source, quote=False)}</code>'


def _parsed(latex: str, display: bool) -> str | None:
    """None if it cannot be parsed, is too long or too deep, or defines commands."""
    if not latex or len(latex) > _MAX_CHARACTERS or _DEFINITION.search(latex):
        return None
    try:
        converter = Converter(display="block" if display else "inline")
        made = _written(converter.convert_to_element(understood(latex, display=display)))
    except Exception:  # noqa: BLE001 (boundary: a formula; latex2mathml raises whatever its code runs into)
        return None
    return shown_characters(made)  # once more: commands name characters too


_remembered = lru_cache(maxsize=4096)(_parsed)
"""Of short formulas, which a document repeats."""


def _written(element: Element, depth: int = 0) -> str:
    """The element with what is in it. One that is not in the list is a row, and so is a letter or sign made of others:
    HTML has no MathML within those."""
    if depth > _MAX_DEPTH:
        raise ValueError("nested too deeply")
    is_row = element.tag not in _ELEMENTS or (element.tag in _TOKENS and len(element) > 0)
    text = unescape(element.text or "")
    tag = "mrow" if is_row else "mo" if text in _LARGE else element.tag
    attributes = "".join(
        f' {name}="{value}"'
        for name, value in element.attrib.items()
        if name in _ATTRIBUTES and _ATTRIBUTES[name].fullmatch(value)
    )
    shown = escape(styled(text, element.get("mathvariant", "normal")), quote=False)
    inside = "".join([_written(child, depth + 1) for child in element])
    return f"<{tag}{attributes}>{shown}{inside}</{tag}>"
