"""HTML read by html5lib, which follows the standard: errors raised, and everything found that does more than show."""

from __future__ import annotations

import re
from typing import Any

import html5lib

_TAGS = {
    *("p", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "li", "pre", "code", "em", "div", "span", "table", "caption"),
    *("colgroup", "col", "thead", "tbody", "tfoot", "tr", "th", "td", "br", "sub", "sup", "math", "mrow", "mi", "mn"),
    *("mo", "mtext", "mspace", "mstyle", "mpadded", "mphantom", "mfrac", "msqrt", "mroot", "msub", "msup", "msubsup"),
    *("munder", "mover", "munderover", "mtable", "mtr", "mtd", "menclose"),
}
_ATTRIBUTES = {
    *("class", "dir", "colspan", "rowspan", "data-bbox", "display", "displaystyle", "scriptlevel", "stretchy", "fence"),
    *("form", "accent", "movablelimits", "largeop", "symmetric", "separator", "mathvariant", "columnalign", "notation"),
    *("width", "height", "depth", "voffset", "lspace", "rspace", "minsize", "maxsize", "linethickness"),
}
_VALUE = re.compile(r"[A-Za-z0-9 .,+-]*")
_ACTING_CHARACTERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def parsed(html: str) -> Any:
    """The elements of a page or, in a page of their own, of a fragment, without namespaces. Raises at every error that
    the standard knows."""
    page = html if html.startswith("<!doctype") else f"<!doctype html><title>x</title>{html}"
    return html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(page)


def acting_in(fragment: str) -> list[str]:
    """What does more than show text in a page."""
    found = [ascii(character) for character in _ACTING_CHARACTERS.findall(fragment)]
    for element in parsed(fragment).find("body").iter():
        tag = str(element.tag).split("}")[-1]
        if tag not in _TAGS | {"body"}:
            found.append(f"<{tag}>")
        found += [
            f"{name}={value!r}"
            for name, value in element.attrib.items()
            if name not in _ATTRIBUTES or not _VALUE.fullmatch(value)
        ]
    return found


def text_of(fragment: str) -> str:
    """The text that a reader sees, on one line."""
    return " ".join("".join(parsed(fragment).find("body").itertext()).split())
