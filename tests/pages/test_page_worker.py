"""A worker's page, from its file to its reading: what the file lost and what the model left out are both said, and all
of it is of the version that was asked for."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pymupdf
import pytest
from PIL import Image

from batchocr.config import Config
from batchocr.data import Block, Completion, Page, Reading, Request, TextLayerUse
from batchocr.pages.documents import DocumentCache
from batchocr.pages.input import containers
from batchocr.pages.input.containers import Containers
from batchocr.pages.input.render import RenderableDocument, open_document, version_of
from batchocr.pages.page_worker import PageWorker
from batchocr.pages.protocol.base import Reader
from batchocr.processes.messages import (
    Began,
    Ended,
    Failed,
    Finished,
    LookAtPages,
    OfTask,
    OpenDocument,
    Opened,
    PagesSeen,
    ReadPage,
    Setup,
    Started,
    Task,
)
from batchocr.storage.members import Member, MemberAddress
from tests.support.pdf_files import DCT, JPEG, scan


@dataclass
class OneTask:
    """A channel that brings one message and keeps what is sent."""

    task: Task
    closed: bool = False
    sent: list[object] = field(default_factory=list)

    def receive(self) -> list[tuple[Task, None]]:
        self.closed = not isinstance(self.sent[-1], Started | Began | Ended)
        return [] if self.closed else [(self.task, None)]

    def send(self, message: object, descriptor: int | None = None) -> None:
        self.sent.append(message)


@dataclass
class Falling:
    """A protocol that asks nothing, and falls short by so much. blocks: what it reads."""

    degraded: str | None
    blocks: tuple[Block, ...] = ()

    def read(self, page: Page) -> Reader:
        requests: list[Request] = []
        answers: list[Completion] = yield requests
        return Reading("", self.blocks, len(answers), 0, error_message=self.degraded)


class Copying:
    """A protocol that asks nothing, and takes the words that the page has of its own."""

    def read(self, page: Page) -> Reader:
        yield list[Request]()
        return Reading(" ".join(word for _, _, word in page.words), (), 0, 0)


OPEN = partial(open_document, password=None, dpi=72)


def answer(documents: DocumentCache, task: Task, protocol: Falling | Copying | DrawingAgain) -> OfTask:
    """What a worker with these documents open makes of a task."""
    channel = OneTask(task)
    PageWorker(channel, protocol, documents).run()  # type: ignore[arg-type]
    said = channel.sent[-1]
    assert isinstance(said, OfTask)
    return said


def finished_page(path: Path, protocol: Falling) -> Finished:
    finished = answer(DocumentCache(OPEN), ReadPage(1, str(path), 0), protocol)
    assert isinstance(finished, Finished)
    return finished


LOST = "1 of the page's images is corrupt; MuPDF says: premature end of file in jpeg"


@pytest.mark.parametrize(
    ("data", "short", "said"),
    [
        (JPEG, None, None),
        (JPEG, "block 3 looped", "block 3 looped"),
        (JPEG[:1000], None, LOST),
        (JPEG[:1000], "block 3 looped", f"{LOST}; block 3 looped"),
    ],
)
def test_a_reading_is_degraded_by_its_page_and_by_its_model(
    tmp_path: Path, data: bytes, short: str | None, said: str | None
) -> None:
    path = tmp_path / "a.pdf"
    path.write_bytes(scan(DCT, data))
    assert finished_page(path, Falling(short)).reading.error_message == said


def test_a_reading_is_degraded_by_an_image_that_was_reduced_too_much(tmp_path: Path) -> None:
    long = Image.new("L", (30, 12_000), 255)
    long.paste(0, (0, 0, 9, 9))
    long.save(tmp_path / "a.png")
    said = finished_page(tmp_path / "a.png", Falling("block 3 looped")).reading.error_message
    assert str(said).startswith("the image was reduced by 3.4") and str(said).endswith("; block 3 looped")


@pytest.mark.parametrize(("read", "agreement"), [("A sentence of some words", 1.0), ("A sentence of same birds", 0.85)])
def test_a_reading_says_how_far_it_agrees_with_the_text_that_the_page_has_of_its_own(
    tmp_path: Path, read: str, agreement: float
) -> None:
    with pymupdf.open() as document:
        document.new_page(width=300, height=200).insert_text((20, 50), "A sentence of some words")
        document.save(tmp_path / "a.pdf")
    block = Block("text", (0.0, 0.0, 1.0, 1.0), 0, read)
    assert finished_page(tmp_path / "a.pdf", Falling(None, (block,))).reading.text_layer_agreement == agreement


@dataclass
class DrawingAgain:
    """A protocol that asks nothing, and says how many glyphs the page has when it is drawn again."""

    meanwhile: Callable[[], object]

    def read(self, page: Page) -> Reader:
        yield list[Request]()
        assert not page.glyphs
        self.meanwhile()
        drawn = page.again() if page.again else None
        return Reading("not drawn again" if drawn is None else str(len(drawn.glyphs)), (), 0, 0)


@pytest.mark.parametrize(
    ("text_layer", "said", "meanwhile", "drawn"),
    [
        ("check", "A word", lambda path: None, "6"),
        ("check", "", lambda path: None, "not drawn again"),
        ("off", "A word", lambda path: None, "not drawn again"),
        ("check", "A word", lambda path: path.write_bytes(b"another file"), "not drawn again"),
        ("check", "A word", lambda path: path.unlink(), "not drawn again"),
    ],
)
def test_a_page_with_text_of_its_own_can_be_drawn_again_as_long_as_its_file_is_the_same(
    tmp_path: Path, text_layer: TextLayerUse, said: str, meanwhile: Callable[[Path], object], drawn: str
) -> None:
    path = tmp_path / "a.pdf"
    with pymupdf.open() as document:
        document.new_page(width=300, height=200).insert_text((20, 50), said)
        document.save(path)
    documents = DocumentCache(partial(OPEN, text_layer=text_layer))
    status = path.stat()
    task = ReadPage(1, str(path), 0, status.st_size, status.st_mtime_ns)
    finished = answer(documents, task, DrawingAgain(lambda: meanwhile(path)))
    assert isinstance(finished, Finished)
    assert finished.reading.markdown == drawn


def write_pages(path: Path, *pages: str, mtime_ns: int) -> Path:
    """Put a PDF with a page for each word in the place of what is there. The words are in its outline, too."""
    with pymupdf.open() as document:
        for word in pages:
            document.new_page(width=300, height=200).insert_text((20, 50), word)
        document.set_toc([[1, word, number] for number, word in enumerate(pages, start=1)])
        document.save(fresh := path.with_suffix(".fresh"))
    os.utime(fresh, ns=(mtime_ns, mtime_ns))
    return fresh.replace(path)


def opened(documents: DocumentCache, path: Path) -> Opened:
    said = answer(documents, OpenDocument(1, str(path)), Copying())
    assert isinstance(said, Opened), said
    return said


def words(documents: DocumentCache, path: Path, file: Opened) -> str:
    """The words of the first page of a version, or why it cannot be read."""
    said = answer(documents, ReadPage(1, str(path), 0, file.size, file.mtime_ns), Copying())
    assert isinstance(said, Finished | Failed)
    return said.reading.markdown if isinstance(said, Finished) else said.failure.kind


def test_a_file_that_was_replaced_is_opened_anew_whatever_is_done_with_it(tmp_path: Path) -> None:
    documents, path = DocumentCache(OPEN), write_pages(tmp_path / "a.pdf", "old", mtime_ns=1)
    earlier = opened(documents, path)
    assert words(documents, path, earlier) == "old"
    write_pages(path, "newer", "words", mtime_ns=2)
    later = opened(documents, path)
    assert (later.page_count, later.doc_id != earlier.doc_id) == (2, True)
    assert (words(documents, path, later), words(documents, path, earlier)) == ("newer", "changed")
    seeing = LookAtPages(1, str(path), (0, 1), later.size, later.mtime_ns)
    seen = answer(documents, seeing, Copying())
    assert isinstance(seen, PagesSeen)
    assert [page.characters for page in seen.pages if page] == [5, 5]
    outlined = answer(documents, OpenDocument(1, str(path), with_outline=True), Copying())
    assert isinstance(outlined, Opened)
    assert ([entry.title for entry in outlined.outline], later.outline) == (["newer", "words"], ())
    said = answer(documents, replace(seeing, size=earlier.size), Copying())
    assert isinstance(said, Failed) and said.failure.kind == "changed"


def test_what_another_worker_has_open_is_not_read_as_the_version_that_replaced_it(tmp_path: Path) -> None:
    documents, others = DocumentCache(OPEN), DocumentCache(OPEN)
    path = write_pages(tmp_path / "a.pdf", "old", mtime_ns=1)
    assert words(others, path, opened(others, path)) == "old"
    write_pages(path, "new", mtime_ns=2)
    assert words(others, path, opened(documents, path)) == "new"


@pytest.mark.parametrize("moment", ["before", "after"])
def test_what_is_opened_while_its_file_is_replaced_is_read_as_no_version(tmp_path: Path, moment: str) -> None:
    """moment: before or after it is opened, between the checks that are made in the task of opening it."""
    path = write_pages(tmp_path / "a.pdf", "old", mtime_ns=1)
    os.link(path, before := tmp_path / "before.pdf")
    replaced: list[Path] = []

    def open_and_replace(path: str, *, name: str) -> RenderableDocument:
        if moment == "before" and not replaced:
            replaced.append(write_pages(Path(path), "new", mtime_ns=2))
        document = OPEN(path)
        if moment == "after" and not replaced:
            replaced.append(write_pages(Path(path), "new", mtime_ns=2))
        return document

    documents = DocumentCache(open_and_replace)
    said = answer(documents, OpenDocument(1, str(path)), Copying())
    assert isinstance(said, Failed) and (said.failure.kind, said.doc_id) == ("changed", None)
    assert words(documents, path, opened(documents, path)) == "new"
    before.replace(path)
    assert words(documents, path, opened(DocumentCache(OPEN), path)) == "old"


def test_a_compressed_tar_is_unpacked_in_steps_outside_of_the_time_for_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that gets the address of a document before anybody has unpacked the tar, as on another machine."""
    (tmp_path / "a.pdf").write_bytes(scan(DCT, JPEG))
    with tarfile.open(tmp_path / "x.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "a.pdf", "a.pdf")
    with tarfile.open(tmp_path / "x.tar.gz") as archive:
        at = archive.getmember("a.pdf")
    member = Member(0, at.offset_data, at.size, at.size, 0, "a.pdf")
    address = MemberAddress(str(tmp_path / "x.tar.gz"), version_of(str(tmp_path / "x.tar.gz")), member)
    monkeypatch.setattr(containers, "_UNPACKED_AT_ONCE", 512)
    channel = OneTask(OpenDocument(1, str(address)))
    setup = Setup.of(Config(work_dir=str(tmp_path / "work")))
    with closing(DocumentCache(OPEN, containers=Containers(setup))) as documents:
        PageWorker(channel, None, documents).run()  # type: ignore[arg-type]
    *steps, opened = channel.sent
    assert isinstance(opened, Opened)
    assert sum(isinstance(step, Began) for step in steps) > at.size // 512
