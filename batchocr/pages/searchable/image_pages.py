"""Image files as PDFs: a page for each picture, with the data of the file where MuPDF takes it as it is."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pymupdf
from PIL import ExifTags, Image, ImageOps

from batchocr.errors import PageError
from batchocr.pages.input.image import refusals
from batchocr.pages.input.mupdf_warnings import REFUSALS
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

_KEPT: Final = ("JPEG", "JPEG2000", "PNG")
_LOSSY: Final = ("JPEG", "JPEG2000", "WEBP")


def add_pages(pdf: pymupdf.Document, path: str, document: RenderableDocument) -> Iterator[None]:
    """Add a page for each of the image's; yields after each. One that cannot be decoded is empty."""
    for number in range(document.page_count):
        try:
            with refusals(), Image.open(path) as image:
                _add_page(pdf, path, image, document, number)
        except (PageError, *REFUSALS):
            if pdf.page_count == number:
                pdf.new_page()
        yield


def _add_page(pdf: pymupdf.Document, path: str, image: Image.Image, document: RenderableDocument, number: int) -> None:
    if document.format == "TIFF":
        image.seek(number)
    dpi = _dpi(image)
    if image.mode == "1" and not image.has_transparency_data:  # as a fax, which Pillow compresses better than MuPDF
        file = io.BytesIO()
        ImageOps.exif_transpose(image).save(file, "PDF", resolution=dpi)
        with pymupdf.open("pdf", file.getvalue()) as fax:
            pdf.insert_pdf(fax)
        return
    turn = _TURNS.get(image.getexif().get(ExifTags.Base.Orientation, 1))
    if turn is not None and _is_kept(image):
        size, data = image.size, Path(path).read_bytes()
    else:
        shown, turn = document.render(number).image, 0
        size, data = shown.size, _encoded(shown, document.format in _LOSSY)
    page = pdf.new_page(width=72 * size[0] / dpi, height=72 * size[1] / dpi)
    page.insert_image(page.rect, stream=data, keep_proportion=False)
    page.set_rotation(turn)


def _dpi(image: Image.Image) -> float:
    """The resolution that the file gives, if it is that of a scan, else a usual one; or what the longest page needs."""
    dpi = float(min(image.info.get("dpi") or (0, 0)))
    dpi = dpi if _LEAST_DPI <= dpi <= _MOST_DPI else _USUAL_DPI
    return max(dpi, 72 * max(image.size) / _MAX_POINTS)


def _is_kept(image: Image.Image) -> bool:
    """Whether the page can have the data of the file."""
    is_plain = image.mode in ("L", "RGB") or image.format == "PNG"
    return image.format in _KEPT and is_plain and not image.has_transparency_data


def _encoded(image: Image.Image, is_lossy: bool) -> bytes:
    """The page as it was read, in colour only if it has any; without loss, unless the file had some already."""
    red, green, blue = image.split()
    file = io.BytesIO()
    (red if red == green == blue else image).save(file, "JPEG" if is_lossy else "PNG", quality=_JPEG_QUALITY)
    return file.getvalue()
