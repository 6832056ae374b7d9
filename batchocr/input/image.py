"""Image files as pages, through Pillow: one page per frame of a TIFF, GIF or WebP, one page for any other format."""

from __future__ import annotations

import struct
import warnings
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from io import BufferedReader
from pathlib import Path
from typing import cast

from PIL import ExifTags, Image, ImageFile, UnidentifiedImageError
from PIL.TiffImagePlugin import TiffImageFile

from batchocr.data import OutlineEntry, Page, PageSeen
from batchocr.errors import DamagedError, PageOutOfMemoryError, TooLargeError, UnreadableError
from batchocr.input.covered import SMALL_EDGE, covered_share
from batchocr.input.frames import TiffFile, gif_frames, tiff_directories
from batchocr.input.jpeg import fault_of_jpeg

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

_CUT_OFF = "the file ends before it should: this page, and whatever came after it, is missing"

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
    """An image file with one page."""

    page_count = 1

    def __init__(self, path: str, format_name: str, *, max_edge: int) -> None:
        self.format = format_name
        self._path = path
        self._max_edge = max_edge

    def approach(self, page_index: int) -> Iterator[None]:
        """Nothing has to be done before the page."""
        return iter(())

    def render(self, page_index: int) -> Page:
        """Return the image upright, in RGB, with transparent parts on white."""
        with refusals(), _open(self._path) as image:
            image.seek(page_index)
            image.draft(None, (self._max_edge, self._max_edge))  # a JPEG far above the limit is decoded smaller
            page = as_page(image, self._max_edge)
            return Page(image=page, dpi=None, lost=_lost_in_jpeg(self._path) if image.format == "JPEG" else None)

    def look(self, page_index: int) -> PageSeen:
        """Return what the page is like; of an animation, the first frame stands for all."""
        with refusals(), _open(self._path) as image:
            return self._seen(image)

    def _seen(self, image: ImageFile.ImageFile) -> PageSeen:
        scale = min(1.0, self._max_edge / max(1, *image.size))
        width, height = round(image.width * scale), round(image.height * scale)
        image.draft("L", (SMALL_EDGE, SMALL_EDGE))
        return PageSeen(width, height, 0, covered_share(as_page(image, SMALL_EDGE)))

    def outline(self) -> list[OutlineEntry]:
        """An image has none."""
        return []

    def close(self) -> None:
        """Nothing is kept open."""


class TiffDocument(ImageDocument):
    """A TIFF, with a page for each of its directories, and one more if the chain of them is broken off."""

    def __init__(self, path: str, *, max_edge: int) -> None:
        super().__init__(path, "TIFF", max_edge=max_edge)
        self._directories, complete = tiff_directories(path)
        self.page_count = len(self._directories) + (not complete)

    def look(self, page_index: int) -> PageSeen:
        with self._directory(page_index) as image:
            return self._seen(image)

    def render(self, page_index: int) -> Page:
        with self._directory(page_index) as image:
            return Page(image=as_page(image, self._max_edge), dpi=None)

    @contextmanager
    def _directory(self, page_index: int) -> Iterator[ImageFile.ImageFile]:
        if page_index == len(self._directories):
            raise DamagedError(_CUT_OFF)
        with (
            refusals(),
            BufferedReader(TiffFile(self._path, self._directories[page_index])) as file,
            TiffImageFile(file) as image,  # Image.open would not say what is wrong
        ):
            yield image


class Animation(ImageDocument):
    """A GIF or WebP with several frames, each a page; kept open, as each is drawn on those before it.

    Behind a frame that cannot be decoded no other can. num_frames: page_count is one more if the file is cut off.
    """

    def __init__(self, path: str, format_name: str, num_frames: int, *, complete: bool, max_edge: int) -> None:
        super().__init__(path, format_name, max_edge=max_edge)
        self._num_frames = num_frames
        self._image: ImageFile.ImageFile | None = None
        self._first_broken: int | None = None
        self.page_count = num_frames + (not complete)

    def approach(self, page_index: int) -> Iterator[None]:
        """Decode the frames before the page that are not decoded yet; yields after each."""
        if page_index >= self._num_frames:
            return
        if self._first_broken is not None and page_index >= self._first_broken:
            raise DamagedError(f"page {self._first_broken + 1} cannot be decoded, and all behind it are drawn on it")
        if self._image is not None and self._image.tell() > page_index:
            self.close()
        decoded = -1 if self._image is None else self._image.tell()
        for frame in range(decoded + 1, page_index):
            self._decode(frame)
            yield

    def render(self, page_index: int) -> Page:
        for _ in self.approach(page_index):
            pass
        if page_index == self._num_frames:
            raise DamagedError(_CUT_OFF)
        image = self._decode(page_index)
        with refusals():
            return Page(image=as_page(image, self._max_edge), dpi=None)

    def _decode(self, frame: int) -> ImageFile.ImageFile:
        """The image at this frame, which follows the one it is at."""
        with ExitStack() as closing:
            try:
                with refusals():
                    image, self._image = self._image or _open(self._path), None
                    closing.callback(image.close)  # after a failure its state is unknown
                    image.seek(frame)
                    image.load()
            except DamagedError:
                self._first_broken = frame
                raise
            self._image = image
            closing.pop_all()
        return image

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

    Extra frames of a JPEG are previews and gain maps; those of an APNG are only claimed, up to two billion.

    Raises DamagedError, TooLargeError, UnreadableError, PageOutOfMemoryError.
    """
    with refusals(), _open(path) as image:
        if image.format == "TIFF":
            return TiffDocument(path, max_edge=max_edge)
        format_name = image.format or "image"
        num_frames, complete = 1, True
        if image.format == "GIF":
            num_frames, complete = gif_frames(path)
        elif image.format == "WEBP":
            num_frames = int(getattr(image, "n_frames", 1))
    if num_frames > 1 or not complete:
        return Animation(path, format_name, num_frames, complete=complete, max_edge=max_edge)
    return ImageDocument(path, format_name, max_edge=max_edge)


def _open(path: str) -> ImageFile.ImageFile:
    return Image.open(path, formats=_FORMATS)


def _lost_in_jpeg(path: str) -> str | None:
    """What libjpeg finds corrupt in a JPEG, which Pillow does not tell; None if nothing."""
    fault = fault_of_jpeg(Path(path).read_bytes())
    return f"the image is damaged: {fault}" if fault is not None else None


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
