"""Image files as pages: every pixel mode on real values, frames, orientation, bombs and broken files."""

from __future__ import annotations

import struct
import zlib
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from batchocr.data import Page
from batchocr.errors import DamagedError, TooLargeError, UnsupportedError
from batchocr.pages.input.page_pixels import as_page
from benchmarks.attack.sound_images import png_chunk, tiff
from tests.pages.rendering import BLACK, BLUE, GREEN, RED, WHITE, opened, pixels, render, written
from tests.support.pdf_files import encoded

TWELVE = (0, 0x800, 0xFFF)
"""Levels of 12 bits: black, grey, white."""

WIDE_RGB = {256: [3], 257: [1], 258: [16, 16, 16], 259: [1], 262: [2], 277: [3]}
"""Tags of a TIFF of 3 × 1 px."""


def saved(path: Path, image: Image.Image, **options: Any) -> Path:
    image.save(path, **options)
    return path


def greys(page: Page) -> list[int]:
    assert all(red == green == blue for red, green, blue in pixels(page))
    return [red for red, _, _ in pixels(page)]


def row(mode: str, *values: Any) -> Image.Image:
    image = Image.new(mode, (len(values), 1))
    for x, value in enumerate(values):
        image.putpixel((x, 0), value)
    return image


def png(width: int, height: int, bit_depth: int, color_type: int, data: bytes, *chunks: tuple[bytes, bytes]) -> bytes:
    """A hand-written PNG. data: the rows, each with its filter byte. chunks: more chunks, placed before the data."""
    header = struct.pack(">IIBBBBB", width, height, bit_depth, color_type, 0, 0, 0)
    parts = [(b"IHDR", header), *chunks, (b"IDAT", zlib.compress(data)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(png_chunk(name, body) for name, body in parts)


@pytest.mark.parametrize(
    "name",
    ["a.png", "a.bmp", "a.dib", "a.gif", "a.tif", "a.ppm", "a.jp2", "a.j2k", "a.icns", "a.webp", "a.avif", "a.jpg"],
)
def test_every_format_is_read_whatever_its_suffix(tmp_path: Path, name: str) -> None:
    options = {"lossless": True} if name.endswith("webp") else {}
    path = saved(tmp_path / name, Image.new("RGB", (32, 32), BLUE), **options)
    page = render(path.rename(tmp_path / "scan"))
    [(red, green, blue)] = set(pixels(page))
    assert page.dpi is None
    assert red < 3 and green < 3 and blue > 250


@pytest.mark.parametrize(("mode", "levels"), [("1", [0, 255]), ("L", [0, 7, 255])])
def test_grey_stays_as_it_is(tmp_path: Path, mode: str, levels: list[int]) -> None:
    assert greys(render(saved(tmp_path / "a.png", row(mode, *levels)))) == levels


def test_a_palette_is_looked_up(tmp_path: Path) -> None:
    image = row("P", 0, 1, 2)
    image.putpalette([*RED, *GREEN, *BLUE])
    assert pixels(render(saved(tmp_path / "a.png", image))) == [RED, GREEN, BLUE]


@pytest.mark.parametrize("step", [1, 257], ids=["8 bits", "16 bits"])
def test_a_palette_of_a_tiff_may_have_levels_of_8_bits(tmp_path: Path, step: int) -> None:
    levels = [0, 99, 255] + [0] * 253
    tags = {256: [3], 257: [1], 258: [8], 259: [1], 262: [3], 320: [level * step for level in levels * 3]}
    assert greys(render(written(tmp_path / "a.tif", tiff(tags, [b"\0\1\2"])))) == [0, 99, 255]


def test_a_transparent_palette_entry_is_white(tmp_path: Path) -> None:
    image = row("P", 0, 1)
    image.putpalette([*RED, *BLACK])
    assert pixels(render(saved(tmp_path / "a.png", image, transparency=1))) == [RED, WHITE]
    assert pixels(render(saved(tmp_path / "a.gif", image, transparency=1))) == [RED, WHITE]


def test_alpha_lies_on_white(tmp_path: Path) -> None:
    image = row("RGBA", (*RED, 255), (*BLACK, 0), (*BLACK, 128))
    assert pixels(render(saved(tmp_path / "a.png", image))) == [RED, WHITE, (127, 127, 127)]
    assert greys(render(saved(tmp_path / "b.png", row("LA", (9, 255), (9, 0))))) == [9, 255]


def test_a_transparent_colour_is_white(tmp_path: Path) -> None:
    rgb = png(2, 1, 8, 2, bytes([0, *RED, *BLUE]), (b"tRNS", struct.pack(">3H", *BLUE)))
    assert pixels(render(written(tmp_path / "a.png", rgb))) == [RED, WHITE]


def test_cmyk_becomes_rgb(tmp_path: Path) -> None:
    image = row("CMYK", (0, 255, 255, 0), (0, 0, 0, 0), (0, 0, 0, 255))
    assert pixels(render(saved(tmp_path / "a.tif", image))) == [RED, WHITE, BLACK]


def test_an_adobe_cmyk_jpeg_is_not_inverted(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.jpg", Image.new("CMYK", (16, 16), (0, 255, 255, 0)))
    assert set(pixels(render(path))) <= {(red, low, low) for red in (254, 255) for low in (0, 1)}


def test_sixteen_bits_lose_their_low_byte(tmp_path: Path) -> None:
    image = row("I;16", 0x00FF, 0x0100, 0x80FF, 0xFFFF)
    assert greys(render(saved(tmp_path / "a.png", image))) == [0, 1, 0x80, 255]
    assert greys(render(saved(tmp_path / "a.tif", image))) == [0, 1, 0x80, 255]
    twelve_bits = row("I;16", 0, 0x800, 0xFFF)
    assert greys(render(saved(tmp_path / "b.tif", twelve_bits))) == [0, 0x80, 255]


@pytest.mark.parametrize("sample_format", [None, 1])
def test_levels_of_32_bits_have_no_sign_unless_they_are_said_to(tmp_path: Path, sample_format: int | None) -> None:
    levels = np.repeat(np.array([0, 2**31 - 1, 2**31, 2**32 - 1], np.uint32), 500)
    tags = {256: [2000], 257: [1], 258: [32], 259: [1], 262: [1], 277: [1]}
    tags |= {} if sample_format is None else {339: [sample_format]}
    page = render(written(tmp_path / "a.tif", tiff(tags, [levels.tobytes()])))
    assert greys(page)[::500] == pytest.approx([0, 127, 127, 255], abs=1)


def test_a_big_tiff_whose_numbers_are_big_endian_is_unsupported(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="big-endian"):
        opened(written(tmp_path / "a.tif", struct.pack(">2sHHHQ", b"MM", 43, 8, 0, 16) + bytes(64)))


def test_sixteen_bits_of_either_byte_order_are_the_same(tmp_path: Path) -> None:
    image = Image.frombytes("I;16B", (2, 1), b"\x12\x34\xff\xff")
    assert greys(render(saved(tmp_path / "a.tif", image))) == [0x12, 255]
    pgm = b"P5 2 1 65535\n\x12\x34\xff\xff"
    assert greys(render(written(tmp_path / "a.pgm", pgm))) == [0x12, 255]


def test_sixteen_bit_grey_may_have_a_transparent_level(tmp_path: Path) -> None:
    data = png(2, 1, 16, 0, b"\0\x80\x00\x03\xe8", (b"tRNS", struct.pack(">H", 1000)))
    assert greys(render(written(tmp_path / "a.png", data))) == [0x80, 3]


@pytest.mark.parametrize(
    ("mode", "values", "expected"),
    [
        ("I", (-100_000, 0, 100_000), [0, 128, 255]),
        ("F", (-1.0, 0.0, 1.0), [0, 128, 255]),
        ("F", (0.25, 0.25), [0, 0]),
        ("F", (float("-inf"), float("inf")), None),
        ("F", (float("nan"), 1.0), None),
    ],
)
def test_other_wide_ranges_go_from_their_darkest_to_their_brightest(
    tmp_path: Path, mode: str, values: tuple[float, ...], expected: list[int] | None
) -> None:
    levels = greys(render(saved(tmp_path / "a.tif", row(mode, *values))))
    assert len(levels) == len(values)
    assert expected is None or levels == expected


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.png", png(3, 1, 16, 2, b"\0\0\0\0\0\0\0\x08\0\x08\0\x08\0\x0f\xff\x0f\xff\x0f\xff")),
        ("alpha.png", png(3, 1, 16, 6, b"\0" + b"".join(struct.pack(">4H", *3 * [level], 4095) for level in TWELVE))),
        ("a.tif", tiff(WIDE_RGB, [b"".join(struct.pack("<3H", *3 * [level]) for level in TWELVE)])),
        ("grey.png", png(3, 1, 16, 0, b"\0" + struct.pack(">3H", *TWELVE))),
    ],
)
def test_twelve_of_sixteen_bits_are_as_bright_in_colour_as_in_grey(tmp_path: Path, name: str, data: bytes) -> None:
    black, grey, white = greys(render(written(tmp_path / name, data)))
    assert (black, white) == (0, 255) and 0x7F < grey < 0x90


def test_colours_of_sixteen_bits_lose_their_low_byte(tmp_path: Path) -> None:
    data = png(2, 1, 16, 2, b"\0\0\xff\x08\0\x10\0\x01\0\xff\xff\0\0")
    assert pixels(render(written(tmp_path / "a.png", data))) == [(0, 8, 16), (1, 255, 0)]


def with_density(format: str, place: int, density: bytes) -> bytes:
    """A black image of 40 × 30 px whose header says at `place` how many pixels there are, across and down."""
    data = bytearray(encoded(Image.new("L", (40, 30)), format))
    data[place : place + len(density)] = density
    return bytes(data)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("a.png", {"dpi": (200, 100)}),
        ("a.jpg", {"dpi": (200, 100)}),
        ("a.bmp", {"dpi": (200, 100)}),
        ("a.tif", {"dpi": (200, 100)}),
        ("fax.tif", {"dpi": (200, 100), "compression": "group3"}),
        ("centimetres.tif", {"tiffinfo": {282: 80.0, 283: 40.0, 296: 3}}),
        ("no_unit.tif", {"tiffinfo": {282: 2.0, 283: 1.0, 296: 1}}),
    ],
)
def test_pixels_that_are_not_square_become_square(tmp_path: Path, name: str, options: dict[str, Any]) -> None:
    path = saved(tmp_path / name, Image.new("1", (40, 30)), **options)
    assert shapes(path) == {(40, 60)}


