"""Image files as pages, through Pillow: one page for each frame, or picture, of the formats that have several."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from io import BufferedReader
from pathlib import Path

from PIL import ExifTags, Image, ImageFile, ImagePalette, UnidentifiedImageError
from PIL.TiffImagePlugin import COLORMAP, TiffImageFile

from batchocr.data import OutlineEntry, Page, PageSeen
from batchocr.errors import DamagedError, PageOutOfMemoryError, TooLargeError, UnreadableError, UnsupportedError
from batchocr.pages.input.frames import TiffFile, gif_frames, tiff_directories, webp_picture
from batchocr.pages.input.image_faults import (
    END_OF_JPEG,
    JPEG_SIGNATURE,
    PNG_SIGNATURE,
    fault_found_by_mupdf,
    fault_of_jpeg,
    fault_of_webp,
    still_png,
    words_of_libtiff,
)
from batchocr.pages.input.page_pixels import DECODING_ERRORS, MAX_EDGE, as_page, doubt_of, load, page_size
from batchocr.pages.input.tiff_pieces import fault_of_tiff

FORMAT_NAMES = "PNG, JPEG, JPEG 2000, WebP, AVIF, TIFF, GIF, BMP, ICNS, PPM"

_FORMATS = ("AVIF", "BMP", "DIB", "GIF", "ICNS", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
"""The Pillow plugins that may see a file. Others do more than decode: the one for EPS starts Ghostscript."""

_SIGNATURES = (
    PNG_SIGNATURE,
    JPEG_SIGNATURE,
    b"\x00\x00\x00\x0cjP  \r\n\x87\n",  # JPEG 2000
    b"\xff\x4f\xff\x51",  # JPEG 2000, bare codestream
    *(b"II*\x00", b"MM\x00*", b"II+\x00", b"MM\x00+"),  # TIFF, BigTIFF
    *(b"GIF87a", b"GIF89a"),
    b"icns",
    b"BM",
    *(size.to_bytes(4, "little") for size in (12, 40, 52, 56, 64, 108, 124)),  # DIB: no signature, but few header sizes
    *(b"P%d%c" % (kind, space) for kind in range(1, 7) for space in b" \t\r\n"),  # PBM, PGM, PPM
)

_OTHER_SIGNATURES = re.compile(rb"RIFF.{4}WEBP|.{4}ftyp(.{4}){0,9}avi[fs]", re.DOTALL)
"""The signatures of formats whose own is not at the start: WebP; AVIF, which is one of the brands of its container.
Source: ISO/IEC 14496-12, FileTypeBox."""

_CUT_OFF = "the file ends before it should: this page, and whatever came after it, is missing"

_OTHER_KIND = re.compile(r"unknown pixel mode|Unsupported BMP .*|cannot handle \d+-\w+ .*|.* support (is )?not \w+")
"""What Pillow and libtiff say of sound images whose pixels or encodings they do not know."""

_SMALL_EDGE = 550
"""The long side of an image decoded for `look`, in px."""

_NOT_SEEN = "the image has several colours, but nothing of them can be seen: it is transparent, or too faint"

Image.WARN_POSSIBLE_FORMATS = True
"""Whether Pillow says in warnings why a file is of none of its formats."""


class ImageDocument:
    """An image file: a page for each of its frames. One more page, not in num_frames, says that the file is cut off."""

    def __init__(self, path: str, format_name: str, num_frames: int = 1, *, complete: bool = True) -> None:
        self.format = format_name
        self.page_count = num_frames if complete else num_frames + 1
        self._path = path
        self._num_frames = num_frames
        self._image: ImageFile.ImageFile | None = None
        self._first_damaged = num_frames

    def render(self, page_index: int, dpi: int | None = None) -> Page:
        """Return the image upright, in RGB, with transparent parts on white."""
        if page_index == self._num_frames:
            raise DamagedError(_CUT_OFF)
        if page_index > self._first_damaged:
            raise DamagedError(f"page {self._first_damaged + 1} is damaged, and all behind it are drawn on it")
        try:
            with self.opened(page_index) as image:
                image.seek(page_index)
                doubt = doubt_of(image)
                image.draft(None, (MAX_EDGE, MAX_EDGE))  # a JPEG far above the limit is decoded smaller
                fault, failure = self._fault(image), _decode(image)
                page = _page_of(image, fault or failure, doubt)
        except DamagedError:
            self._first_damaged = page_index
            raise
        if fault is not None or failure is not None:
            self._first_damaged = page_index
            self.close()
        return page

    def _fault(self, image: ImageFile.ImageFile) -> str | None:
        """What is wrong with the image's data, though it may be decoded without a word."""
        if image.format == "JPEG":
            return fault_of_jpeg(Path(self._path).read_bytes())
        if image.format in ("PNG", "ICNS", "GIF") and self.page_count == 1:
            data = Path(self._path).read_bytes()
            return fault_found_by_mupdf(still_png(data) if image.format == "PNG" else data)
        return fault_of_webp(webp_picture(self._path, image.tell())) if image.format == "WEBP" else None

    def look(self, page_index: int) -> PageSeen:
        """Return what the page is like; of an animation, the first frame stands for all."""
        with self.opened(page_index) as image:
            width, height = page_size(image)
            image.draft("L", (_SMALL_EDGE, _SMALL_EDGE))
            as_page(image, _SMALL_EDGE)  # raises if it cannot be decoded
        return PageSeen(width, height)

    @contextmanager
    def opened(self, page_index: int) -> Iterator[ImageFile.ImageFile]:
        """The image of a page; an image of several frames stays open, as each frame is drawn on those before it."""
        if self._image is not None and self._image.tell() > page_index:
            self.close()
        with ExitStack() as at_the_end, refusals():
            at_the_end.callback(self.close)
            self._image = self._image or _open(self._path)
            yield self._image
            if self._num_frames > 1:
                at_the_end.pop_all()

    def outline(self) -> list[OutlineEntry]:
        """Nothing: an image has no outline."""
        return []

    def close(self) -> None:
        """Close the file, if it is open."""
        if self._image is not None:
            self._image.close()
            self._image = None


