"""Parts of a page as the content of a file."""

from __future__ import annotations

import io

from PIL import Image

from batchocr.data import Box, Encoding
from batchocr.processes.messages import Part


def cut_out(image: Image.Image, part: Part) -> bytes:
    """The part of a page's image, upright; empty if it has no area."""
    box, encoding, angle = part
    left, top, right, bottom = pixel_box(box, *image.size)
    if left >= right or top >= bottom:
        return b""
    return encoded(image.crop((left, top, right, bottom)).rotate(angle, expand=True), encoding)


def pixel_box(bbox: Box, width: int, height: int) -> tuple[int, int, int, int]:
    """The box in px of a page, to the nearest, as MinerU crops; it has no area if nothing of it is on the page."""
    x0, y0, x1, y1 = (min(1.0, max(0.0, share)) for share in bbox)  # 0 for nan
    return round(x0 * width), round(y0 * height), round(x1 * width), round(y1 * height)


def encoded(image: Image.Image, encoding: Encoding) -> bytes:
    """The picture without loss as PNG; with hardly any as JPEG, for the formats that know that alone; or its pixels."""
    if encoding == "pixels":
        return image.tobytes()
    file = io.BytesIO()
    if encoding == "png":
        image.save(file, "PNG", compress_level=3)  # takes a third of the time of the default, for files a tenth larger
    else:
        image.save(file, "JPEG", quality=95, subsampling=0)
    return file.getvalue()