def shapes(path: Path) -> set[tuple[int, int]]:
    """The page's size, as it is rendered and as it would be."""
    with closing(opened(path)) as document:
        seen = document.look(0)
        return {document.render(0).image.size, (seen.width, seen.height)}


def test_a_file_may_name_no_more_than_the_ratio_of_a_pixel(tmp_path: Path) -> None:
    jfif = with_density("JPEG", 13, b"\0" + struct.pack(">HH", 2, 1))
    assert shapes(written(tmp_path / "a.jpg", jfif)) == {(40, 60)}
    of_png = png(40, 30, 8, 0, 30 * bytes(41), (b"pHYs", struct.pack(">LLB", 2, 1, 0)))
    assert shapes(written(tmp_path / "a.png", of_png)) == {(40, 60)}


@pytest.mark.parametrize("density", [(1, 300), (0, 0), (2834, 2835)], ids=["absurd", "none", "rounded"])
def test_a_density_that_says_nothing_changes_no_page(tmp_path: Path, density: tuple[int, int]) -> None:
    data = png(40, 30, 8, 0, 30 * bytes(41), (b"pHYs", struct.pack(">LLB", *density, 1)))
    assert shapes(written(tmp_path / "a.png", data)) == {(40, 30)}


def test_the_longest_edge_is_that_of_the_square_pixels(tmp_path: Path) -> None:
    assert shapes(saved(tmp_path / "a.png", Image.new("L", (3000, 2500)), dpi=(200, 100))) == {(2100, 3500)}


