"""Image files as PDFs, a page for each picture, with its data as in the file where a PDF can hold that."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pymupdf
from PIL import ExifTags, Image

from batchocr.errors import PageError
from batchocr.pages.input.image import refusals
from batchocr.pages.input.render import RenderableDocument

_USUAL_DPI: Final = 200
_LEAST_DPI: Final = 100
_MOST_DPI: Final = 2400
"""Cameras and screens write 72 or 96 whatever the picture's size: such a resolution is that of no scan."""

_MAX_POINTS: Final = 14_400
"""The longest side that a page of a PDF may have."""

_JPEG_QUALITY: Final = 90
_TURNS: Final = {1: 0, 3: 180, 6: 90, 8: 270}
"""EXIF orientation → degrees clockwise; the others mirror."""

_COLOURS: Final = {"L": "/DeviceGray", "RGB": "/DeviceRGB"}
_LOSSY: Final = ("JPEG", "JPEG2000", "WEBP")


@dataclass(frozen=True, slots=True)
class _Picture:
    """A picture as an object of a PDF. dictionary: what tells how to decode the data."""

    width: int
    height: int
    dictionary: str
    data: bytes
    turn: int = 0


def add_pages(pdf: pymupdf.Document, path: str, document: RenderableDocument) -> Iterator[None]:
    """Add a page for each of the image's; yields after each. One that cannot be decoded is empty. Raises PageError."""
    for number in range(document.page_count):
        try:
            with refusals(), Image.open(path) as image:
                dpi, fax = _dpi(image), _fax(image, document, number)
                as_it_is = _as_it_is(image, path) if document.page_count == 1 and fax is None else None
            if fax is not None:
                with pymupdf.open("pdf", fax) as page:
                    pdf.insert_pdf(page)
            else:
                _add_page(pdf, as_it_is or _encoded(document.render(number).image, document.format in _LOSSY), dpi)
        except PageError:
            pdf.new_page()
        yield


def _dpi(image: Image.Image) -> float:
    """The resolution that the file gives, if it is that of a scan, else a usual one; or what the longest page needs."""
    dpi = float(min(image.info.get("dpi") or (0, 0)))
    dpi = dpi if _LEAST_DPI <= dpi <= _MOST_DPI else _USUAL_DPI
    return max(dpi, 72 * max(image.size) / _MAX_POINTS)


def _fax(image: Image.Image, document: RenderableDocument, number: int) -> bytes | None:
    """The page as a PDF compressed as by a fax, without loss, if it is of a TIFF with two levels."""
    if document.format != "TIFF":
        return None
    image.seek(number)
    if image.mode != "1":
        return None
    file = io.BytesIO()
    image.save(file, "PDF", resolution=_dpi(image))
    return file.getvalue()


def _as_it_is(image: Image.Image, path: str) -> _Picture | None:
    """The picture of a file whose data a PDF can hold; None of any other."""
    turn = _TURNS.get(image.getexif().get(ExifTags.Base.Orientation, 1))
    if turn is None or image.has_transparency_data:
        return None
    colours = f"/ColorSpace{_COLOURS.get(image.mode)}/BitsPerComponent 8"
    with open(path, "rb") as file:
        data = file.read()
    if image.format == "JPEG" and image.mode in _COLOURS:
        return _Picture(image.width, image.height, f"/Filter/DCTDecode{colours}", data, turn)
    if image.format == "JPEG2000" and image.mode in _COLOURS:
        return _Picture(image.width, image.height, "/Filter/JPXDecode", data, turn)
    return _png(data, turn) if image.format == "PNG" else None


def _png(data: bytes, turn: int = 0) -> _Picture | None:
    """The picture of a PNG, which a PDF decodes alike; None if it is interlaced or transparent."""
    width, height, depth, kind, _, _, interlaced = struct.unpack_from(">IIBBBBB", data, 16)
    if interlaced or kind not in (0, 2, 3):
        return None
    pixels, palette, at = [], b"", 8
    while at + 8 <= len(data):
        length, name = struct.unpack_from(">I4s", data, at)
        pixels += [data[at + 8 : at + 8 + length]] if name == b"IDAT" else []
        palette = data[at + 8 : at + 8 + length] if name == b"PLTE" else palette
        at += length + 12
    indexed = f"[/Indexed/DeviceRGB {len(palette) // 3 - 1}<{palette.hex()}>]"
    colours = {0: "/DeviceGray", 2: "/DeviceRGB", 3: indexed}[kind]
    decoding = f"<</Predictor 15/Columns {width}/BitsPerComponent {depth}/Colors {3 if kind == 2 else 1}>>"
    dictionary = f"/Filter/FlateDecode/DecodeParms{decoding}/ColorSpace{colours}/BitsPerComponent {depth}"
    return _Picture(width, height, dictionary, b"".join(pixels), turn)


def _encoded(image: Image.Image, is_lossy: bool) -> _Picture | None:
    """The page as it was read, in colour only if it has any; without loss, unless the file had some already."""
    red, green, blue = image.split()
    image = red if red == green == blue else image
    file = io.BytesIO()
    if is_lossy:
        image.save(file, "JPEG", quality=_JPEG_QUALITY)
        colours = f"/ColorSpace{_COLOURS[image.mode]}/BitsPerComponent 8"
        return _Picture(image.width, image.height, f"/Filter/DCTDecode{colours}", file.getvalue())
    image.save(file, "PNG")
    return _png(file.getvalue())


def _add_page(pdf: pymupdf.Document, picture: _Picture | None, dpi: float) -> None:
    if picture is None:
        pdf.new_page()
        return
    width, height = (72 * length / dpi for length in (picture.width, picture.height))
    page = pdf.new_page(width=width, height=height)
    image, contents = pdf.get_new_xref(), pdf.get_new_xref()
    size = f"/Width {picture.width}/Height {picture.height}"
    pdf.update_object(image, f"<</Type/XObject/Subtype/Image{size}>>")
    pdf.update_stream(image, picture.data, new=True, compress=False)
    pdf.update_object(image, f"<</Type/XObject/Subtype/Image{size}{picture.dictionary}/Length {len(picture.data)}>>")
    pdf.update_object(contents, "<<>>")
    pdf.update_stream(contents, f"q {width:.3f} 0 0 {height:.3f} 0 0 cm/Image Do Q".encode(), new=True)
    pdf.xref_set_key(page.xref, "Resources", f"<</XObject<</Image {image} 0 R>>>>")
    pdf.xref_set_key(page.xref, "Contents", f"{contents} 0 R")
    page.set_rotation(picture.turn)
