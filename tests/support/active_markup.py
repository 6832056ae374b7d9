"""What in a page of HTML is active: does more in a browser than show text, or was put there by the text itself."""

from __future__ import annotations

import re
from html.parser import HTMLParser

_TAGS = {
    *("p", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "li", "dl", "dt", "dd", "blockquote", "hr", "pre", "code"),
    *("em", "strong", "del", "s", "br", "span", "div", "section", "figure", "figcaption", "q", "u", "mark"),
    *("img", "table", "caption", "colgroup", "col", "thead", "tbody", "tfoot", "tr", "th", "td", "sub", "sup", "a"),
    *("input", "abbr"),
}
_ATTRIBUTES = {
    *("alt", "title", "colspan", "rowspan", "start", "align", "type", "disabled", "checked", "width", "tabindex"),
    *("id", "class", "role", "href", "src", "style", "cite"),
}
_ATTRIBUTE_PREFIXES = ("data-", "aria-")
_LINKING = {"href", "src", "cite"}
_HARMLESS_STYLE = re.compile(r"(?:text-align: ?(?:left|right|center);?|width: ?\d+(?:\.\d+)?%;?)?")
_STYLE_THAT_ACTS = re.compile(r"url\(|evil|fixed|absolute|javascript", re.IGNORECASE)


class _Seen(HTMLParser):
    """Collects what is active. formulas: the page is a formula renderer's, whose own tags and styles are many."""

    def __init__(self, *, formulas: bool) -> None:
        super().__init__()
        self.active: set[str] = set()
        self._formulas = formulas

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "style", "link", "iframe", "object", "embed", "form", "base", "meta") or not (
            self._formulas or tag in _TAGS
        ):
            self.active.add(f"<{tag}>")
        for name, value in attrs:
            if self._is_active(name, value or ""):
                self.active.add(name)

    def _is_active(self, name: str, value: str) -> bool:
        if not value or len(name) == 1 or name.startswith("_"):  # which nothing reads
            return False
        if name.startswith("on"):
            return True
        if name in _LINKING:
            return not value.startswith("#")
        if self._formulas:
            return name in ("style", "class") and bool(_STYLE_THAT_ACTS.search(value))
        if name == "style":
            return not _HARMLESS_STYLE.fullmatch(value)
        return name not in _ATTRIBUTES and not name.startswith(_ATTRIBUTE_PREFIXES)

    def handle_comment(self, data: str) -> None:
        self.active.add("<!-- -->")

    handle_decl = handle_pi = unknown_decl = handle_comment


def active_in(html: str, *, formulas: bool = False) -> set[str]:
    """The tags and attributes that are active. formulas: the HTML is what a formula renderer made."""
    seen = _Seen(formulas=formulas)
    seen.feed(html)
    seen.close()
    return seen.active
