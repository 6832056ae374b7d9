"""Image files as pages, through Pillow: one page per frame of a TIFF, GIF or WebP, one page for any other format."""

from __future__ import annotations

import struct
import warnings
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import cast

from PIL import ExifTags, Image, ImageFile, UnidentifiedImageError

from batchocr.data import Page
from batchocr.errors import DamagedError, PageOutOfMemoryError, TooLargeError, UnreadableError

MAX_EDGE = 3500
"""The maximum long side of a page, in px, as in MinerU."""

FORMAT_NAMES = "PNG, JPEG, JPEG 2000, WebP, TIFF, GIF, BMP, ICNS, PPM"

_FORMATS = ("BMP", "DIB", "GIF", "ICNS", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
"""The Pillow plugins that may see a file. Others do more than decode: the one for EPS starts Ghostscript."""

_SIGNATURES = (
    b"\x89PNG\r\n\x1a\n",
    b"\xff\xd8\xff",  # JPEG
    b"\x00\x00\x00\x0cjP  \r\n\x87\n",  # JPEG 2000
    b"\xff\x4f\xff\x51",  # JPEG 2000, bare codestream
    *(b"II*\x00", b"MM\x00*", b"II+\x00", b"MM\x00+"),  # TIFF, BigTIFF
    *(b"GIF87a", b"GIF89a"),
    b"icns",
    b"BM",
    *(size.to_bytes(4, "little") for size in (12, 40, 52, 56, 64, 108, 124)),  # DIB: no signature, but few header sizes
    *(b"P%d%c" % (kind, space) for kind in range(1, 7) for space in b" \t\r\n"),  # PBM, PGM, PPM
)

_DECODING_ERRORS = (
    *(OSError, SyntaxError, ValueError, TypeError, EOFError, ArithmeticError, LookupError, NotImplementedError),
    *(struct.error, zlib.error, AssertionError),
)
"""What Pillow's decoders raise on bad bytes, including what they do not raise on purpose, such as TypeError."""

_UPRIGHT: dict[object, Image.Transpose] = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""EXIF orientation → what undoes it."""


class ImageDocument:
    """An image file. It is kept open between pages only if it has several."""

    def __init__(self, path: str, *, page_count: int, max_edge: int) -> None:
        self._path = path
        self._max_edge = max_edge
        self._image: ImageFile.ImageFile | None = None
        self.page_count = page_count

    def render(self, page_index: int) -> Page:
        """Return the frame upright, in RGB, with transparent parts on white."""
        with refusals(), ExitStack() as closing:
            image, self._image = self._image or _open(self._path), None
            closing.callback(image.close)
            image.seek(page_index)
            image.draft(None, (self._max_edge, self._max_edge))  # a JPEG far above the limit is decoded smaller
            page = Page(image=as_page(image, self._max_edge), dpi=None)
            if self.page_count > 1:
                self._image = image  # after a failure its state is unknown: it is closed and reopened
                closing.pop_all()
        return page

    def close(self) -> None:
        if self._image is not None:
            self._image.close()
            self._image = None


def as_page(image: Image.Image, max_edge: int) -> Image.Image:
    """Return an image upright, in RGB, with transparent parts on white, at most `max_edge` px on its long side.

    Raises what Pillow raises, and ValueError if it has no pixels.
    """
    image.load()
    if 0 in image.size:  # Pillow looks at the size of the first frame only
        raise ValueError(f"it has {image.width} × {image.height} px")
    pixels = _shrink(_to_eight_bits(image), max_edge)
    return _upright(_on_white(pixels), _orientation(image))


def begins_like_an_image(head: bytes) -> bool:
    """Return whether the first bytes of a file are those of a format read here."""
    return head.startswith(_SIGNATURES) or (head.startswith(b"RIFF") and head[8:12] == b"WEBP")


def open_image(path: str, *, max_edge: int) -> ImageDocument:
    """Return the image file at `path`, its pages to be reduced to at most `max_edge` px on their long side.

    Raises DamagedError, TooLargeError, UnreadableError, PageOutOfMemoryError.
    """
    with refusals(), _open(path) as image:
        page_count = _count_pages(image)
    return ImageDocument(path, page_count=page_count, max_edge=max_edge)


def _open(path: str) -> ImageFile.ImageFile:
    return Image.open(path, formats=_FORMATS)


def _count_pages(image: ImageFile.ImageFile) -> int:
    """Return the number of frames that are pages.

    Extra frames of a JPEG are previews and gain maps; those of an APNG are only claimed, up to two billion.
    """
    if image.format == "TIFF":
        return _count_directories(image)
    if image.format in ("GIF", "WEBP"):
        return int(getattr(image, "n_frames", 1))
    return 1


def _count_directories(tiff: ImageFile.ImageFile) -> int:
    """Return the number of images in a TIFF, including those that cannot be decoded: these fail as pages."""
    count = 0
    while True:
        try:
            tiff.seek(count)
        except EOFError:
            return count
        except (*_DECODING_ERRORS, Image.DecompressionBombError):
            if tiff.tell() < count:  # the chain of images is broken, not just this image
                return count + 1
        count += 1


def _to_eight_bits(image: Image.Image) -> Image.Image:
    """Return the image in mode L, RGB or RGBA; RGBA only if something is transparent."""
    if image.mode == "F" or image.mode.startswith("I"):
        return _narrow(image)
    mode = "RGBA" if image.has_transparency_data else "L" if image.mode in ("1", "L") else "RGB"
    return image if image.mode == mode else image.convert(mode)  # convert would copy: gigabytes for the largest images


def _narrow(image: Image.Image) -> Image.Image:
    """Return an image with more than 8 bits of grey in mode L.

    16-bit levels lose their low byte, as in a viewer; if no more than 12 bits are in use, a 12-bit scanner wrote them.
    Other ranges do not tell what is white: the darkest level becomes 0, the brightest 255.
    """
    wide = image if image.mode == "F" else image.convert("I")
    darkest, brightest = cast(tuple[float, float], wide.getextrema())  # the mode has one band
    if image.mode.startswith("I;16") or image.format == "PPM":
        scale, offset = (1 / 16 if brightest < 4096 else 1 / 256), 0.0
    else:
        scale = 255 / (brightest - darkest) if brightest > darkest else 0.0
        offset = 0.5 - darkest * scale
    grey = wide.point(lambda level: level * scale + offset).convert("L")
    grey.info.pop("transparency", None)  # it is on the old scale
    return grey


def _shrink(image: Image.Image, max_edge: int) -> Image.Image:
    scale = max_edge / max(image.size)
    if scale >= 1:
        return image
    size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
    return image.resize(size, Image.Resampling.LANCZOS, reducing_gap=3.0)


def _on_white(image: Image.Image) -> Image.Image:
    if image.mode != "RGBA":
        return image.convert("RGB")
    white = Image.new("RGBA", image.size, "white")
    return Image.alpha_composite(white, image).convert("RGB")


def _upright(image: Image.Image, orientation: object) -> Image.Image:
    transpose = _UPRIGHT.get(orientation)
    return image if transpose is None else image.transpose(transpose)


def _orientation(image: Image.Image) -> object:
    """Return the EXIF orientation of a loaded image; None if there is none (Pillow rotates TIFFs itself)."""
    try:
        return image.getexif().get(ExifTags.Base.Orientation)
    except _DECODING_ERRORS:  # the pixels are sound nonetheless
        return None


@contextmanager
def refusals() -> Iterator[None]:
    """Turn Pillow's errors about a file or a frame into a PageError, and suppress its warnings.

    Pillow warns about an image above 89 million px and refuses one above twice that; only the second is a limit here.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        except Image.DecompressionBombError as error:
            raise TooLargeError(f"the image is too large to be decoded safely: {str(error).rstrip('.')}") from error
        except MemoryError as error:
            raise PageOutOfMemoryError("the image needs more memory than there is") from error
        except UnidentifiedImageError as error:
            raise DamagedError("the header of the image cannot be decoded") from error
        except _DECODING_ERRORS as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise UnreadableError(f"the image cannot be read: {error.strerror}") from error
            raise DamagedError(f"the image cannot be decoded: {str(error) or type(error).__name__}") from error
