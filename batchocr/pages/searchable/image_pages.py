"""Image files as PDFs: a page for each picture, with the data of the file where MuPDF takes it as it is."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pymupdf
from PIL import ExifTags, Image

from batchocr.errors import PageError
from batchocr.pages.input.image import ImageDocument
from batchocr.pages.input.mupdf_warnings import REFUSALS
from batchocr.pages.input.page_pixels import has_wide_samples, page_size, pixel_sides, scan_dpi

_USUAL_DPI: Final = 200

_MAX_POINTS: Final = 14_400
"""The longest side that a page of a PDF may have."""

_JPEG_QUALITY: Final = 90
_TURNS: Final = {1: 0, 3: 180, 6: 90, 8: 270}
"""By how many degrees clockwise an image is turned, by its EXIF orientation; the other orientations mirror."""

_KEPT: Final = ("JPEG", "JPEG2000", "PNG")
_LOSSY: Final = ("JPEG", "JPEG2000", "WEBP")


def add_pages(pdf: pymupdf.Document, path: str, document: ImageDocument) -> Iterator[None]:
    """Add a page for each page of the image; yields after each. A page that neither we nor viewers can decode is
    empty."""
    for number in range(document.page_count):
        with suppress(PageError, *REFUSALS):
            _add_page(pdf, path, document, number)
        if pdf.page_count == number:
            pdf.new_page()
        yield


def _add_page(pdf: pymupdf.Document, path: str, document: ImageDocument, number: int) -> None:
    read = None
    with suppress(PageError):
        read = document.render(number)
    with document.opened(number) as image:
        long_side = max(page_size(image, math.inf))
        dpi = max(scan_dpi(image) or _USUAL_DPI, 72 * long_side / _MAX_POINTS)
        wide, high = pixel_sides(image)
        is_fax = image.mode == "1" and not image.has_transparency_data
        is_kept = (is_fax or _is_kept(image)) and (read is None or read.lost is None)
        exif = image.getexif() if is_kept and document.format != "TIFF" else {}  # Pillow turns a TIFF itself
        turn = _TURNS.get(exif.get(ExifTags.Base.Orientation, 1)) if is_kept else None
        if turn is None:
            if read is None:
                return
            size, data, turn = read.image.size, _encoded(read.image, document.format in _LOSSY), 0
            wide = high = long_side / max(size)
        elif is_fax:  # Pillow compresses it better than MuPDF
            file = io.BytesIO()
            image.save(file, "PDF", dpi=(dpi / wide, dpi / high))
            with pymupdf.open("pdf", file.getvalue()) as fax:
                pdf.insert_pdf(fax)
            pdf[-1].set_rotation(turn)
            return
        else:
            size, data = image.size, Path(path).read_bytes()
    page = pdf.new_page(width=72 * size[0] * wide / dpi, height=72 * size[1] * high / dpi)
    page.insert_image(page.rect, stream=data, keep_proportion=False)
    page.set_rotation(turn)


def _is_kept(image: Image.Image) -> bool:
    """Whether the page can have the data of the file."""
    is_plain = (image.mode in ("L", "RGB") or image.format == "PNG") and not has_wide_samples(image)
    return image.format in _KEPT and is_plain and not image.has_transparency_data


def _encoded(image: Image.Image, is_lossy: bool) -> bytes:
    """The picture of a page as the bytes of an image, in colour only if it has any; without loss, unless the file had
    lost something already."""
    red, green, blue = image.split()
    file = io.BytesIO()
    (red if red == green == blue else image).save(file, "JPEG" if is_lossy else "PNG", quality=_JPEG_QUALITY)
    return file.getvalue()
