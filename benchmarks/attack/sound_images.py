"""Pages like those that are scanned, in the encodings that image files have: by Pillow, or put together from bytes."""

from __future__ import annotations

import io
import random
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, groupby
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from PIL.TiffImagePlugin import TiffImageFile

Pixels: TypeAlias = NDArray[Any]
Writer: TypeAlias = Callable[[Image.Image], bytes]

WIDTH, HEIGHT = 600, 800
STRIP_ROWS = 80
"""Of a TIFF with several strips."""

TILE_EDGE = 160
_LEVELS: Mapping[str, tuple[Any, Any]] = {
    "12 of 16": (np.uint16, np.uint16(16)),
    "I;16": (np.uint16, np.uint16(257)),
    "I": (np.int32, np.int32(1000)),
}
"""Modes of more than 8 bits: their type, and by how much the levels of 8 bits are stretched."""

_SHORT_TAGS = (258, 259, 262, 266, 277, 284, 317, 339)
_LETTERS = "etaoinshrdlucmfwypvbgk"
_ADAM7 = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1))
"""First row, first column, and the step of rows and of columns, of each pass (PNG, section 8.2)."""


# --- What is on the pages -----------------------------------------------------------------------------------------


def text_page(num_lines: int = 27, seed: int = 0) -> Image.Image:
    """Lines of words, black on white."""
    dice = random.Random(seed)
    page, font = Image.new("L", (WIDTH, HEIGHT), 255), ImageFont.load_default(18)
    pen = ImageDraw.Draw(page)
    for line in range(num_lines):
        words = " ".join("".join(dice.choices(_LETTERS, k=dice.randint(2, 9))) for _ in range(9))
        pen.text((40, 30 + 27 * line), words, fill=0, font=font)
    return page


