r"""LaTeX formulas as MathML that may stand in a page of HTML, whatever a model wrote.

`understood` rewrites what latex2mathml does not know as what it knows: of an array's columns it reads letters alone,
and `\tag` makes an element that browsers do not show. latex2mathml parses, and `_written` writes only the elements and
attributes in the lists below: no link, no style, no colour, no size that covers other text. Letters of another style
become the characters that Unicode has for them, as browsers no longer heed `mathvariant`.

math-core, the other maintained library, ended the process at 3,000 nested commands and never ended at 40 brackets that
are not closed (version 0.9); latex2mathml raises at worst.
"""

from __future__ import annotations

import re
import unicodedata
from contextlib import suppress
from functools import lru_cache
from html import escape, unescape
from typing import Final
from xml.etree.ElementTree import Element

from latex2mathml.converter import Converter

from batchocr.pages.protocol.sanitize import harmless_characters

_NO_CHARACTERS: Final = re.compile(
    "[\ufdd0-\ufdef" + "".join(chr(plane << 16 | 0xFFFE) + chr(plane << 16 | 0xFFFF) for plane in range(17)) + "]"
)
"""Code points that Unicode will never assign; each is an error in HTML."""


def shown_characters(text: str) -> str:
    """The text without what commands a terminal, reorders letters or is no character."""
    return _NO_CHARACTERS.sub("", harmless_characters(text))


def styled(text: str, variant: str) -> str:
    """The text in the style that MathML's `mathvariant` names, as far as Unicode has its characters."""
    style = variant.upper().replace("-ITALIC", " ITALIC")
    return "".join(_styled(character, style) for character in text)


@lru_cache(maxsize=4096)
def _styled(character: str, style: str) -> str:
    """The character whose name in Unicode says this style, such as MATHEMATICAL SANS-SERIF ITALIC SMALL A."""
    if (character, style) == ("h", "ITALIC"):
        return "\N{PLANCK CONSTANT}"
    name = re.sub("LATIN |GREEK |LETTER ", "", unicodedata.name(character, ""))
    for beginning in (f"MATHEMATICAL {style}", style, style.replace("FRAKTUR", "BLACK-LETTER")):
        with suppress(KeyError):
            return unicodedata.lookup(f"{beginning} {name}")
    return character


_ALIGNED: Final = re.compile(
    r"\\(begin|end)\s*\{\s*(?:align|aligned|split|eqnarray\*?|flalign\*?|alignat\*?|alignedat)\s*\}"
)
"""The environments whose lines are aligned and that become `align*`, `align` itself too: latex2mathml would number its
lines, with numbers that do not stand on the page."""
_GATHERED: Final = re.compile(r"\\(begin|end)\s*\{\s*(?:gather\*?|gathered|multline\*?|multlined)\s*\}")
_UNMARKED: Final = re.compile(r"\\(?:begin|end)\s*\{\s*(?:equation\*?|displaymath|math)\s*\}")
_TAG: Final = re.compile(r"\\tag\s*(\*?)\s*\{([^{}]*)\}")
_LABEL: Final = re.compile(r"\\label\s*\{[^{}]*\}")
_COLUMNS: Final = re.compile(
    r"\\begin\s*\{\s*(?:array|tabular)\s*\}\s*(?:\[[tcb]\]\s*)?\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}"
)
_END_OF_COLUMNS: Final = re.compile(r"\\end\s*\{\s*tabular\s*\}")
_REPEATED: Final = re.compile(r"\*\s*\{\s*(\d{1,2})\s*\}\s*\{([^{}]*)\}")
_PARAGRAPH: Final = re.compile(r"[pmb]\s*\{[^{}]*\}")
_BETWEEN: Final = re.compile(r"[@!<>]\s*\{[^{}]*\}|[^lcr|]")
_MAX_COLUMNS: Final = 200
_UPRIGHT: Final = re.compile(r"\\(?:mathrm|rm)\s*\{\s*([A-Za-z])\s*\}")
_NOT: Final = re.compile(r"\\not\s*(=|\\in(?![A-Za-z]))")
_WITH_LIMITS: Final = re.compile(
    r"(\\(?:(?:arg)?max|(?:arg)?min|sup|inf|lim|limsup|liminf|det|gcd|Pr)(?=\s*_)"
    r"|\\operatorname\*\s*\{[^{}]*\}(?=\s*_)|\\mathop\s*\{(?:[^{}]|\{[^{}]*\})*\}(?=\s*_)"
    r"|\\(?:sum|prod|coprod|big(?:cap|cup|sqcup|uplus|vee|wedge|odot|oplus|otimes))(?=\s*[_^]))"
)
"""The operators that have their limits above and below in a displayed formula: latex2mathml knows this of sums alone,
and of those that are in no braces."""
_COMMAND: Final = re.compile(r"\\[A-Za-z]+")
_OTHER_NAMES: Final = {
    r"\AA": "Å",
    r"\arg": r"\mathrm{arg}",
    r"\copyright": "©",
    r"\dag": r"\dagger",
    r"\ddag": r"\ddagger",
    r"\degreeCelsius": "°C",
    r"\ensuremath": "",
    r"\hfill": r"\quad",
    r"\mathds": r"\mathbb",
    r"\nonumber": "",
    r"\notag": "",
    r"\P": "¶",
    r"\textbackslash": r"\backslash",
    r"\textcircled": r"\boxed",
    r"\textdegree": r"\degree",
    r"\textmu": r"\mu",
    r"\textsc": r"\mathrm",
    r"\textsubscript": "_",
    r"\textsuperscript": "^",
    r"\textunderscore": r"\_",
}


