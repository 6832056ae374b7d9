"""An image file that lost something says so, and what only has odd values is read as it was meant."""

from __future__ import annotations

import io
import random
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageCms

from batchocr.data import Page
from batchocr.errors import DamagedError, UnsupportedError
from benchmarks.attack.image_damage import TiffPage
from benchmarks.attack.sound_images import (
    HEIGHT,
    STRIP_ROWS,
    WIDTH,
    bmp_without_alpha,
    pillow,
    png_chunk,
    strips_of,
    text_page,
    tiff,
    tiff_in_strips,
    tiff_tags,
)
from tests.pages.rendering import render, written

PAGE = text_page()
LEVELS = np.array(PAGE)
LINES = range(30, HEIGHT - 40, 27)
DICE = random.Random(0)
SRGB = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


def encoded(format: str, mode: str = "L", **options: Any) -> bytes:
    return pillow(format, mode, **options)(PAGE)


def rendered(folder: Path, data: bytes) -> Page:
    return render(written(folder / "image", data))


def told(folder: Path, data: bytes) -> str | None:
    """What is said of an image that is damaged; None if that is nothing."""
    try:
        return rendered(folder, data).lost
    except DamagedError as error:
        return str(error)


def share_lost(page: Page) -> float:
    """Of the lines of text."""
    difference = np.abs(np.array(page.image.convert("L")).astype(int) - LEVELS)
    return float(np.mean([difference[y : y + 22].mean() > 15 for y in LINES]))


FAX = [
    *(("group4", {}), ("group3", {}), ("group3", {292: 1}), ("group3", {292: 4}), ("group3", {292: 5})),
    *(("tiff_ccitt", {}), ("group4", {266: 2}), ("group3", {266: 2})),
]
PACKED = [("tiff_lzw", {}), ("tiff_adobe_deflate", {}), ("packbits", {}), ("tiff_lzw", {266: 2}), ("zstd", {})]


@pytest.mark.slow
@pytest.mark.parametrize("rows", [HEIGHT, 70, 7])
@pytest.mark.parametrize(("compression", "tags"), [*FAX, *PACKED, ("jpeg", {}), ("raw", {})])
def test_a_sound_tiff_says_nothing(tmp_path: Path, compression: str, tags: dict[int, int], rows: int) -> None:
    mode = "1" if (compression, tags) in FAX else "L"
    rows = rows // 8 * 8 or 8 if compression == "jpeg" else rows
    page = rendered(tmp_path, encoded("TIFF", mode, compression=compression, tiffinfo={278: rows, **tags}))
    assert page.lost is None
    assert share_lost(page) == 0


