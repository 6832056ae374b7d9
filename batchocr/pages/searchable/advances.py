"""How wide characters usually are: for dividing words over the ink of a line, and for the font of invisible text."""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from typing import Final

_BY_WIDTH: Final = {
    190: "'",
    240: "|",
    250: "ijl",
    260: " ,.",
    280: "/:;\\t",
    310: "![]If",
    330: "()-`r",
    380: '"',
    410: "{}",
    440: "*Js",
    470: "^cz",
    500: "?aekvxy",
    530: "#$0123456789_bdghnopqu",
    570: "+<=>~",
    600: "FLPSTZ",
    650: "BE",
    690: "ACKRVXY",
    720: "&DHNUw",
    750: "GOQ",
    810: "m",
    860: "%M",
    950: "W@",
}
"""In 1/1000 em, for ASCII: means of Helvetica and Times."""

_ASCII: Final = {letter: width for width, letters in _BY_WIDTH.items() for letter in letters}

OTHER: Final = 550
"""Of a letter that nothing is known of."""

WIDE: Final = 1000
"""Of Chinese, Japanese and Korean characters."""

WIDE_RANGES: Final = ((0x1100, 0x115F), (0x2E80, 0xA4CF), (0xAC00, 0xD7A3), (0xF900, 0xFAFF), (0xFF01, 0xFF60))
"""Where these are, in the Basic Multilingual Plane."""


@lru_cache(maxsize=65536)
def advance(letter: str) -> int:
    """The advance width of a character in 1/1000 em; 0 of one that is drawn on the one before."""
    if (known := _ASCII.get(letter)) is not None:
        return known
    if unicodedata.category(letter) in ("Mn", "Me", "Cf"):
        return 0
    if any(first <= ord(letter) <= last for first, last in WIDE_RANGES) or 0x20000 <= ord(letter) < 0x40000:
        return WIDE
    base = unicodedata.normalize("NFKD", letter)[0]
    return _ASCII.get(base, OTHER)
