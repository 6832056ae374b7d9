"""A decoded image as the pixels of a page: upright, in RGB with 8 bits, on white."""

from __future__ import annotations

import math
import struct
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageOps
from PIL.TiffImagePlugin import BITSPERSAMPLE, SAMPLEFORMAT

DECODING_ERRORS = (
    *(OSError, SyntaxError, ValueError, TypeError, EOFError, ArithmeticError, LookupError, RuntimeError),
    *(struct.error, zlib.error, AssertionError),
)
"""What Pillow's decoders raise on bad bytes, including what they do not raise on purpose, such as TypeError."""

MAX_EDGE = 3500
"""The maximum long side of a page, in px, as in MinerU."""

_OUTLIERS_IN = 10_000
"""How many pixels there are for each one whose level is ignored at either end: it may be a fault of the sensor."""

_FEWEST = 1000
"""The fewest pixels of an image of which outlying levels are ignored."""

_SAMPLE, _FILTER = 1 << 20, Image.Resampling.LANCZOS
_MIN_IS_WHITE, _PHOTOMETRIC = 0, 262

LEAST_DPI = 100
_MOST_DPI = 2400
"""The highest resolution that is believed; the lowest is `LEAST_DPI`: cameras and screens write 72 or 96 whatever the
picture's size, which is the resolution of no scan."""

_ASSUMED_DPI = 300
"""The resolution of a large image that has none, so that one reduced by more than 3 has letters that may be too small.
Photos of 24 million px are reduced by 1.7, of 48 million by 2.3."""

_LONGEST_PIXEL = 4
"""The largest ratio of a pixel's sides that is believed; beyond it they are taken for equal. A coarse fax has 2.08."""

_ROUNDED = 0.01
"""The share by which an image's resolutions across and down may differ and still be taken for equal: metres and inches
make 2834 and 2835 of one."""


_UPRIGHT: dict[object, Image.Transpose] = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""What turns an image upright, by its EXIF orientation."""


def as_page(image: Image.Image, max_edge: int = MAX_EDGE) -> Image.Image:
    """Return an image upright, in RGB, with transparent parts on white and square pixels, at most `max_edge` px on its
    long side.

    Raises what Pillow raises, and ValueError if it has no pixels.
    """
    load(image)
    if 0 in image.size:  # Pillow looks at the size of the first frame only
        raise ValueError(f"it has {image.width} × {image.height} px")
    pixels, size = _to_eight_bits(image), page_size(image, max_edge)
    pixels = _on_white(pixels if pixels.size == size else pixels.resize(size, _FILTER, reducing_gap=3.0))
    transpose = _UPRIGHT.get(_orientation(image))
    return pixels if transpose is None else pixels.transpose(transpose)


def load(image: Image.Image) -> None:
    """Decode an image. Of colours of 16 bits Pillow keeps the high byte: if only 12 are in use, their levels are spread
    over all of it, as those of grey ones are.

    Raises what Pillow raises.
    """
    is_wide = has_wide_samples(image) and image.mode in ("RGB", "RGBA", "LA")
    image.load()
    if is_wide and _without_outliers(np.asarray(image.convert("RGB")).ravel())[1] < 16:
        image.im = image.point(lambda level: level * 17).im


def has_wide_samples(image: Image.Image) -> bool:
    """Whether the samples of an image that is not decoded yet have more than 8 bits."""
    return any(";16" in str(tile[3]) for tile in getattr(image, "tile", ()))


def page_size(image: Image.Image, max_edge: float = MAX_EDGE) -> tuple[int, int]:
    """Width and height of the image's page, before it is turned upright: its pixels are square."""
    wide, high = pixel_sides(image)
    width, height = image.width * wide, image.height * high
    scale = min(1.0, max_edge / max(1, width, height))
    return max(1, round(width * scale)), max(1, round(height * scale))


def pixel_sides(image: Image.Image) -> tuple[float, float]:
    """Width and height of a pixel, of which the shorter one is 1, by the resolution that the file gives."""
    info = image.info if image.format else {}  # who has changed an image may have made its pixels square
    stated = ("dpi", "aspect", "resolution", "jfif_density")
    across, down = map(float, next((info[key] for key in stated if key in info), (1, 1)))
    ratio = down / across if across > 0 else 1.0
    is_square = abs(ratio - 1) < _ROUNDED or not 1 / _LONGEST_PIXEL <= ratio <= _LONGEST_PIXEL
    return (1.0, 1.0) if is_square else (max(1.0, ratio), max(1.0, 1 / ratio))