def photo_page(seed: int = 0) -> Image.Image:
    """A picture of smooth shapes and grain below a few lines."""
    noise = np.random.default_rng(seed)
    size, levels = (WIDTH, HEIGHT // 2), np.zeros((HEIGHT // 2, WIDTH))
    for step in (8, 64):
        coarse = noise.normal(0, step, (size[1] // step + 2, size[0] // step + 2)).astype(np.float32)
        levels += np.array(Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC))
    levels += noise.normal(0, 2, levels.shape)
    page = text_page(12, seed)
    page.paste(Image.fromarray(np.interp(levels, (levels.min(), levels.max()), (20, 230)).astype(np.uint8)), (0, 360))
    return page


PAGES: Mapping[str, Image.Image] = {"text": text_page(), "letter": text_page(4, 1), "photo": photo_page()}
"""A full page, one that is mostly white, and one with a picture."""


# --- Encoders that Pillow does not have ---------------------------------------------------------------------------


def tiff(tags: Mapping[int, Sequence[int]], parts: Sequence[bytes], *, order: str = "<", big: bool = False) -> bytes:
    """A TIFF of one page: its strips or tiles, then its directory. tags: without where those are and their sizes.

    Source: TIFF 6.0, section 2; BigTIFF has 43 in place of 42, and wider numbers.
    """
    word, inline = ("Q", 8) if big else ("L", 4)
    start = {"<": b"II", ">": b"MM"}[order] + (
        struct.pack(order + "HHH", 43, 8, 0) if big else struct.pack(order + "H", 42)
    )
    *offsets, end = accumulate(map(len, parts), initial=len(start) + inline)
    at_tag, size_tag = (324, 325) if 322 in tags else (273, 279)
    entries = sorted({**tags, at_tag: offsets, size_tag: [len(part) for part in parts]}.items())
    num_entries = struct.pack(order + ("Q" if big else "H"), len(entries))
    values_at = end + len(num_entries) + len(entries) * (4 + 2 * inline) + inline
    directory, values = num_entries, b""
    for tag, numbers in entries:
        short = tag in _SHORT_TAGS
        packed = struct.pack(f"{order}{len(numbers)}{'H' if short else word}", *numbers)
        directory += struct.pack(order + "HH" + word, tag, 3 if short else 16 if big else 4, len(numbers))
        if len(packed) <= inline:
            directory += packed.ljust(inline, b"\0")
        else:
            directory += struct.pack(order + word, values_at + len(values))
            values += packed
    return start + struct.pack(order + word, end) + b"".join(parts) + directory + bytes(inline) + values


def tiff_tags(pixels: Pixels, compression: int = 1) -> dict[int, list[int]]:
    """Those that each TIFF has. pixels: [rows, columns] or [rows, columns, 3]."""
    samples = pixels.shape[2] if pixels.ndim == 3 else 1
    size = {256: [pixels.shape[1]], 257: [pixels.shape[0]], 258: [pixels.itemsize * 8] * samples}
    return {**size, 259: [compression], 262: [2 if samples == 3 else 1], 277: [samples]}


def strips_of(pixels: Pixels) -> list[bytes]:
    return [pixels[row : row + STRIP_ROWS].tobytes() for row in range(0, len(pixels), STRIP_ROWS)]


def tiff_in_strips(page: Image.Image, *, white_is_0: bool = False, **layout: Any) -> bytes:
    """A TIFF without compression, in ten strips."""
    grey = np.array(page)
    tags = {**tiff_tags(grey), 262: [0 if white_is_0 else 1], 278: [STRIP_ROWS]}
    return tiff(tags, strips_of(255 - grey if white_is_0 else grey), **layout)


def tiff_in_planes(compression: int, encode: Callable[[bytes], bytes]) -> Writer:
    """Writes a TIFF that has all strips of red before those of green and of blue."""

    def write(page: Image.Image) -> bytes:
        colour = np.array(page.convert("RGB"))
        parts = [encode(part) for plane in range(3) for part in strips_of(colour[:, :, plane])]
        return tiff({**tiff_tags(colour, compression), 278: [STRIP_ROWS], 284: [2]}, parts)

    return write


def tiff_in_tiles(compression: int, encode: Callable[[Pixels], bytes]) -> Writer:
    """Writes a TIFF in tiles, each as `encode` has it."""

    def write(page: Image.Image) -> bytes:
        grey = np.pad(np.array(page), ((0, -HEIGHT % TILE_EDGE), (0, -WIDTH % TILE_EDGE)), constant_values=255)
        corners = [(y, x) for y in range(0, HEIGHT, TILE_EDGE) for x in range(0, WIDTH, TILE_EDGE)]
        tiles = [encode(grey[y : y + TILE_EDGE, x : x + TILE_EDGE]) for y, x in corners]
        edges = {322: [TILE_EDGE], 323: [TILE_EDGE]}
        return tiff({**tiff_tags(np.array(page), compression), **edges}, tiles)

    return write


def one_bit_tiff_in_tiles(page: Image.Image) -> bytes:
    """A TIFF in tiles of Group 4."""
    one_bit = page.convert("1", dither=Image.Dither.NONE)
    corners = [(x, y) for y in range(0, HEIGHT, TILE_EDGE) for x in range(0, WIDTH, TILE_EDGE)]
    tiles = [only_strip(one_bit.crop((x, y, x + TILE_EDGE, y + TILE_EDGE)), "group4") for x, y in corners]
    tags = {256: [WIDTH], 257: [HEIGHT], 258: [1], 259: [4], 262: [1], 277: [1], 322: [TILE_EDGE], 323: [TILE_EDGE]}
    return tiff(tags, tiles)


def only_strip(image: Image.Image, compression: str, tags: Mapping[int, int] | None = None) -> bytes:
    """An image as libtiff packs it."""
    data = pillow("TIFF", image.mode, compression=compression, tiffinfo={278: image.height, **(tags or {})})(image)
    with TiffImageFile(io.BytesIO(data)) as packed:
        [start], [size] = packed.tag_v2[273], packed.tag_v2[279]
    return data[start : start + size]


def png_chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">L", len(data)) + kind + data + struct.pack(">L", zlib.crc32(kind + data))


def interlaced_png(page: Image.Image) -> bytes:
    """A grey PNG in the seven passes of Adam7."""
    grey = np.array(page)
    passes = [grey[row::row_step, column::column_step] for row, column, row_step, column_step in _ADAM7]
    rows = b"".join(b"\0" + line.tobytes() for lines in passes for line in lines)
    header = png_chunk(b"IHDR", struct.pack(">LLBBBBB", page.width, page.height, 8, 0, 0, 0, 1))
    return b"\x89PNG\r\n\x1a\n" + header + png_chunk(b"IDAT", zlib.compress(rows)) + png_chunk(b"IEND", b"")


def bmp_rle8(page: Image.Image) -> bytes:
    """A BMP of grey levels in runs of up to 255 px, each line with its end mark."""
    rows = b""
    for line in np.array(page)[::-1]:
        for level, run in groupby(line.tolist()):
            whole, rest = divmod(len(list(run)), 255)
            rows += bytes([255, level]) * whole + (bytes([rest, level]) if rest else b"")
        rows += b"\0\0"
    rows += b"\0\1"
    palette = b"".join(bytes([level, level, level, 0]) for level in range(256))
    info = struct.pack("<LllHHLLllLL", 40, page.width, page.height, 1, 8, 1, len(rows), 0, 0, 256, 0)
    return b"BM" + struct.pack("<LHHL", 1078 + len(rows), 0, 0, 1078) + info + palette + rows


def bmp_without_alpha(page: Image.Image) -> bytes:
    """A BMP with a fourth channel, named alpha, that its program left at 0."""
    pixels = np.dstack([np.array(page.convert("RGB")), np.zeros((HEIGHT, WIDTH), np.uint8)])[::-1].tobytes()
    info = struct.pack("<LllHHLLllLL", 124, WIDTH, HEIGHT, 1, 32, 3, len(pixels), 2835, 2835, 0, 0)
    masks = struct.pack("<4L", 0xFF0000, 0xFF00, 0xFF, 0xFF000000)
    head = struct.pack("<LHHL", 138 + len(pixels), 0, 0, 138)
    return b"BM" + head + info + masks + b"BGRs" + bytes(64) + pixels


def plain_pgm(page: Image.Image) -> bytes:
    """A PGM of digits."""
    lines = (" ".join(map(str, line)) for line in np.array(page).tolist())
    return f"P2\n{page.width} {page.height}\n255\n{chr(10).join(lines)}\n".encode()


def icns(write: Writer) -> Writer:
    """Writes an icon of one size, 512 px."""

    def write_icon(page: Image.Image) -> bytes:
        picture = write(page.crop((0, 0, 512, 512)))
        return b"icns" + struct.pack(">L", len(picture) + 16) + b"ic09" + struct.pack(">L", len(picture) + 8) + picture

    return write_icon


# --- All of them --------------------------------------------------------------------------------------------------


def pillow(format_name: str, mode: str = "L", *, more_pages: bool = False, **options: Any) -> Writer:
    """Writes a page as Pillow does. more_pages: two more behind it."""

    def write(page: Image.Image) -> bytes:
        if more_pages:
            options["save_all"] = True
            options["append_images"] = [_in_mode(other, mode) for other in (text_page(27, 2), text_page(9, 3))]
        file = io.BytesIO()
        _in_mode(page, mode).save(file, format_name, **options)
        return file.getvalue()

    return write


def _in_mode(page: Image.Image, mode: str) -> Image.Image:
    """The page in another mode. Ink is black, with the page in its alpha; wide modes use all of their range."""
    grey = np.array(page)
    if mode == "Ink":
        return Image.merge("RGBA", [Image.new("L", page.size)] * 3 + [Image.fromarray(255 - grey)])
    if mode == "F":
        return Image.fromarray(grey / np.float32(255))
    if mode in _LEVELS:
        kind, step = _LEVELS[mode]
        return Image.fromarray(grey.astype(kind) * step)
    return page.convert("1", dither=Image.Dither.NONE) if mode == "1" else page.convert(mode)


def _tiff(
    compression: str,
    mode: str = "L",
    *,
    strip_rows: int = STRIP_ROWS,
    t4: int = 0,
    more_tags: Mapping[int, int] | None = None,
    **more: Any,
) -> Writer:
    """Writes a TIFF as libtiff does. t4: 1 for the codes of Group 3 in two dimensions."""
    tags = {278: strip_rows, **({292: t4} if compression == "group3" else {}), **(more_tags or {})}
    return pillow("TIFF", mode, compression=compression, tiffinfo=tags, **more)


ENCODINGS: Mapping[str, Writer] = {
    "TIFF Group 3 1-D": _tiff("group3", "1"),
    "TIFF Group 3 1-D, one strip": _tiff("group3", "1", strip_rows=HEIGHT),
    "TIFF Group 3 2-D": _tiff("group3", "1", t4=1),
    "TIFF Group 3 2-D, one strip": _tiff("group3", "1", t4=1, strip_rows=HEIGHT),
    "TIFF Group 4": _tiff("group4", "1"),
    "TIFF Group 4, one strip": _tiff("group4", "1", strip_rows=HEIGHT),
    "TIFF Group 4, pages": _tiff("group4", "1", more_pages=True),
    "TIFF Group 4, lowest bit first": _tiff("group4", "1", more_tags={266: 2}),
    "TIFF modified Huffman": _tiff("tiff_ccitt", "1"),
    "TIFF LZW": _tiff("tiff_lzw"),
    "TIFF LZW, differences": _tiff("tiff_lzw", "RGB", more_tags={317: 2}),
    "TIFF LZW, one strip": _tiff("tiff_lzw", "RGB", strip_rows=HEIGHT),
    "TIFF deflate": _tiff("tiff_adobe_deflate"),
    "TIFF deflate, differences": _tiff("tiff_deflate", "RGB", more_tags={317: 2}),
    "TIFF deflate, pages": _tiff("tiff_adobe_deflate", more_pages=True, strip_rows=HEIGHT),
    "TIFF packbits": _tiff("packbits"),
    "TIFF packbits, 1 bit": _tiff("packbits", "1"),
    "TIFF Zstandard": _tiff("zstd"),
    "TIFF LZMA": _tiff("lzma"),
    "TIFF JPEG": _tiff("jpeg"),
    "TIFF JPEG, one strip": _tiff("jpeg", "RGB", strip_rows=HEIGHT),
    "TIFF raw": tiff_in_strips,
    "TIFF raw, one strip": pillow("TIFF", "RGB"),
    "TIFF raw, big-endian": lambda page: tiff_in_strips(page, order=">"),
    "TIFF raw, white is 0": lambda page: tiff_in_strips(page, white_is_0=True),
    "TIFF raw, 1 bit": pillow("TIFF", "1"),
    "TIFF raw, 12 of 16 bit": pillow("TIFF", "12 of 16"),
    "TIFF raw, 16 bit": pillow("TIFF", "I;16"),
    "TIFF raw, 32 bit": pillow("TIFF", "I"),
    "TIFF raw, float": pillow("TIFF", "F"),
    "TIFF deflate, float": _tiff("tiff_adobe_deflate", "F"),
    "BigTIFF raw": lambda page: tiff_in_strips(page, big=True),
    "BigTIFF deflate": _tiff("tiff_adobe_deflate", "RGB", big_tiff=True),
    "BigTIFF Group 4": _tiff("group4", "1", big_tiff=True),
    "TIFF planes, raw": tiff_in_planes(1, bytes),
    "TIFF planes, deflate": tiff_in_planes(8, zlib.compress),
    "TIFF tiles, raw": tiff_in_tiles(1, lambda tile: tile.tobytes()),
    "TIFF tiles, deflate": tiff_in_tiles(8, lambda tile: zlib.compress(tile.tobytes())),
    "TIFF tiles, Group 4": one_bit_tiff_in_tiles,
    "TIFF tiles, JPEG": tiff_in_tiles(7, lambda tile: pillow("JPEG", quality=90)(Image.fromarray(tile))),
    "PNG": pillow("PNG"),
    "PNG colour": pillow("PNG", "RGB"),
    "PNG 1 bit": pillow("PNG", "1"),
    "PNG palette": pillow("PNG", "P"),
    "PNG 16 bit": pillow("PNG", "I;16"),
    "PNG alpha": pillow("PNG", "Ink"),
    "PNG interlaced": interlaced_png,
    "JPEG": pillow("JPEG", quality=90),
    "JPEG colour": pillow("JPEG", "RGB"),
    "JPEG optimised": pillow("JPEG", optimize=True),
    "JPEG progressive": pillow("JPEG", "RGB", progressive=True),
    "JPEG CMYK": pillow("JPEG", "CMYK"),
    "JPEG restarts": pillow("JPEG", restart_marker_rows=2),
    "WebP lossy": pillow("WEBP", "RGB", quality=80),
    "WebP lossless": pillow("WEBP", "RGB", lossless=True),
    "WebP alpha": pillow("WEBP", "Ink", quality=80),
    "GIF": pillow("GIF", interlace=0),
    "GIF interlaced": pillow("GIF"),
    "GIF frames": pillow("GIF", more_pages=True),
    "BMP 1 bit": pillow("BMP", "1"),
    "BMP 8 bit": pillow("BMP"),
    "BMP 24 bit": pillow("BMP", "RGB"),
    "BMP 32 bit": pillow("BMP", "RGBA"),
    "BMP 32 bit, alpha never set": bmp_without_alpha,
    "BMP runs": bmp_rle8,
    "JPEG 2000 lossless": pillow("JPEG2000"),
    "JPEG 2000 lossy": pillow("JPEG2000", "RGB", irreversible=True, quality_mode="dB", quality_layers=[40]),
    "JPEG 2000 layers": pillow("JPEG2000", irreversible=True, quality_layers=[80, 20, 5], progression="RLCP"),
    "JPEG 2000 codestream": pillow("JPEG2000", no_jp2=True, irreversible=True, quality_mode="dB", quality_layers=[40]),
    "JPEG 2000 tiles": pillow("JPEG2000", tile_size=(200, 200)),
    "PBM": pillow("PPM", "1"),
    "PGM": pillow("PPM"),
    "PPM": pillow("PPM", "RGB"),
    "PGM plain": plain_pgm,
    "ICNS": icns(pillow("PNG", "RGBA")),
    "ICNS JPEG 2000": icns(pillow("JPEG2000", "RGBA")),
}