def understood(latex: str, *, display: bool) -> str:
    """The formula without commands that only number or name it; a tag is text at its end."""
    tags = ["".join(text.split()) if starred else f"({''.join(text.split())})" for starred, text in _TAG.findall(latex)]
    latex = _LABEL.sub("", _TAG.sub("", latex))
    latex = _ALIGNED.sub(r"\\\1{align*}", _UNMARKED.sub("", latex))
    latex = _GATHERED.sub(r"\\\1{matrix}", latex)
    latex = _END_OF_COLUMNS.sub(r"\\end{array}", _COLUMNS.sub(_plain_columns, latex))
    latex = _NOT.sub(lambda match: r"\neq " if match[1] == "=" else r"\notin ", _UPRIGHT.sub(r"\\text{\1}", latex))
    if display:
        latex = _WITH_LIMITS.sub(r"\1\\limits", latex)
    latex = _COMMAND.sub(lambda command: _OTHER_NAMES.get(command[0], command[0]), latex)
    return latex + "".join(rf"\qquad\text{{{tag}}}" for tag in tags)


def _plain_columns(match: re.Match[str]) -> str:
    """The begin of an array whose columns are the letters l, c and r and the lines between them."""
    columns = _REPEATED.sub(lambda repeated: repeated[2] * int(repeated[1]), match[1])
    plain = _BETWEEN.sub("", _PARAGRAPH.sub("l", columns))
    return rf"\begin{{array}}{{{plain[:_MAX_COLUMNS] or 'c'}}}"


_MAX_CHARACTERS: Final = 10_000
"""The longest formula that is parsed, in characters: some take latex2mathml quadratic time. A full page of mathematics
has 3,000."""

_MAX_DEPTH: Final = 100
"""The greatest depth of elements in elements. Deeper, a parser's own limit would depend on who calls it."""

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
_ATTRIBUTES: Final = frozenset(
    {
        *("accent", "columnalign", "depth", "display", "displaystyle", "fence", "form", "height", "largeop"),
        *("linethickness", "lspace", "mathvariant", "maxsize", "minsize", "movablelimits", "notation", "rspace"),
        *("scriptlevel", "separator", "stretchy", "symmetric", "voffset", "width"),
    }
)
"""Attributes of MathML Core that change nothing but the formula, and `columnalign` and `notation`, which page.css
heeds."""
_VALUE: Final = re.compile(
    "true|false|left|center|right|block|inline|prefix|infix|postfix|normal|box|[0-3]"
    r"|(?:(?:up|down)diagonalstrike ?){1,2}|(?:-?\d|\+?\d\d?)?(?:\.\d{1,4})?(?:em|ex|px|pt|mm|cm)"
)
"""The values that attributes may have: words and small lengths. With the word of another attribute, one is as if it
were not there."""


def to_mathml(latex: str, *, display: bool) -> str:
    """The formula as a `math` element; a formula that cannot be parsed stays as it is, in a `code` element."""
    source = shown_characters(latex).strip()
    return _parsed(source, display) or f'<code class="formula">{escape(source, quote=False)}</code>'


def _parsed(latex: str, display: bool) -> str | None:
    """The `math` element; None if the formula cannot be parsed, is too long or too deep, or defines commands."""
    if not latex or len(latex) > _MAX_CHARACTERS or _DEFINITION.search(latex):
        return None
    try:
        converter = Converter(display="block" if display else "inline")
        made = _written(converter.convert_to_element(understood(latex, display=display)))
    except Exception:  # noqa: BLE001 (boundary: a formula; latex2mathml raises whatever its code runs into)
        return None
    return shown_characters(made)  # once more: commands name characters too


def _written(element: Element, depth: int = 0) -> str:
    """The element as text, with what is in it. An element that is not in the list is a row, and so is a letter or sign
    made of others: HTML has no MathML within those."""
    if depth > _MAX_DEPTH:
        raise ValueError("nested too deeply")
    is_row = element.tag not in _ELEMENTS or (element.tag in _TOKENS and len(element) > 0)
    text = unescape(element.text or "")
    tag = "mrow" if is_row else "mo" if text in _LARGE else element.tag
    attributes = "".join(
        f' {name}="{value}"'
        for name, value in element.attrib.items()
        if name in _ATTRIBUTES and _VALUE.fullmatch(value)
    )
    shown = escape(styled(text, element.get("mathvariant", "normal")), quote=False)
    inside = "".join([_written(child, depth + 1) for child in element])
    return f"<{tag}{attributes}>{shown}{inside}</{tag}>"
