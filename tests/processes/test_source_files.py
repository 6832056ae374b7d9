"""The documents of a table as they are now: found by name and version, drawn as they were read."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import pymupdf
import pytest
from PIL import Image, ImageDraw

from batchocr.config import Config
from batchocr.data import Failure, OutlineEntry, PageResult
from batchocr.pages.input.render import open_document
from batchocr.processes import source_files
from batchocr.processes.pool import WorkerPool
from batchocr.processes.source_files import SourceFile, SourceFiles, Steps, drawing_page
from tests.support import worker_entry
from tests.support.hostile import hanging_pdf
from tests.support.running import draw_pdf

pytestmark = pytest.mark.slow

CONFIG = Config(dpi=72, page_timeout=2.0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("documents")
    (folder / "below").mkdir()
    with pymupdf.open() as document:
        for number in range(3):
            document.new_page(width=300, height=400).insert_text((40, 100), f"Page {number}")
        document[1].set_rotation(90)
        document.set_toc(
            [
                [1, "One", 1, {"kind": pymupdf.LINK_GOTO, "page": 0, "to": pymupdf.Point(0, 100)}],
                [2, "One  and\na half", 3, {"kind": pymupdf.LINK_GOTO, "page": 2, "to": pymupdf.Point(0, 300)}],
            ]
        )
        document.save(folder / "below" / "book.pdf")
    image = Image.new("RGB", (60, 40), "white")
    ImageDraw.Draw(image).rectangle((5, 6, 20, 30), fill=(200, 30, 10))
    image.save(folder / "picture.png")
    (folder / "hangs.pdf").write_bytes(hanging_pdf())
    return folder


@pytest.fixture(scope="module")
def files(folder: Path) -> Iterator[SourceFiles]:
    with SourceFiles([str(folder), str(folder / "picture.png")], CONFIG) as files:
        yield files


def digest_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def found(files: SourceFiles, folder: Path, source: str) -> SourceFile:
    file = files.find(source, digest_of(folder / source))
    assert isinstance(file, SourceFile), file
    return file


def row(file: SourceFile, index: int, width: int, height: int) -> PageResult:
    return PageResult(file.source, index, "ok", file.doc_id, width=width, height=height)


def test_a_page_has_the_pixels_that_were_read(files: SourceFiles, folder: Path) -> None:
    for source, index in (("below/book.pdf", 0), ("below/book.pdf", 1), ("picture.png", 0)):
        expected = open_document(str(folder / source), password=None, dpi=72).render(index).image
        image = files.page_image(file := found(files, folder, source), row(file, index, *expected.size))
        assert isinstance(image, Image.Image)
        assert (image.size, image.tobytes()) == (expected.size, expected.tobytes())


def test_a_page_that_was_scaled_down_to_fit_has_the_pixels_that_were_read(files: SourceFiles, folder: Path) -> None:
    with pymupdf.open() as document:
        document.new_page(width=4100, height=200).insert_text((40, 100), "A banner")
        document.save(folder / "banner.pdf")
    read = open_document(str(folder / "banner.pdf"), password=None, dpi=72).render(0)
    assert 61 < read.dpi < 61.5
    banner = found(files, folder, "banner.pdf")
    image = files.page_image(banner, replace(row(banner, 0, *read.image.size), dpi=read.dpi))
    assert isinstance(image, Image.Image)
    assert image.tobytes() == read.image.tobytes()


def test_a_file_that_was_replaced_meanwhile_is_drawn_as_it_is_now(files: SourceFiles, folder: Path) -> None:
    path = folder / "replaced.pdf"
    for text in ("old words", "some other words"):
        draw_pdf(folder / "fresh.pdf", text).replace(path)
        expected = open_document(str(path), password=None, dpi=72).render(0).image
        image = files.page_image(file := found(files, folder, "replaced.pdf"), row(file, 0, *expected.size))
        assert isinstance(image, Image.Image)
        assert image.tobytes() == expected.tobytes()


def test_the_outline_says_where_on_the_page_as_shown_a_heading_is(files: SourceFiles, folder: Path) -> None:
    entries = (OutlineEntry(1, "One", 0, 0.25), OutlineEntry(2, "One and a half", 2, 0.75))
    for source, outline in (("below/book.pdf", entries), ("picture.png", ())):
        file = files.take(files.begin(files.finding(source, digest_of(folder / source))))
        assert isinstance(file, SourceFile)
        assert (file.outline, files.find(source, file.doc_id)) == (outline, replace(file, outline=()))


def test_a_file_that_is_gone_changed_or_shorter_is_told(files: SourceFiles, folder: Path) -> None:
    book = found(files, folder, "below/book.pdf")
    gone, changed = files.find("gone.pdf", "d" * 64), files.find("below/book.pdf", "d" * 64)
    shorter = files.page_image(book, row(book, 3, 300, 400))
    other = files.page_image(book, row(book, 0, 301, 400))
    replaced = files.page_image(replace(book, size=book.size + 1), row(book, 0, 300, 400))
    kinds = [failure.kind for failure in (gone, changed, shorter, other, replaced) if isinstance(failure, Failure)]
    assert kinds == ["not_found", "changed", "damaged", "changed", "changed"]


@pytest.mark.long
def test_a_document_that_hangs_its_worker_costs_only_its_own_pages(files: SourceFiles, folder: Path) -> None:
    hangs = found(files, folder, "hangs.pdf")
    late = files.page_image(hangs, row(hangs, 0, 612, 792))
    assert isinstance(late, Failure)
    assert late.kind == "timeout"
    picture = found(files, folder, "picture.png")
    assert isinstance(files.page_image(picture, row(picture, 0, 60, 40)), Image.Image)


@pytest.fixture
def scripted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SourceFiles]:
    """Documents with scripted faults, and two workers for them."""
    monkeypatch.setattr(source_files, "WorkerPool", partial(WorkerPool, command=worker_entry.COMMAND))
    with SourceFiles([str(tmp_path)], CONFIG, workers=2) as files:
        yield files


@pytest.mark.parametrize("fault", ["segfault", "kill", "short", "two", "long"])
def test_a_page_that_costs_its_worker_costs_no_other_page(scripted: SourceFiles, tmp_path: Path, fault: str) -> None:
    bad = (2, 3)
    pages = [("rendering", fault) if index in bad else None for index in range(9)]
    worker_entry.write_script(tmp_path / "a.script", *pages)
    file = found(scripted, tmp_path, "a.script")
    drawn = dict(scripted.ahead((index, drawing_page(file, row(file, index, 40, 30))) for index in range(9)))
    for index, image in drawn.items():
        if isinstance(image, Failure):
            assert (index in bad, image.kind) == (True, "too_large" if fault == "long" else "crashed")
        else:
            assert (index in bad, image.getpixel((0, 0))) == (False, (0, 0, index))


def test_no_more_is_begun_ahead_than_a_few_pages_for_each_worker(files: SourceFiles) -> None:
    begun: list[int] = []

    def drawing_of(number: int) -> Iterator[Any]:
        begun.append(number)
        yield from ()

    drawn = files.ahead((number, cast(Steps[None], drawing_of(number))) for number in range(100))
    assert begun == [0, 1]
    assert [next(drawn)[0] for _ in range(3)] == [0, 1, 2]
    assert begun == list(range(5))