@pytest.mark.parametrize(("compression", "tags"), [*FAX, *PACKED[:3], ("jpeg", {})])
@pytest.mark.parametrize("rows", [HEIGHT, 72])
def test_half_of_a_strip_zeroed_is_told(tmp_path: Path, compression: str, tags: dict[int, int], rows: int) -> None:
    mode = "1" if (compression, tags) in FAX else "L"
    data = bytearray(encoded("TIFF", mode, compression=compression, tiffinfo={278: rows, **tags}))
    start, end = TiffPage(bytes(data), DICE).part(1 if rows < HEIGHT else 0)
    data[(start + end) // 2 : end] = bytes(end - (start + end) // 2)
    words = told(tmp_path, bytes(data))
    assert words is not None
    assert f"1 of its {-(-HEIGHT // rows)} strips are missing, corrupt, or end early" in words


@pytest.mark.parametrize("compression", ["group4", "tiff_ccitt", "group3"])
def test_a_bit_of_a_fax_that_costs_a_line_of_text_is_told(tmp_path: Path, compression: str) -> None:
    data = encoded("TIFF", "1", compression=compression, tiffinfo={278: HEIGHT})
    start, end = TiffPage(data, DICE).part(0)
    dice = random.Random(compression)
    for _ in range(25):
        damaged = bytearray(data)
        damaged[dice.randrange(start, end)] ^= 1 << dice.randrange(8)
        assert told(tmp_path, bytes(damaged)) is not None or share_lost(rendered(tmp_path, bytes(damaged))) == 0


def test_a_fax_with_an_early_end_mark_is_told(tmp_path: Path) -> None:
    data = bytearray(encoded("TIFF", "1", compression="group4", tiffinfo={278: HEIGHT}))
    start, end = TiffPage(bytes(data), DICE).part(0)
    data[(start + end) // 2 : (start + end) // 2 + 6] = b"\x00\x10\x01\x00\x10\x01"
    page = rendered(tmp_path, bytes(data))
    assert page.lost == "the image is damaged: 1 of its 1 strips are missing, corrupt, or end early"
    assert share_lost(page) > 0.3


def changed_tiff(change: Callable[[TiffPage], None]) -> bytes:
    """An uncompressed TIFF in ten strips, with its directory changed."""
    page = TiffPage(tiff_in_strips(PAGE), DICE)
    change(page)
    return bytes(page.data)


@pytest.mark.parametrize(("tag", "num_lost"), [("both", 7), ("offsets", 2), ("both", 8)])
def test_strips_that_are_not_listed_are_told(tmp_path: Path, tag: str, num_lost: int) -> None:
    def change(page: TiffPage) -> None:
        offsets, lengths = page.get(273), page.get(279)
        page.put(273, offsets[:-num_lost] + ([0] * num_lost if tag == "offsets" else []))
        page.put(279, lengths if tag == "offsets" else lengths[:-num_lost])

    assert rendered(tmp_path, tiff_in_strips(PAGE)).lost is None
    page = rendered(tmp_path, changed_tiff(change))
    assert page.lost == f"the image is damaged: {num_lost} of its 10 strips are missing, corrupt, or end early"


def png_of(rows: int, *others: bytes) -> bytes:
    """A PNG, each of its checksums right, whose deflated data ends behind so many of its rows. others: its chunks
    before these."""
    header = struct.pack(">IIBBBBB", WIDTH, HEIGHT, 8, 0, 0, 0, 0)
    data = zlib.compress(b"".join(b"\0" + row.tobytes() for row in LEVELS[:rows]))
    chunks = [png_chunk(b"IHDR", header), *others, png_chunk(b"IDAT", data), png_chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def test_a_png_whose_rows_end_early_is_told(tmp_path: Path) -> None:
    assert rendered(tmp_path, png_of(HEIGHT)).lost is None
    page = rendered(tmp_path, png_of(HEIGHT // 2))
    assert page.lost is not None
    assert "missing pixel data" in page.lost
    assert share_lost(page) > 0.3


def test_a_checksum_behind_the_last_row_of_a_png_is_looked_at(tmp_path: Path) -> None:
    data = bytearray(encoded("PNG"))
    data[data.rindex(b"IDAT") + 400] ^= 1
    assert told(tmp_path, bytes(data)) is not None


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"quality": 30}, {"lossless": True}, {"save_all": True}])
@pytest.mark.parametrize("damage", ["second half zeroed", "64 bytes zeroed", "8 bytes of noise"])
def test_a_webp_that_lost_a_line_is_told(tmp_path: Path, options: dict[str, Any], damage: str) -> None:
    if "save_all" in options:
        options = options | {"append_images": [PAGE.convert("RGB").rotate(180)]}
    data = encoded("WEBP", "RGB", **options)
    assert told(tmp_path, data) is None
    half, dice = len(data) // 2, random.Random(damage)
    for _ in range(5):
        damaged = bytearray(data)
        place = dice.randrange(200, half // 2)
        if damage == "second half zeroed":
            damaged[half:] = bytes(len(data) - half)
        elif damage == "64 bytes zeroed":
            damaged[place : place + 64] = bytes(64)
        else:
            damaged[place : place + 8] = dice.randbytes(8)
        assert told(tmp_path, bytes(damaged)) is not None or share_lost(rendered(tmp_path, bytes(damaged))) == 0


def with_alpha(levels: np.ndarray[Any, Any], kind: int) -> bytes:
    """A TIFF of grey that is opaque everywhere. kind: of its alpha."""
    pixels = np.dstack([levels, np.full_like(levels, np.iinfo(levels.dtype).max)])
    tags = {**tiff_tags(levels), 258: [levels.itemsize * 8] * 2, 277: [2], 278: [STRIP_ROWS], 338: [kind]}
    return tiff(tags, strips_of(pixels))


def with_lengths(length: int) -> bytes:
    return changed_tiff(lambda page: page.put(279, [length] * len(page)))


ODD_FILES: dict[str, Callable[[], bytes]] = {
    # Another tag takes the place of StripByteCounts.
    "strips without lengths": lambda: tiff_in_strips(PAGE).replace(b"\x17\x01\x04\0", b"\x19\x01\x04\0"),
    "strips longer than their rows": lambda: with_lengths(STRIP_ROWS * WIDTH + 3),
    "strips of length 0": lambda: with_lengths(0),
    "strips of 2 GB": lambda: with_lengths(2**31),
    "a grey PNG with a profile for RGB": lambda: png_of(HEIGHT, png_chunk(b"iCCP", b"p\0\0" + zlib.compress(SRGB))),
    "a PNG with a profile that is none": lambda: png_of(HEIGHT, png_chunk(b"iCCP", b"p\0\0" + zlib.compress(b"no"))),
    "a PNG with a profile that is not deflated": lambda: png_of(HEIGHT, png_chunk(b"iCCP", b"p\0\0no profile")),
    "a PNG with half of another inside": lambda: png_of(HEIGHT, png_chunk(b"prVt", encoded("PNG")[:500])),
    "a GIF with a block that ends twice": lambda: encoded("GIF", interlace=0)[:-1] + b"\0;",
    "a GIF with a comment of no bytes": lambda: encoded("GIF", interlace=0)[:-1] + b"!\xfe\0;",
    "a TIFF of grey and its share of light": lambda: with_alpha(LEVELS, 1),
}


@pytest.mark.parametrize("oddity", ODD_FILES)
def test_an_odd_file_that_lacks_nothing_says_nothing(tmp_path: Path, oddity: str) -> None:
    page = rendered(tmp_path, ODD_FILES[oddity]())
    assert page.lost is None
    assert share_lost(page) == 0


def with_one(value: float, levels: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    levels[0, 0] = value
    return levels


def white_is_lowest(levels: np.ndarray[Any, Any]) -> bytes:
    sample_format = 3 if levels.dtype.kind == "f" else 1
    return tiff({**tiff_tags(levels), 262: [0], 278: [STRIP_ROWS], 339: [sample_format]}, strips_of(levels))


def saved(image: Image.Image, format: str = "TIFF") -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format)
    return buffer.getvalue()


ODD_VALUES: dict[str, Callable[[], bytes]] = {
    "a float that is no number": lambda: saved(Image.fromarray(with_one(np.nan, LEVELS.astype("f4")))),
    "an infinite float": lambda: saved(Image.fromarray(with_one(np.inf, LEVELS.astype("f4")))),
    "a float far below": lambda: saved(Image.fromarray(with_one(-1e30, LEVELS.astype("f4") / 255))),
    "one bright int32": lambda: saved(Image.fromarray(with_one(2**31 - 1, LEVELS.astype("i4")))),
    "12 bits and a hot pixel": lambda: saved(Image.fromarray(with_one(4096, LEVELS.astype("u2") * 16)), "PNG"),
    "the lowest of 16 bits is white": lambda: white_is_lowest(65535 - LEVELS.astype("u2") * 257),
    "the lowest float is white": lambda: white_is_lowest(1 - LEVELS.astype("f4") / 255),
    "an alpha that was never filled in": lambda: bmp_without_alpha(PAGE),
}


@pytest.mark.parametrize("oddity", ODD_VALUES)
def test_odd_values_cost_nothing(tmp_path: Path, oddity: str) -> None:
    page = rendered(tmp_path, ODD_VALUES[oddity]())
    assert page.lost is None
    assert share_lost(page) == 0


def floats(levels: np.ndarray[Any, Any], depth: str) -> bytes:
    tags = tiff_tags(levels.astype(depth))
    return tiff({**tags, 278: [STRIP_ROWS], 339: [3] * tags[277][0]}, strips_of((levels / 255).astype(depth)))


OTHER_KINDS: dict[str, Callable[[], bytes]] = {
    "colours in floats": lambda: floats(np.dstack([LEVELS] * 3), "f4"),
    "grey in half floats": lambda: floats(LEVELS, "f2"),
    "16 bits and alpha": lambda: with_alpha(LEVELS.astype("u2") * 257, 2),
    "WebP in a TIFF": lambda: tiff({**tiff_tags(np.dstack([LEVELS] * 3), 50001)}, [encoded("WEBP", "RGB")]),
    "a JPEG of 12 bits": lambda: encoded("JPEG").replace(b"\xff\xc0\0\x0b\x08", b"\xff\xc0\0\x0b\x0c"),
    "a BMP of 2 bits": lambda: (
        b"BM" + struct.pack("<IIIIiiHHIIiiII", 99, 0, 62, 40, 9, 9, 1, 2, 0, 36, 0, 0, 2, 0) + bytes(44)
    ),
}


@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_a_sound_image_of_a_kind_that_is_not_known_is_unsupported_and_not_damaged(tmp_path: Path, kind: str) -> None:
    with pytest.raises(UnsupportedError, match=r"^no kind of image that is read here \(.*\): save it as PNG first$"):
        rendered(tmp_path, OTHER_KINDS[kind]())


def test_a_picture_of_which_nothing_can_be_seen_says_so(tmp_path: Path) -> None:
    transparent = PAGE.convert("RGBA")
    transparent.putalpha(0)
    page = rendered(tmp_path, saved(transparent, "PNG"))
    assert (
        page.lost == "the image has several colours, but nothing of them can be seen: it is transparent, or too faint"
    )
    blank = Image.new("RGBA", (9, 9), (255, 255, 255, 0))
    assert rendered(tmp_path, saved(blank, "PNG")).lost is None
