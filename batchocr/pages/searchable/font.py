"""The font of invisible text: one for all scripts, with one glyph, embedded in a kilobyte."""

from __future__ import annotations

import zlib
from base64 import b85decode
from typing import Final

import pymupdf

from batchocr.pages.searchable.letters import advance

ASCENT: Final = 0.85
DESCENT: Final = 0.25
"""How far letters reach under the baseline, in em; with `ASCENT`, over it, the height of a word's box."""

_TRUETYPE: Final = zlib.decompress(
    b85decode(
        "c-nnX%SyvQ6g|@!D@CiVC=?NV;8NTO#f3Y;c9B(nK!!R^7D*eM7Mh()Kf<LO_kM_iAK?c?6cyshWDrqs!kv50xpU9G1Oh+<S"
        "CD88Vx3?aXMotEdJsg}@Nr~b$vyJT(C7=jbb3sD!{~+-7W()keq!v0@pLY7B8Uzz6^#d)xk=tHd93FN=hTVc7&{{!o4f1VZP"
        "r8bVKPpqte5={WgX>ij6?6}@_hB=1yVla&nfC6mp*|+%}MN$e!)3zo7_76Ji>V^SE>DWtvan<ZnVx@*sRd8y6q?m8<j`1%x)"
        "X@Y_xaVB7axj$9-j~&~+~b|2V!UFOtz+HK?qi<!}uv*y}}E5=JIXeG|+gJwXo<G9(C@4N`tSbATDS#>8#=&-nr-i9nY"
    )
)
"""A TrueType font of 496 bytes, made with fontTools' FontBuilder. Its one glyph is a box from the descent to the
ascent, which is never drawn: PDFium leaves out text along a page's height if its glyphs are empty."""

_PER_SECTION: Final = 100
"""How many codes a section of a ToUnicode map may have."""


class GlyphlessFont:
    """The invisible font of a PDF, by the codes of the document's characters, two bytes each, from 1; ToUnicode gives
    the characters back."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}

    def encoded(self, text: str) -> str:
        """The text as hexadecimal codes. A document with more characters than codes has the last one for the rest."""
        codes = (self._codes.setdefault(letter, min(len(self._codes) + 1, 0xFFFF)) for letter in text)
        return "".join([f"{code:04x}" for code in codes])

    def write_into(self, document: pymupdf.Document, number: int) -> None:
        """Make the object of this number the font, once all text is encoded."""
        descriptor, descendant = document.get_new_xref(), document.get_new_xref()
        file = add_stream(document, _TRUETYPE, f"<</Length1 {len(_TRUETYPE)}>>")
        map_ = add_stream(document, self._to_unicode())
        glyphs = add_stream(document, bytes(2 * 0x10000))
        document.update_object(
            descriptor,
            f"<</Type/FontDescriptor/FontName/Glyphless/Flags 4/FontBBox[0 -250 1000 850]/ItalicAngle 0/Ascent 850"
            f"/Descent -250/CapHeight 700/StemV 80/FontFile2 {file} 0 R>>",
        )
        document.update_object(
            descendant,
            f"<</Type/Font/Subtype/CIDFontType2/BaseFont/Glyphless/CIDToGIDMap {glyphs} 0 R"
            "/CIDSystemInfo<</Registry(Adobe)/Ordering(Identity)/Supplement 0>>"
            f"/FontDescriptor {descriptor} 0 R/W[1[{' '.join(str(advance(letter)) for letter in self._codes)}]]>>",
        )
        document.update_object(
            number,
            "<</Type/Font/Subtype/Type0/BaseFont/Glyphless/Encoding/Identity-H"
            f"/DescendantFonts[{descendant} 0 R]/ToUnicode {map_} 0 R>>",
        )

    def _to_unicode(self) -> bytes:
        lines = [f"<{code:04x}><{letter.encode('utf-16-be').hex()}>" for letter, code in self._codes.items()]
        sections = (lines[start : start + _PER_SECTION] for start in range(0, len(lines), _PER_SECTION))
        return "\n".join(
            [
                "/CIDInit/ProcSet findresource begin 12 dict begin begincmap",
                "/CIDSystemInfo<</Registry(Adobe)/Ordering(UCS)/Supplement 0>>def",
                "/CMapName/Glyphless-UCS def/CMapType 2 def",
                "1 begincodespacerange<0000><ffff>endcodespacerange",
                *("\n".join([f"{len(section)} beginbfchar", *section, "endbfchar"]) for section in sections),
                "endcmap CMapName currentdict/CMap defineresource pop end end",
            ]
        ).encode()


def add_stream(document: pymupdf.Document, data: bytes, dictionary: str = "<<>>") -> int:
    """The number of a new stream with this data."""
    number: int = document.get_new_xref()
    document.update_object(number, dictionary)
    document.update_stream(number, data, new=True)
    return number
