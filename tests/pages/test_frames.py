"""Files of many frames: each frame costs its own decoding, and a file that is cut off has a page that says so."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageDraw, TiffImagePlugin

from batchocr.errors import DamagedError
from batchocr.pages.input import image
from batchocr.pages.input.frames import gif_frames, tiff_directories
from batchocr.pages.input.image import ImageDocument, open_image
from tests.pages.rendering import pixels
from tests.support.hostile import gif_chain, tiff_chain

COLORS = [(40 * number, 255 - 40 * number, 7) for number in range(6)]
CUT_OFF = "the file ends before it should"


def animation(format: str, frames: list[Image.Image] | None = None, **options: Any) -> bytes:
    frames = frames or [Image.new("RGB", (16, 16), color) for color in COLORS]
    buffer = io.BytesIO()
    frames[0].save(buffer, format, save_all=True, append_images=frames[1:], **options)
    return buffer.getvalue()


FORMATS = {
    "GIF": animation("GIF"),
    "TIFF": animation("TIFF", compression="tiff_lzw"),
    "big TIFF": animation("TIFF", big_tiff=True),
    "WebP": animation("WEBP", lossless=True),
    "AVIF": animation("AVIF", quality=100, subsampling="4:4:4"),
}


@contextmanager
def opened(folder: Path, data: bytes) -> Iterator[ImageDocument]:
    (folder / "a").write_bytes(data)
    with closing(open_image(str(folder / "a"))) as document:
        yield document


def outcomes(document: ImageDocument) -> list[tuple[int, ...] | str]:
    """What becomes of each page: the colour of its first pixel, or what it lost, or why it failed."""
    return [outcome_of(document, index) for index in range(document.page_count)]


def outcome_of(document: ImageDocument, index: int) -> tuple[int, ...] | str:
    try:
        page = document.render(index)
    except DamagedError as error:
        return str(error)
    pixel = page.image.getpixel((0, 0))
    assert isinstance(pixel, tuple)
    return page.lost or pixel


@pytest.mark.parametrize("format", FORMATS)
def test_every_frame_is_reached_in_any_order(tmp_path: Path, format: str) -> None:
    with opened(tmp_path, FORMATS[format]) as document:
        assert document.page_count == len(COLORS)
        for index in (4, 5, 0, 2, 2, 1):
            [color] = set(pixels(document.render(index)))
            assert color == pytest.approx(COLORS[index], abs=2 * (format == "AVIF"))


def tiff_of(*kinds: tuple[int, int] | None, big: bool = False) -> bytes:
    """A TIFF of a picture for each colour. kinds: a tag of each, with its value."""
    file = io.BytesIO()
    with TiffImagePlugin.AppendingTiffWriter(file) as writer:
        for kind, color in zip(kinds, COLORS, strict=False):
            tags = {} if kind is None else dict([kind])
            Image.new("RGB", (16, 16), color).save(writer, "TIFF", tiffinfo=tags, big_tiff=big)
            writer.newFrame()
    return file.getvalue()


NEW_SUBFILE_TYPE, SUBFILE_TYPE = 254, 255
FIRST, SECOND, THIRD = COLORS[:3]


@pytest.mark.parametrize("big", [False, True])
@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ([None, (NEW_SUBFILE_TYPE, 1), (NEW_SUBFILE_TYPE, 5)], [FIRST]),
        ([(NEW_SUBFILE_TYPE, 1), (NEW_SUBFILE_TYPE, 0)], [SECOND]),
        ([(NEW_SUBFILE_TYPE, 2), (NEW_SUBFILE_TYPE, 4), (NEW_SUBFILE_TYPE, 2)], [FIRST, THIRD]),
        ([(SUBFILE_TYPE, 1), (SUBFILE_TYPE, 2), (SUBFILE_TYPE, 3)], [FIRST, THIRD]),
        ([(NEW_SUBFILE_TYPE, 1), (NEW_SUBFILE_TYPE, 1)], [FIRST, SECOND]),
    ],
    ids=["pyramid", "thumbnail first", "pages and a mask", "old tag", "previews alone"],
)
def test_previews_and_masks_of_a_tiff_are_no_pages(
    tmp_path: Path, kinds: list[tuple[int, int] | None], expected: list[tuple[int, ...]], big: bool
) -> None:
    with opened(tmp_path, tiff_of(*kinds, big=big)) as document:
        assert outcomes(document) == expected


def count_calls(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> list[None]:
    calls: list[None] = []
    original = getattr(owner, name)

    def counting(*arguments: Any, **options: Any) -> Any:
        calls.append(None)
        return original(*arguments, **options)

    monkeypatch.setattr(owner, name, counting)
    return calls


def test_a_page_of_a_tiff_costs_nothing_for_those_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path, tiff_chain(2000)) as document:
        loaded = count_calls(monkeypatch, TiffImagePlugin.ImageFileDirectory_v2, "load")
        assert document.page_count == 2000
        found = outcomes(document)
    assert len(found[0]) == 3
    assert set(found[1:]) == {"the image cannot be decoded: Missing dimensions"}
    assert len(loaded) <= 4 * 2000


def test_the_frames_before_a_page_are_decoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path, gif_chain(50, 20)) as document:
        files = count_calls(monkeypatch, image, "_open")
        for index in (0, 1, 40, 40, 41, 49):
            document.render(index)
        assert len(files) == 1
        document.render(0)
        assert len(files) == 2


def test_each_frame_behind_a_damaged_one_says_so_in_any_order(tmp_path: Path) -> None:
    noise = [Image.frombytes("L", (64, 64), random.Random(number).randbytes(64 * 64)) for number in range(5)]
    data = animation("GIF", noise)
    third = [at for at in range(len(data)) if data.startswith(b",\0\0\0\0\x40\0\x40\0", at)][2]
    damaged = data[: third + 2000] + data[third + 2256 :]  # a block less
    for order in ((0, 1, 2, 3, 4), (4, 3, 2, 1, 0), (3, 4, 2, 1, 0)):
        with opened(tmp_path, damaged) as document:
            found = {index: outcome_of(document, index) for index in order}
        assert [isinstance(found[index], str) for index in range(5)] == [False, False, True, True, True]


def test_a_damaged_picture_of_an_animated_webp_is_told(tmp_path: Path) -> None:
    noise = [random.Random(number).randbytes(64 * 64) for number in range(3)]
    frames = [Image.frombytes("L", (64, 64), levels).convert("RGB") for levels in noise]
    data = bytearray(animation("WEBP", frames, lossless=True))
    second = data.index(b"VP8L", data.index(b"VP8L") + 4)
    data[second + 1000 : second + 1100] = bytes(100)
    with opened(tmp_path, bytes(data)) as document:
        first, damaged, behind = outcomes(document)
    assert (isinstance(first, tuple), isinstance(damaged, str)) == (True, True)
    assert behind == "page 2 is damaged, and all behind it are drawn on it"


@pytest.mark.parametrize("num_frames", [1, 3])
def test_an_avif_whose_pixels_cannot_be_decoded_is_damaged(tmp_path: Path, num_frames: int) -> None:
    page = Image.new("L", (600, 400), "white")
    ImageDraw.Draw(page).text((10, 10), "The mill closes at dusk.\n" * 8, fill="black", font_size=40)
    data, told = animation("AVIF", [page.convert("RGB")] * num_frames), []
    for start in range(len(data) // 4, len(data) - 60, len(data) // 16):
        flipped = bytes(byte ^ 0x5A for byte in data[start : start + 60])
        with opened(tmp_path, data[:start] + flipped + data[start + 60 :]) as document:
            told += [outcome for outcome in outcomes(document) if isinstance(outcome, str)]
    assert any("cannot be decoded" in said or "is damaged" in said for said in told)


def starts_of_frames(format: str, folder: Path) -> list[int]:
    """Where a file can be cut so that what is left holds only whole frames."""
    data = FORMATS[format]
    if format == "GIF":
        return [at for at in range(len(data)) if data.startswith(b"!\xf9", at)]
    (folder / "whole").write_bytes(data)
    return tiff_directories(str(folder / "whole"))[0][1:]


@pytest.mark.parametrize("format", ["GIF", "TIFF", "big TIFF"])
def test_a_file_cut_between_frames_has_one_more_page_that_says_so(tmp_path: Path, format: str) -> None:
    cuts = starts_of_frames(format, tmp_path)
    assert len(cuts) == 5
    for number, cut in enumerate(cuts, 1):
        with opened(tmp_path, FORMATS[format][:cut]) as document:
            *sound, last = outcomes(document)
            assert sound == COLORS[:number]
            assert CUT_OFF in last


@pytest.mark.parametrize("format", sorted(FORMATS))
def test_wherever_a_file_of_frames_is_cut_a_page_or_the_document_fails(tmp_path: Path, format: str) -> None:
    data = FORMATS[format]
    for cut in range(20, len(data) - 4, max(1, len(data) // 60)):  # Pillow ends a TIFF with a few bytes of nothing
        try:
            with opened(tmp_path, data[:cut]) as document:
                assert isinstance(outcomes(document)[-1], str)
        except DamagedError:
            pass


def test_a_gif_with_a_hole_in_it_has_one_more_page_that_says_so(tmp_path: Path) -> None:
    noise = [random.Random(number).randbytes(64 * 64) for number in range(3)]
    data = animation("GIF", [Image.frombytes("L", (64, 64), pixels) for pixels in noise])
    third = len(data) // 3
    with opened(tmp_path, data[:third] + bytes(third) + data[2 * third :]) as document:
        assert CUT_OFF in outcomes(document)[-1]


def test_a_directory_beyond_every_file_ends_the_chain(tmp_path: Path) -> None:
    data = bytearray(FORMATS["big TIFF"])
    data[8:16] = b"\xff" * 8
    (tmp_path / "a.tif").write_bytes(data)
    assert tiff_directories(str(tmp_path / "a.tif")) == ([], False)


def test_a_chain_of_directories_that_leads_back_ends(tmp_path: Path) -> None:
    data = bytearray(tiff_chain(3))
    data[-4:] = (8).to_bytes(4, "little")
    (tmp_path / "a.tif").write_bytes(data)
    offsets, whole = tiff_directories(str(tmp_path / "a.tif"))
    assert (len(offsets), whole) == (3, True)


def test_a_still_gif_is_one_page(tmp_path: Path) -> None:
    (tmp_path / "a.gif").write_bytes(animation("GIF", [Image.new("L", (5, 5))]))
    assert gif_frames(str(tmp_path / "a.gif")) == (1, True)


LINES = Image.effect_noise((120, 90), 60)
STILL: dict[str, tuple[str, str, dict[str, Any]]] = {
    "PNG": ("PNG", "L", {}),
    "JPEG": ("JPEG", "L", {}),
    "progressive JPEG": ("JPEG", "RGB", {"progressive": True}),
    "JPEG 2000": ("JPEG2000", "L", {}),
    "WebP": ("WEBP", "RGB", {}),
    "lossless WebP": ("WEBP", "RGB", {"lossless": True}),
    "GIF": ("GIF", "L", {}),
    "BMP": ("BMP", "RGB", {}),
    "PPM": ("PPM", "RGB", {}),
    "TIFF": ("TIFF", "RGB", {}),
    "TIFF, LZW": ("TIFF", "RGB", {"compression": "tiff_lzw"}),
    "TIFF, deflate": ("TIFF", "RGB", {"compression": "tiff_adobe_deflate"}),
    "TIFF, JPEG": ("TIFF", "RGB", {"compression": "jpeg"}),
    "TIFF, fax": ("TIFF", "1", {"compression": "group4"}),
}


@pytest.mark.parametrize("format", STILL)
@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.7, 0.9, 0.95])
def test_an_image_that_is_cut_off_is_never_a_sound_page(tmp_path: Path, format: str, share: float) -> None:
    name, mode, options = STILL[format]
    buffer = io.BytesIO()
    LINES.convert(mode).save(buffer, name, **options)
    data = buffer.getvalue()
    try:
        with opened(tmp_path, data[: round(len(data) * share)]) as document:
            assert isinstance(outcomes(document)[-1], str)
    except DamagedError:
        pass


@pytest.mark.parametrize("progressive", [False, True])
def test_a_jpeg_that_libjpeg_finds_corrupt_says_that_something_is_lost(tmp_path: Path, progressive: bool) -> None:
    buffer = io.BytesIO()
    Image.effect_noise((400, 300), 60).save(buffer, "JPEG", progressive=progressive)
    data = buffer.getvalue()
    half = len(data) // 2
    for hole in (b"", bytes(2000), bytes(range(60))):
        with opened(tmp_path, data[:half] + hole + data[half + len(hole) :]) as document:
            assert (document.render(0).lost is not None) is bool(hole)
