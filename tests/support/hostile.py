"""Small documents that would take ages if a document might cost what it likes; each is made, not stored."""

from __future__ import annotations

import struct
import zlib

FORM = b"/Type/XObject/Subtype/Form/BBox[0 0 3000 3000]"


def stream(data: bytes, entries: bytes = b"") -> bytes:
    packed = zlib.compress(data, 9)
    return b"<<%s/Filter/FlateDecode/Length %d>>stream\n%s\nendstream" % (entries, len(packed), packed)


def pdf(*objects: bytes) -> bytes:
    """A PDF of these objects, numbered from 1; the first is its catalogue."""
    written, offsets = b"%PDF-1.7\n", []
    for number, body in enumerate(objects, 1):
        offsets.append(len(written))
        written += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    size = len(objects) + 1
    return written + (
        b"xref\n0 %d\n0000000000 65535 f \n%strailer <</Root 1 0 R/Size %d>>\nstartxref\n%d\n%%%%EOF"
        % (size, table, size, len(written))
    )


def hanging_pdf(num_pages: int, *, every: int) -> bytes:
    """A PDF of blank pages, but every so manieth one draws a form that draws the next one ten times, thirty deep."""
    page = b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 300 300]%s>>"
    kids = b" ".join(b"3 0 R" if index % every == 0 else b"4 0 R" for index in range(num_pages))
    forms = [
        stream(b"/F Do " * 10, FORM + b"/Resources<</XObject<</F %d 0 R>>>>" % (number + 1)) for number in range(6, 36)
    ]
    return pdf(
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[%s]/Count %d>>" % (kids, num_pages),
        page % b"/Contents 5 0 R/Resources<</XObject<</F 6 0 R>>>>",
        page % b"",
        stream(b"/F Do"),
        *forms,
        stream(b"0 0 9 9 re f", FORM),
        *[b"null"] * num_pages,  # MuPDF believes in as many pages as there are objects
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