@pytest.mark.parametrize("name", ["a.tif", "deflated.tif", "a.jpg"])
def test_a_turned_image_has_its_resolution_turned_with_it(tmp_path: Path, name: str) -> None:
    options: dict[str, Any] = {"compression": "tiff_deflate"} if name.startswith("deflated") else {}
    exif = Image.Exif()
    exif[274] = 6
    path = saved(tmp_path / name, Image.new("L", (30, 40)), dpi=(100, 200), exif=exif, **options)
    assert render(path).image.size == (40, 60)


def test_an_image_in_memory_that_was_changed_is_taken_as_it_is(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.png", Image.new("L", (40, 30)), dpi=(200, 100))
    with Image.open(path) as image:
        assert as_page(image).size == (40, 60)
        assert as_page(image.resize((40, 60))).size == (40, 60)


@pytest.mark.parametrize(
    ("width", "height", "dpi", "says"),
    [
        (30, 12_000, None, "the image was reduced by 3.4 to 3,500 px: small letters"),
        (30, 12_000, (72, 72), "reduced by 3.4"),
        (30, 12_000, (300, 300), "reduced by 3.4"),
        (30, 6000, (300, 150), "reduced by 3.4"),
        (60, 8064, None, None),
        (30, 12_000, (600, 600), None),
        (30, 3000, (100, 100), None),
    ],
)
def test_a_page_says_so_if_its_letters_may_be_too_small(
    tmp_path: Path, width: int, height: int, dpi: tuple[int, int] | None, says: str | None
) -> None:
    image = Image.new("L", (width, height), 255)
    image.paste(0, (0, 0, 9, 9))
    page = render(saved(tmp_path / "a.png", image, **({} if dpi is None else {"dpi": dpi})))
    assert page.lost is None
    assert page.doubt is None if says is None else says in str(page.doubt)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("name", ["a.png", "a.webp", "a.tif", "deflated.tif"])
def test_the_exif_orientation_is_applied(tmp_path: Path, orientation: int, name: str) -> None:
    upright = Image.new("RGB", (32, 16), WHITE)
    upright.paste(RED, (0, 0, 8, 8))
    upright.paste(BLUE, (24, 0, 32, 8))
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"a.webp": {"lossless": True}, "deflated.tif": {"compression": "tiff_adobe_deflate"}}.get(name, {})
    path = saved(tmp_path / name, as_stored(upright, orientation), exif=exif, **options)
    assert pixels(render(path)) == list(upright.get_flattened_data())


