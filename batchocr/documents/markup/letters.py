"""Letters of another style as the characters that Unicode has for them: browsers no longer heed `mathvariant`."""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import Final

_STYLES: Final = {
    "BOLD": "bold",
    "ITALIC": "italic",
    "BOLD ITALIC": "bold-italic",
    "SCRIPT": "script",
    "BOLD SCRIPT": "bold-script",
    "FRAKTUR": "fraktur",
    "BLACK-LETTER": "fraktur",
    "BOLD FRAKTUR": "bold-fraktur",
    "DOUBLE-STRUCK": "double-struck",
    "SANS-SERIF": "sans-serif",
    "SANS-SERIF BOLD": "bold-sans-serif",
    "SANS-SERIF ITALIC": "sans-serif-italic",
    "SANS-SERIF BOLD ITALIC": "sans-serif-bold-italic",
    "MONOSPACE": "monospace",
}
_NAME: Final = re.compile(rf"(?:MATHEMATICAL )?({'|'.join(_STYLES)}) (?:CAPITAL|SMALL|DIGIT) .+")


def styled(text: str, variant: str) -> str:
    """The text in the style that MathML's `mathvariant` names, as far as Unicode has its characters."""
    return text.translate(_letters().get(variant, {}))


@cache
def _letters() -> dict[str, dict[int, str]]:
    """For each variant, the characters of its letters and digits."""
    letters: dict[str, dict[int, str]] = {}
    for character in map(chr, (*range(0x2100, 0x2150), *range(0x1D400, 0x1D800))):  # the former came first
        name = _NAME.fullmatch(unicodedata.name(character, ""))
        plain = unicodedata.normalize("NFKC", character)
        if name and len(plain) == 1 and plain != character:
            letters.setdefault(_STYLES[name[1]], {}).setdefault(ord(plain), character)
    letters["italic"][ord("h")] = "\N{PLANCK CONSTANT}"
    return letters
