"""PDFs written by hand, object by object, so that tests can leave out, cut and damage what they like."""

from __future__ import annotations

import zlib
from io import BytesIO

from PIL import Image, ImageDraw

WIDTH, HEIGHT = 200, 300
"""Of every page, in pt, and of every image, in px."""

# How an image's data is encoded, for `scan`.
GREY = b"/ColorSpace /DeviceGray /BitsPerComponent 8"
DCT, JPX, FLATE = GREY + b"/Filter /DCTDecode", b"/Filter /JPXDecode", GREY + b"/Filter /FlateDecode"
BLACK_AND_WHITE = b"/ColorSpace /DeviceGray /BitsPerComponent 1"
CCITT = BLACK_AND_WHITE + b"/Filter /CCITTFaxDecode /DecodeParms <</K -1 /Columns 200 /Rows 300>>"
JBIG2 = BLACK_AND_WHITE + b"/Filter /JBIG2Decode"

_FONT = b"/Font <</F1 <</Type /Font /Subtype /Type1 /BaseFont /Helvetica>>>>"


def pdf(*objects: bytes) -> bytes:
    """A PDF of these objects, numbered from 1; the first is the catalogue."""
    data = bytearray(b"%PDF-1.7\n")
    offsets = []
    for number, body in enumerate(objects, start=1):
        offsets.append(len(data))
        data += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    start = len(data)
    data += b"xref\n0 %d\n0000000000 65535 f \n%s" % (len(objects) + 1, table)
    return bytes(data) + b"trailer <</Root 1 0 R /Size %d>>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, start)


def stream(data: bytes, entries: bytes = b"") -> bytes:
    return b"<<%s /Length %d>> stream\n%s\nendstream" % (entries, len(data), data)


def deflated(data: bytes, entries: bytes = b"") -> bytes:
    return stream(zlib.compress(data, 9), entries + b"/Filter /FlateDecode")


def text_pages(*contents: bytes, count: bytes | None = None) -> bytes:
    """A PDF with a page for each content stream. count: how many it claims."""
    first = 3
    named = b" ".join(b"%d 0 R" % (first + 2 * index) for index in range(len(contents)))
    tree = b"<</Type /Pages /Kids [%s] /Count %s>>" % (named, count or b"%d" % len(contents))
    pages = []
    for index, content in enumerate(contents):
        pages += [page(first + 2 * index + 1, _FONT), content]
    return pdf(b"<</Type /Catalog /Pages 2 0 R>>", tree, *pages)


def page(contents: int, resources: bytes) -> bytes:
    """A page. contents: the number of its content stream."""
    box = b"/MediaBox [0 0 %d %d]" % (WIDTH, HEIGHT)
    return b"<</Type /Page /Parent 2 0 R %s /Contents %d 0 R /Resources <<%s>>>>" % (box, contents, resources)


def lines(text: str, num: int = 12) -> bytes:
    """A content stream's operators: so many lines of text."""
    shown = (
        b"BT /F1 11 Tf %d %d Td (%s %d) Tj ET" % (10 + line * line % 7, 270 - 20 * line, text.encode(), line**9)
        for line in range(num)
    )
    return b"\n".join(shown)


def scan(entries: bytes, data: bytes) -> bytes:
    """A PDF of one page that is an image and nothing else. entries: how `data` is encoded."""
    size = b"/Type /XObject /Subtype /Image /Width %d /Height %d" % (WIDTH, HEIGHT)
    return page_of(b"%d 0 0 %d 0 0 cm /I Do" % (WIDTH, HEIGHT), stream(data, size + entries))


def page_of(content: bytes, image: bytes) -> bytes:
    """A PDF of one page. image: /I, object 5."""
    return pdf(
        b"<</Type /Catalog /Pages 2 0 R>>",
        b"<</Type /Pages /Kids [3 0 R] /Count 1>>",
        page(4, b"/XObject <</I 5 0 R>>"),
        stream(content),
        image,
    )


def letter() -> Image.Image:
    """What a scan of a letter may look like."""
    image = Image.new("L", (WIDTH, HEIGHT), "white")
    draw = ImageDraw.Draw(image)
    for top in range(20, HEIGHT - 20, 12):
        draw.text((15, top), "Dear Sir or Madam, all is well", fill="black")
    return image


def encoded(image: Image.Image, format: str, **options: object) -> bytes:
    with BytesIO() as file:
        image.save(file, format, **options)
        return file.getvalue()


JPEG = encoded(letter(), "JPEG")
