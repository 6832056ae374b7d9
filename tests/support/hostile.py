"""Small documents that would take ages if a document might cost what it likes; each is made, not stored."""

from __future__ import annotations

import struct

from tests.support.pdf_files import deflated, pdf

FORM = b"/Type/XObject/Subtype/Form/BBox[0 0 3000 3000]"


def hanging_pdf() -> bytes:
    """A PDF of two pages, each of which draws a form that draws the next one ten times, thirty deep."""
    form = FORM + b"/Resources<</XObject<</F %d 0 R>>>>"
    return pdf(
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R 3 0 R]/Count 2>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 300 300]/Contents 4 0 R/Resources<</XObject<</F 5 0 R>>>>>>",
        deflated(b"/F Do"),
        *(deflated(b"/F Do " * 10, form % (number + 1)) for number in range(5, 35)),
        deflated(b"0 0 9 9 re f", FORM),
    )


def tiff_chain(num_directories: int) -> bytes:
    """A TIFF whose first page is 1 px, and all others are directories without an entry."""
    entries = ((256, 1), (257, 1), (258, 8), (259, 1), (262, 1), (273, 8), (277, 1), (278, 1), (279, 1))
    first = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in entries)
    data = b"II*\0" + struct.pack("<I", 8)
    data += struct.pack("<H", len(entries)) + first + struct.pack("<I", 8 + 2 + len(first) + 4)
    rest = [struct.pack("<HI", 0, len(data) + 6 * number) for number in range(1, num_directories - 1)]
    return data + b"".join(rest) + struct.pack("<HI", 0, 0)


def gif_chain(num_frames: int, edge: int) -> bytes:
    """A GIF of `edge` × `edge` px, each frame of which changes one of them."""
    frame = b"\x2c" + struct.pack("<HHHHB", 0, 0, 1, 1, 0) + b"\x02\x02\x44\x01\x00"
    screen = struct.pack("<HHBBB", edge, edge, 0x80, 0, 0) + b"\0\0\0\xff\xff\xff"
    return b"GIF89a" + screen + frame * num_frames + b";"
