"""Documents that are no files: what a worker reads of them is what it would read of a file."""

from __future__ import annotations

import hashlib
import io
import os
import resource
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from batchocr.data import Document
from batchocr.errors import UsageError
from batchocr.pages.input.in_memory import hold
from batchocr.pages.input.render import fingerprint
from batchocr.pages.input.sources import find_documents
from tests.pages.rendering import render
from tests.support.running import draw_pdf

Pixels = tuple[str, tuple[int, int], bytes]


def page(path: str, page_index: int = 0) -> Pixels:
    image = render(Path(path), page_index).image
    return image.mode, image.size, image.tobytes()


def gradient(mode: str, size: tuple[int, int] = (40, 30)) -> Image.Image:
    grey = Image.linear_gradient("L").resize(size)
    channels = Image.merge("RGB", (grey, grey.rotate(180), grey.rotate(90, expand=False)))
    if mode == "RGBA":
        channels.putalpha(grey)
        return channels
    if mode in ("I;16", "I", "F"):
        wide = grey.convert("I").point(lambda level: level * 200)
        return wide if mode == "I" else wide.convert(mode)
    return channels.quantize(16) if mode == "P" else channels.convert(mode)


def test_bytes_are_the_document_that_a_file_with_them_is(tmp_path: Path) -> None:
    file = draw_pdf(tmp_path / "a.pdf", "One", "Two")
    data = file.read_bytes()
    for content in (data, bytearray(data), memoryview(data), io.BytesIO(data), file.open("rb")):
        with closing(content) if hasattr(content, "close") else closing(io.BytesIO()):
            document = hold("scan", content)
        assert (document.source, document.problem) == ("scan", None)
        assert fingerprint(document.path)[:2] == (hashlib.sha256(data).hexdigest(), len(data))
        assert page(document.path, 1) == page(str(file), 1)


def exif_with(orientation: int) -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


@pytest.mark.parametrize(
    ("mode", "suffix"),
    [
        *((mode, "png") for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")),
        *((mode, "tif") for mode in ("1", "L", "CMYK", "YCbCr", "I", "F", "I;16", "RGBA")),
    ],
)
def test_an_image_has_the_pixels_that_it_would_have_from_a_file(tmp_path: Path, mode: str, suffix: str) -> None:
    image = gradient(mode)
    image.save(tmp_path / f"a.{suffix}")
    held = hold("a", image)
    assert page(held.path) == page(str(tmp_path / f"a.{suffix}"))


@pytest.mark.parametrize(
    ("mode", "size", "suffix", "options"),
    [
        *(("RGB", (40, 30), "png", {"exif": exif_with(orientation)}) for orientation in range(1, 9)),
        *(("P", (40, 30), "gif", {"transparency": 3}), ("RGB", (4000, 20), "png", {})),
    ],
)
def test_an_image_is_upright_on_white_and_reduced_as_from_a_file(
    tmp_path: Path, mode: str, size: tuple[int, int], suffix: str, options: dict[str, Any]
) -> None:
    path = tmp_path / f"a.{suffix}"
    gradient(mode, size).save(path, **options)
    with Image.open(path) as image:
        held = hold("a", image)
    assert page(held.path) == page(str(path))


def test_of_several_frames_it_is_the_one_where_the_image_stands(tmp_path: Path) -> None:
    frames = [Image.new("L", (4, 4), level) for level in (10, 20, 30)]
    frames[0].save(tmp_path / "a.tif", save_all=True, append_images=frames[1:])
    with Image.open(tmp_path / "a.tif") as image:
        image.seek(1)
        held = hold("a", image)
    assert page(held.path) == ("RGB", (4, 4), bytes([20]) * 48)


def test_the_doc_id_of_an_image_depends_on_its_pixels_alone() -> None:
    image = gradient("RGB")
    same, other = image.copy(), image.copy()
    same.info["comment"] = "scanned today"
    other.putpixel((0, 0), (1, 2, 3))
    held = [hold("a", each) for each in (image, same, other)]
    first, second, third = (fingerprint(document.path)[0] for document in held)
    assert first == second != third


def test_the_memory_is_freed_with_the_document_and_is_opened_by_other_processes() -> None:
    document = hold("a", b"some bytes")
    path = document.path
    command = [sys.executable, "-c", "import sys; print(open(sys.argv[1]).read())", path]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "some bytes\n"
    with pytest.raises(OSError, match="not permitted"):
        os.truncate(path, 3)
    del document
    assert not os.path.exists(path)


def test_more_documents_are_held_than_files_may_be_open_at_first() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        documents = [hold(str(number), b"x") for number in range(600)]
        assert len({document.path for document in documents}) == 600
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_an_image_that_cannot_be_decoded_is_a_row_and_so_is_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    Image.effect_noise((64, 64), 50).save(buffer, "PNG")
    torn = Image.open(io.BytesIO(buffer.getvalue()[:900]))

    class Broken:
        def read(self) -> bytes:
            raise OSError(5, "Input/output error")

    for content, kind in ((torn, "damaged"), (Image.new("RGB", (0, 5)), "damaged"), (Broken(), "unreadable")):
        problem = hold("a", content).problem  # type: ignore[arg-type]
        assert problem is not None and problem.kind == kind
    assert find_documents([hold("a", torn)]).documents[0].problem is not None


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a", io.StringIO("text"), "'a' is a file opened for text: give bytes"),
        ("a", 5, "'a' is of type int: give bytes"),
        ("a", None, "'a' is of type NoneType"),
        ("", b"x", "needs a name that is not empty"),
    ],
)
def test_what_is_no_content_is_refused(name: str, content: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        hold(name, content)


def test_names_are_distinct_and_files_give_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.pdf").touch()
    held = hold("x.pdf", b"data")
    first, second = find_documents([held, "x.pdf"]).documents
    assert (first, second.source) == (held, f"{tmp_path}/x.pdf")
    for inputs in (["x.pdf", held], [held, hold("x.pdf", b"data")], [Document("a", "a"), Document("a", "a")]):
        with pytest.raises(UsageError, match="another document is named"):
            find_documents(inputs)


def test_a_name_that_is_not_text_is_escaped() -> None:
    assert hold(os.fsdecode(b"odd\xff.pdf"), b"data").source == "odd\\udcff.pdf"


def test_what_cannot_be_read_is_a_usage_error_and_odd_memory_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(b"\xff%PDF")
    with (tmp_path / "a.pdf").open("rb") as closed:
        pass
    with pytest.raises(UsageError, match="closed"):
        hold("a.pdf", closed)
    with (tmp_path / "a.pdf").open() as text, pytest.raises(UsageError, match="opened for text"):
        hold("a.pdf", text)  # type: ignore[arg-type]
    assert Path(hold("a.pdf", memoryview(b"abcdef")[::2]).path).read_bytes() == b"ace"