def scan_dpi(image: Image.Image) -> float | None:
    """The resolution that the file gives, of the finer axis, if it is that of a scan."""
    dpi = float(max(image.info.get("dpi") or (0, 0)))
    return dpi if LEAST_DPI <= dpi <= _MOST_DPI else None


def doubt_of(image: Image.Image) -> str | None:
    """Why letters of the image may be too small on its page, in words; None if it is not reduced as much as that."""
    factor = max(page_size(image, math.inf)) / MAX_EDGE
    if factor <= 1 or (scan_dpi(image) or _ASSUMED_DPI) / factor >= LEAST_DPI:
        return None
    return f"the image was reduced by {factor:.1f} to {MAX_EDGE:,} px: small letters may be lost; cut it into parts"


def _to_eight_bits(image: Image.Image) -> Image.Image:
    """Return the image in mode L, RGB or RGBA; RGBA only if something is transparent."""
    if image.mode == "F" or image.mode.startswith("I"):
        return _narrowed(image)
    if image.mode == "P" and image.palette is None:  # a frame of a GIF whose first one was grey, as this is
        return image.convert("L")
    image = image.convert("LA") if image.mode == "La" else image  # the one mode that does not become RGBA
    is_bmp = image.format == "BMP" and image.mode == "RGBA"  # most programs never fill in its alpha
    is_unset = is_bmp and image.getchannel("A").getbbox() is None
    mode = "RGBA" if image.has_transparency_data and not is_unset else "L" if image.mode in ("1", "L") else "RGB"
    return image if image.mode == mode else image.convert(mode)  # convert would copy: gigabytes for the largest images


def _on_white(image: Image.Image) -> Image.Image:
    if image.mode != "RGBA":
        return image.convert("RGB")
    white = Image.new("RGBA", image.size, "white")
    return Image.alpha_composite(white, image).convert("RGB")


def _orientation(image: Image.Image) -> object:
    """Return the EXIF orientation of a loaded image; None if there is none (Pillow rotates TIFFs itself)."""
    try:
        return image.getexif().get(ExifTags.Base.Orientation)
    except DECODING_ERRORS:  # the pixels are sound nonetheless
        return None


def _narrowed(image: Image.Image) -> Image.Image:
    """Return an image of mode F, I or I;16 in mode L.

    16-bit levels lose their low byte, or the low 4 of 12 bits if no more are in use, as by scanners. Of other ranges,
    which do not tell what is white, the darkest level becomes 0 and the brightest 255.
    """
    wide = image if image.mode == "F" else image.convert("I")
    if _is_unsigned(image):
        wide = Image.fromarray(np.asarray(wide).view(np.uint32).astype(np.float32))
    levels = _finite_levels(wide)
    darkest, brightest = _without_outliers(levels)
    if image.mode.startswith("I;16") or image.format == "PPM":
        scale, offset = (1 / 16 if brightest < 4096 else 1 / 256), 0.0
    else:
        if darkest == brightest:
            darkest, brightest = float(levels.min()), float(levels.max())
        scale = 255 / (brightest - darkest) if brightest > darkest else 0.0
        offset = 0.5 - darkest * scale
    grey = wide.point(lambda level: level * scale + offset).convert("L")
    grey.info.pop("transparency", None)  # it is on the old scale
    is_inverted = getattr(image, "tag_v2", {}).get(_PHOTOMETRIC) == _MIN_IS_WHITE
    return ImageOps.invert(grey) if is_inverted else grey


def _is_unsigned(image: Image.Image) -> bool:
    """Whether the levels of a TIFF have 32 bits and no sign, which Pillow takes for one."""
    tags = getattr(image, "tag_v2", {})
    return image.mode == "I" and tags.get(BITSPERSAMPLE) == (32,) and tags.get(SAMPLEFORMAT, (1,)) == (1,)


def _finite_levels(wide: Image.Image) -> NDArray[Any]:
    """The levels of all pixels that are numbers; a single 0 if none are."""
    levels = np.asarray(wide).ravel()
    levels = levels[np.isfinite(levels)]
    return levels if levels.size else np.zeros(1)


def _without_outliers(levels: NDArray[Any]) -> tuple[float, float]:
    """The darkest and the brightest level, but for outliers."""
    sample = levels if levels.size <= _SAMPLE else np.random.default_rng(0).choice(levels, _SAMPLE)
    outliers = -(-sample.size // _OUTLIERS_IN) if sample.size >= _FEWEST else 0
    ordered = np.partition(sample, (outliers, sample.size - 1 - outliers))
    return float(ordered[outliers]), float(ordered[-1 - outliers])