class TiffDocument(ImageDocument):
    """A TIFF: a page for each of its directories but previews and masks, and one more page if the file is cut off."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "TIFF")
        self._directories, complete = tiff_directories(path)
        self.page_count = len(self._directories) if complete else len(self._directories) + 1

    def render(self, page_index: int, dpi: int | None = None) -> Page:
        with self.opened(page_index) as image, words_of_libtiff() as words:
            fault, failure = fault_of_tiff(image, self._path), _decode(image)
            _require_known_kind(said := words() or "")
            return _page_of(image, fault or said or failure, doubt_of(image))

    @contextmanager
    def opened(self, page_index: int) -> Iterator[TiffImageFile]:
        if page_index == len(self._directories):
            raise DamagedError(_CUT_OFF)
        with (
            refusals(),
            BufferedReader(TiffFile(self._path, self._directories[page_index])) as file,
            TiffImageFile(file) as image,  # Image.open would not say what is wrong
        ):
            if image.tag_v2.get(ExifTags.Base.Orientation) in (5, 6, 7, 8):  # Pillow turns the pixels, but not these
                image.info |= {key: image.info[key][::-1] for key in ("dpi", "resolution") if key in image.info}
            if image.mode == "P" and max(levels := image.tag_v2[COLORMAP]) < 256:  # they should be of 16 bits
                image.palette = ImagePalette.raw("RGB;L", bytes(levels))
            yield image


def _page_of(image: Image.Image, fault: str | None, doubt: str | None) -> Page:
    """The page of a decoded image, with its damage. Raises DamagedError if nothing is left, and what `as_page` does."""
    page = as_page(image)
    if page.getcolors(1) is None:
        return Page(page, None, None if fault is None else f"the image is damaged: {fault}", doubt)
    if fault is not None:
        raise DamagedError(f"nothing of the image can be decoded: {fault}")
    return Page(page, None, lost=_NOT_SEEN if _has_colours(image) else None)


def begins_like_an_image(head: bytes) -> bool:
    """Return whether the first bytes of a file are those of a format read here."""
    return head.startswith(_SIGNATURES) or _OTHER_SIGNATURES.match(head) is not None


def open_image(path: str) -> ImageDocument:
    """Return the image file at `path`.

    Extra frames of a JPEG are previews and gain maps; those of an APNG are only claimed, up to two billion.

    Raises DamagedError, UnsupportedError, TooLargeError, UnreadableError, PageOutOfMemoryError.
    """
    with refusals(), _open(path) as image:
        if image.format == "TIFF":
            return TiffDocument(path)
        format_name = image.format or "image"
        num_frames = int(getattr(image, "n_frames", 1)) if format_name in ("WEBP", "AVIF") else 1
    num_frames, complete = gif_frames(path) if format_name == "GIF" else (num_frames, True)
    return ImageDocument(path, format_name, max(1, num_frames), complete=complete)


def _open(path: str) -> ImageFile.ImageFile:
    with open(path, "rb") as file:
        head = file.read(len(PNG_SIGNATURE))
        if head.startswith(JPEG_SIGNATURE):  # without the mark of its end Pillow leaves out the rest
            return Image.open(io.BytesIO(Path(path).read_bytes() + END_OF_JPEG), formats=_FORMATS)
        if head == PNG_SIGNATURE:
            return Image.open(io.BytesIO(still_png(Path(path).read_bytes())), formats=_FORMATS)
    if head.startswith(b"MM\x00+"):
        raise UnsupportedError("a BigTIFF whose numbers are big-endian is not read: save it as TIFF or PNG first")
    return Image.open(path, formats=_FORMATS)


def _decode(image: ImageFile.ImageFile) -> str | None:
    """Decode what can be, and return why not all; None if it is all. Raises what Pillow raises if it is nothing."""
    try:
        load(image)
    except DECODING_ERRORS as error:
        try:
            image.im  # noqa: B018, it raises if nothing has been decoded
        except DECODING_ERRORS:
            raise error from None
        if isinstance(error, OSError) and error.errno is not None:
            raise
        image.tile = []
        return str(error) or type(error).__name__
    return None


def _has_colours(image: Image.Image) -> bool:
    """Whether an image of 8 bits has more than one colour, whatever its transparency."""
    if image.mode == "F" or image.mode.startswith("I"):
        return False
    return image.convert("RGB").getcolors(1) is None


def _require_known_kind(words: str) -> None:
    """Raise UnsupportedError if a decoder says that it does not know the kind of the image."""
    if kind := _OTHER_KIND.search(words):
        raise UnsupportedError(f"no kind of image that is read here ({kind[0]}): save it as PNG first")


@contextmanager
def refusals() -> Iterator[None]:
    """Turn Pillow's errors about a file or a frame into a PageError, and suppress its other warnings.

    Pillow warns about an image above 89 million px and refuses one above twice that; only the second is a limit here.
    """
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            yield
        except Image.DecompressionBombError as error:
            raise TooLargeError(f"the image is too large to be decoded safely: {str(error).rstrip('.')}") from error
        except MemoryError as error:
            raise PageOutOfMemoryError("the image needs more memory than there is") from error
        except DECODING_ERRORS as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise UnreadableError(f"the image cannot be read: {error.strerror}") from error
            is_unknown = isinstance(error, UnidentifiedImageError)  # of which Pillow says why in its warnings
            words = ", ".join(str(one.message) for one in said) if is_unknown else str(error)
            _require_known_kind(words)
            what = "the header of the image" if is_unknown else "the image"
            raise DamagedError(f"{what} cannot be decoded: {words or type(error).__name__}") from error