def test_a_damaged_exif_block_costs_nothing(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.jpg", Image.new("RGB", (16, 16)), exif=b"Exif\0\0II*\0nonsense and more of it")
    assert render(path).image.size == (16, 16)


def as_stored(upright: Image.Image, orientation: int) -> Image.Image:
    """The image as a camera held in this orientation would store it. Source: Exif 2.32, place of row 0 and column 0."""
    turned = upright.transpose(Image.Transpose.TRANSPOSE) if orientation >= 5 else upright
    if orientation in (2, 3, 7, 8):
        turned = turned.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    if orientation in (3, 4, 6, 7):
        turned = turned.transpose(Image.Transpose.FLIP_TOP_BOTTOM)
    return turned


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "name"), [("1", "a.png"), ("RGB", "a.jpg"), ("RGBA", "a.png"), ("P", "a.gif")])
def test_a_large_image_is_reduced_to_the_longest_edge(tmp_path: Path, mode: str, name: str) -> None:
    assert render(saved(tmp_path / name, Image.new(mode, (7600, 1000)))).image.size == (3500, 461)
    assert render(saved(tmp_path / name, Image.new(mode, (9000, 1)))).image.size == (3500, 1)


@pytest.mark.slow
def test_an_image_of_ninety_million_pixels_is_read_without_a_warning(tmp_path: Path) -> None:
    data = png(10_000, 9_000, 1, 0, (b"\0" + bytes(1250)) * 9_000)
    assert render(written(tmp_path / "a.png", data)).image.size == (3500, 3150)


@pytest.mark.parametrize("name", ["a.png", "a.bmp", "a.ppm"])
def test_an_image_that_claims_too_many_pixels_is_never_decoded(tmp_path: Path, name: str) -> None:
    claims = {
        "a.png": png(50_000, 50_000, 8, 2, b""),
        "a.bmp": b"BM" + struct.pack("<IIIIiiHHIIiiII", 0, 0, 54, 40, 50_000, 50_000, 1, 24, 0, 0, 0, 0, 0, 0),
        "a.ppm": b"P6 50000 50000 255\n",
    }
    with pytest.raises(TooLargeError, match="2500000000 pixels"):
        opened(written(tmp_path / name, claims[name]))


