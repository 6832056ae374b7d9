"""The documents of a table as they are now: found by name and version, drawn as they were read."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pymupdf
import pytest
from PIL import Image, ImageDraw

from batchocr.config import Config
from batchocr.data import Failure, OutlineEntry, PageResult
from batchocr.pages.input.render import open_document
from batchocr.processes import source_files
from batchocr.processes.pool import WorkerPool
from batchocr.processes.source_files import SourceFile, SourceFiles
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


def found(files: SourceFiles, folder: Path, source: str) -> SourceFile:
    file = files.find(source, hashlib.sha256((folder / source).read_bytes()).hexdigest())
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


def test_a_file_that_was_replaced_meanwhile_is_drawn_as_it_is_now(files: SourceFiles, folder: Path) -> None:
    path = folder / "replaced.pdf"
    for text in ("old words", "some other words"):
        draw_pdf(folder / "fresh.pdf", text).replace(path)
        expected = open_document(str(path), password=None, dpi=72).render(0).image
        image = files.page_image(file := found(files, folder, "replaced.pdf"), row(file, 0, *expected.size))
        assert isinstance(image, Image.Image)
        assert image.tobytes() == expected.tobytes()


def test_the_outline_says_where_on_the_page_as_shown_a_heading_is(files: SourceFiles, folder: Path) -> None:
    assert files.outline(found(files, folder, "below/book.pdf")) == [
        OutlineEntry(1, "One", 0, 0.25),
        OutlineEntry(2, "One and a half", 2, 0.75),
    ]
    assert files.outline(found(files, folder, "picture.png")) == []


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


@pytest.mark.parametrize("behaviour", ["ask-nothing", "read"])
def test_a_worker_that_says_something_else_than_the_pixels_costs_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, behaviour: str
) -> None:
    monkeypatch.setattr(source_files, "WorkerPool", partial(WorkerPool, command=worker_entry.COMMAND))
    worker_entry.draw_page(tmp_path / "page.png", behaviour)
    with SourceFiles([str(tmp_path)], CONFIG) as files:
        said = files.page_image(file := found(files, tmp_path, "page.png"), row(file, 0, 40, 30))
    assert isinstance(said, Failure)
    assert said.kind == "crashed"
