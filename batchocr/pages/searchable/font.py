"""The font of invisible text: one for all scripts, without a single outline, embedded in a kilobyte."""

from __future__ import annotations

import zlib
from base64 import b85decode
from collections.abc import Iterable, Sequence
from typing import Final

import pymupdf

from batchocr.pages.searchable.advances import OTHER, WIDE, WIDE_RANGES, advance

ASCENT: Final = 0.85
DESCENT: Final = 0.25
"""Em over and under the baseline; together the height of a word's box."""

_TRUETYPE: Final = zlib.decompress(
    b85decode(
        "c-nnXy-EW?7@Yk<35W&}Ng*g=X`RZ#%2-&)VIP)wxh?k0l1m_GW$8m$+V}=Oh=rx44-mmZIcL`m5<zE~?`L+uxsQVY(83KA+"
        "Jn+~tl<O@J5&z~R}T>(&O)%cx$JKrzp%a|yOx5wzz6Fm^1zmpnV84-9R}@21C!=YLtmPihvWg?$-OI6<`1{`ySzVVKlGz&!a"
        "c(K$8e9Z8~OaHulpNEZ&2zLe?vuQe9x$?Sz$5%QI;SU-U;%zS(=p57uaGHF>7?99w(Y6a@k#@n-sx6yZDO4Dm%L97L`r3Q!T"
        "NM{hq76b$L}~c`<cnj2;|ncv$8f6;H-oV9MTLoVNN0Uums1p8"
    )
)
"""A TrueType font with an empty .notdef, 472 bytes, made with fontTools' FontBuilder (ascent 850, descent -250)."""

_FIRST_BEYOND: Final = 0xD800
_LAST_BEYOND: Final = 0xDFFF
"""Codes that are no characters; here those of the document that are beyond the Basic Multilingual Plane."""

_PER_SECTION: Final = 100
"""Ranges of codes that a section of a ToUnicode map may have."""


class GlyphlessFont:
    """The codes of a document's characters, two bytes each: those of UTF-16, which ToUnicode gives back."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}
        self._num_beyond = 0

    def encoded(self, text: str) -> str:
        """The text as hexadecimal codes."""
        return "".join([f"{self._code(letter):04x}" for letter in text])

    def _code(self, letter: str) -> int:
        if (code := self._codes.get(letter)) is None:
            code = ord(letter)
            if code > 0xFFFF:  # a document with more of them than codes has the last one for the rest
                code = min(_FIRST_BEYOND + self._num_beyond, _LAST_BEYOND)
                self._num_beyond += 1
            self._codes[letter] = code
        return code

    def write_into(self, document: pymupdf.Document, number: int) -> None:
        """Make the object of this number the font, once all text is encoded."""
        file, map_, descriptor, descendant = (document.get_new_xref() for _ in range(4))
        _add_stream(document, file, f"<</Length1 {len(_TRUETYPE)}>>", _TRUETYPE)
        _add_stream(document, map_, "<<>>", self._to_unicode())
        document.update_object(
            descriptor,
            f"<</Type/FontDescriptor/FontName/Glyphless/Flags 4/FontBBox[0 -250 1000 850]/ItalicAngle 0/Ascent 850"
            f"/Descent -250/CapHeight 700/StemV 80/FontFile2 {file} 0 R>>",
        )
        document.update_object(
            descendant,
            "<</Type/Font/Subtype/CIDFontType2/BaseFont/Glyphless/CIDToGIDMap/Identity"
            "/CIDSystemInfo<</Registry(Adobe)/Ordering(Identity)/Supplement 0>>"
            f"/FontDescriptor {descriptor} 0 R/DW {OTHER}/W[{self._widths()}]>>",
        )
        document.update_object(
            number,
            "<</Type/Font/Subtype/Type0/BaseFont/Glyphless/Encoding/Identity-H"
            f"/DescendantFonts[{descendant} 0 R]/ToUnicode {map_} 0 R>>",
        )

    def _widths(self) -> str:
        wide = [f"{first} {last} {WIDE}" for first, last in WIDE_RANGES]
        others = [
            f"{code}[{width}]"
            for letter, code in sorted(self._codes.items(), key=lambda known: known[1])
            if (width := advance(letter)) not in (OTHER, WIDE) or (width == WIDE and code != ord(letter))
        ]
        return "".join([*others, " ", " ".join(wide)])

    def _to_unicode(self) -> bytes:
        beyond = {code: letter for letter, code in self._codes.items() if code != ord(letter)}
        pages = sorted({code >> 8 for letter, code in self._codes.items() if code == ord(letter)})
        ranges = [f"<{page:02x}00><{page:02x}ff><{page:02x}00>" for page in pages]
        singles = [f"<{code:04x}><{letter.encode('utf-16-be').hex()}>" for code, letter in sorted(beyond.items())]
        sections = [*_sections(ranges, "bfrange"), *_sections(singles, "bfchar")]
        return "\n".join(
            [
                "/CIDInit/ProcSet findresource begin 12 dict begin begincmap",
                "/CIDSystemInfo<</Registry(Adobe)/Ordering(UCS)/Supplement 0>>def",
                "/CMapName/Glyphless-UCS def/CMapType 2 def",
                "1 begincodespacerange<0000><ffff>endcodespacerange",
                *sections,
                "endcmap CMapName currentdict/CMap defineresource pop end end",
            ]
        ).encode()


def _sections(lines: Sequence[str], kind: str) -> Iterable[str]:
    for start in range(0, len(lines), _PER_SECTION):
        part = lines[start : start + _PER_SECTION]
        yield "\n".join([f"{len(part)} begin{kind}", *part, f"end{kind}"])


def _add_stream(document: pymupdf.Document, number: int, dictionary: str, data: bytes) -> None:
    document.update_object(number, dictionary)
    document.update_stream(number, data, new=True)
