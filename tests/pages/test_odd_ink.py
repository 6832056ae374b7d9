"""Letters of a PDF that no font can draw, and ink that no viewer shows: the page says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchocr.errors import DamagedError
from tests.pages.rendering import render, written
from tests.support.pdf_files import page, pdf, stream

LATIN = b"<</Type /Font /Subtype /Type1 /BaseFont /Helvetica>>"
OUTSIDE = b"<</Type /Font /Subtype /Type0 /BaseFont /SimSun /Encoding /Identity-H /DescendantFonts [6 0 R]%s>>"
CID_FONT = (
    b"<</Type /Font /Subtype /CIDFontType0 /BaseFont /SimSun /DW 1000 /FontDescriptor 7 0 R "
    b"/CIDSystemInfo <</Registry (Adobe) /Ordering (Identity) /Supplement 0>>>>"
)
DESCRIPTOR = (
    b"<</Type /FontDescriptor /FontName /SimSun /Flags 6 /FontBBox [-100 -200 1000 900] /ItalicAngle 0 /Ascent 880 "
    b"/Descent -120 /StemV 90 /CapHeight 700>>"
)
SPACES = b"1 begincodespacerange <0000> <ffff> endcodespacerange 1 beginbfrange <0000> <ffff> %s endbfrange"
UNKNOWN = "2 letters of the font SimSun cannot be drawn, as it is not in the file"
NONE = "there is ink of the colour None, which no viewer shows"


def document(content: bytes, resources: bytes = b"", to_unicode: bytes = b"") -> bytes:
    """A page with a font that is not in the file and has no known letters as /F2, one that needs none as /F1."""
    fonts = b"/Font <</F1 %s /F2 5 0 R>> " % LATIN
    return pdf(
        *(b"<</Type /Catalog /Pages 2 0 R>>", b"<</Type /Pages /Kids [3 0 R] /Count 1>>", page(4, fonts + resources)),
        stream(content),
        OUTSIDE % (b" /ToUnicode 8 0 R" if to_unicode else b""),
        *(CID_FONT, DESCRIPTOR),
        *([stream(to_unicode)] if to_unicode else []),
    )


def lost(folder: Path, data: bytes) -> str | None:
    return render(written(folder / "a.pdf", data)).lost


SAID = b"BT /F1 20 Tf 20 150 Td (Hello) Tj ET "


def test_letters_of_a_font_that_is_not_in_the_file_are_told_if_no_other_font_has_them(tmp_path: Path) -> None:
    blank = b"BT /F2 24 Tf 20 100 Td <4e2d6587> Tj ET"
    assert lost(tmp_path, document(SAID + blank)) == UNKNOWN
    with pytest.raises(DamagedError, match=f"nothing of the page can be drawn: {UNKNOWN}"):
        lost(tmp_path, document(blank))


@pytest.mark.parametrize(
    ("content", "to_unicode"),
    [
        pytest.param(SAID, b"", id="a font that is not used"),
        pytest.param(b"BT 3 Tr /F2 24 Tf 20 100 Td <4e2d6587> Tj ET", b"", id="invisible text"),
        pytest.param(b"BT /F2 24 Tf 20 100 Td <00030003> Tj ET", SPACES % b"<0020>", id="spaces"),
    ],
)
def test_what_has_no_ink_is_not_missing(tmp_path: Path, content: bytes, to_unicode: bytes) -> None:
    assert lost(tmp_path, document(SAID + content, to_unicode=to_unicode)) is None


@pytest.mark.parametrize("drawing", [b"BT /F1 20 Tf 20 100 Td (None) Tj ET", b"20 20 50 50 re f", b"20 20 m 90 90 l S"])
@pytest.mark.parametrize(("colorant", "said"), [(b"None", NONE), (b"All", None), (b"Black", None)])
def test_ink_of_the_colour_none_is_told(tmp_path: Path, drawing: bytes, colorant: bytes, said: str | None) -> None:
    tint = b"<</FunctionType 2 /Domain [0 1] /C0 [0 0 0 0] /C1 [0 0 0 1] /N 1>>"
    space = b"/ColorSpace <</N [/Separation /%s /DeviceCMYK %s]>>" % (colorant, tint)
    assert lost(tmp_path, document(SAID + b"/N cs 1 scn /N CS 1 SCN " + drawing, space)) == said
    assert lost(tmp_path, document(SAID + drawing, space)) is None