def truncated(path: Path) -> Path:
    saved(path, Image.effect_noise((64, 64), 50).convert("RGB"))
    return written(path, path.read_bytes()[: path.stat().st_size * 2 // 3])


@pytest.mark.parametrize("name", ["a.png", "a.jpg", "a.bmp", "a.ppm", "a.tif"])
def test_a_truncated_image_is_read_as_far_as_it_goes(tmp_path: Path, name: str) -> None:
    page = render(truncated(tmp_path / name))
    assert page.lost is not None
    assert page.lost.startswith("the image is damaged: ")
    assert len(set(pixels(page))) > 100


def test_a_gif_whose_first_frame_has_no_palette_is_read(tmp_path: Path) -> None:
    def frame(flags: int, palette: bytes) -> bytes:
        return struct.pack("<BHHHHB", 0x2C, 0, 0, 2, 1, flags) + palette + b"\x02\x02\x04\x0a\x00"

    transparent = b"\x21\xf9\x04\x01\x00\x00\x01\x00"
    header = b"GIF89a" + struct.pack("<HHBBB", 2, 1, 0, 0, 0)
    path = written(tmp_path / "a.gif", header + frame(0, b"") + transparent + frame(0x81, bytes(12)) + b";")
    assert [render(path, index).image.size for index in range(2)] == [(2, 1), (2, 1)]


def test_frames_of_grey_palettes_are_read(tmp_path: Path) -> None:
    frames = [Image.effect_noise((40, 40), 50 * number) for number in (1, 2, 3)]
    path = saved(tmp_path / "a.gif", frames[0], save_all=True, append_images=frames[1:])
    with closing(opened(path)) as document:
        for index, frame in enumerate(frames):
            assert greys(document.render(index)) == list(frame.get_flattened_data())


@pytest.mark.parametrize("brands", [b"heic\0\0\0\0mif1heic", b"mp42\0\0\0\0isommp42", b"mif1\0\0\0\0mif1miaf"])
def test_other_files_in_the_container_of_avif_are_unsupported(tmp_path: Path, brands: bytes) -> None:
    with pytest.raises(UnsupportedError, match="neither a PDF nor an image"):
        opened(written(tmp_path / "a.avif", struct.pack(">L4s", 8 + len(brands), b"ftyp") + brands + bytes(64)))


def test_a_header_cut_short_is_damage(tmp_path: Path) -> None:
    with pytest.raises(DamagedError, match="the header of the image cannot be decoded"):
        opened(written(tmp_path / "a.png", b"\x89PNG\r\n\x1a\n\0\0"))


def test_a_preview_is_no_page(tmp_path: Path) -> None:
    image = Image.new("RGB", (16, 16))
    path = saved(tmp_path / "a.jpg", image, format="MPO", save_all=True, append_images=[image])
    with closing(opened(path)) as document:
        assert document.page_count == 1


def test_an_apng_that_claims_two_billion_frames_has_one_page(tmp_path: Path) -> None:
    data = png(1, 1, 8, 0, b"\0\7", (b"acTL", struct.pack(">II", 2_000_000_000, 0)))
    with closing(opened(written(tmp_path / "a.png", data))) as document:
        assert document.page_count == 1
        assert greys(document.render(0)) == [7]


FRAME_CONTROL = (b"fcTL", struct.pack(">LLLLLHHBB", 0, 1, 1, 0, 0, 1, 1, 0, 0))


@pytest.mark.parametrize(
    "chunks",
    [
        pytest.param([(b"acTL", struct.pack(">II", 0, 0))], id="no frames"),
        pytest.param([(b"acTL", struct.pack(">II", 2, 0)), (b"fdAT", b"\0\0\0\7x")], id="no control of a frame"),
        pytest.param([(b"fdAT", b"\0\0\0\7x")], id="a frame without an animation"),
        pytest.param([FRAME_CONTROL, (b"acTL", b"")], id="wrong order"),
    ],
)
def test_a_whole_png_whose_animation_is_amiss_is_sound(tmp_path: Path, chunks: list[tuple[bytes, bytes]]) -> None:
    page = render(written(tmp_path / "a.png", png(2, 1, 8, 0, b"\0\7\x90", *chunks)))
    assert (greys(page), page.lost) == ([7, 0x90], None)


def test_a_broken_frame_leaves_the_others(tmp_path: Path) -> None:
    first, *others = (Image.new("RGB", (20, 10), color) for color in (RED, GREEN, BLUE))
    options = {"save_all": True, "append_images": others, "compression": "tiff_adobe_deflate"}
    path = saved(tmp_path / "a.tif", first, **options)
    data = bytearray(path.read_bytes())
    with Image.open(path) as image:
        image.seek(1)
        start, size = image.tag_v2[273][0], image.tag_v2[279][0]  # type: ignore[attr-defined]
    data[start : start + size] = b"\xff" * size
    with closing(opened(written(path, data))) as document:
        assert document.page_count == 3
        for _ in range(2):
            assert set(pixels(document.render(0))) == {RED}
            with pytest.raises(
                DamagedError,
                match=r"^nothing of the image can be decoded: 1 of its 1 strips are missing, corrupt, or end early",
            ):
                document.render(1)
            assert set(pixels(document.render(2))) == {BLUE}


@pytest.mark.parametrize("tag", [256, 257], ids=["width", "height"])
def test_a_frame_without_any_pixels_is_damaged(tmp_path: Path, tag: int) -> None:
    frames = [Image.new("L", (20, 10)), Image.new("L", (30, 40))]
    path = saved(tmp_path / "a.tif", frames[0], save_all=True, append_images=frames[1:])
    data = path.read_bytes()
    value = {256: 30, 257: 40}[tag]
    size, nothing = (struct.pack("<HHLL", tag, 4, 1, number) for number in (value, 0))
    assert data.count(size) == 1
    with closing(opened(written(path, data.replace(size, nothing)))) as document:
        assert document.page_count == 2
        with pytest.raises(DamagedError, match=r"^the image cannot be decoded: ."):
            document.render(1)
        assert document.render(0).image.size == (20, 10)
