"""A worker's page, from its file to its reading: what the file lost and what the model left out are both said."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pymupdf
import pytest

from batchocr.data import Block, Completion, Page, Reading, Request
from batchocr.pages.documents import DocumentCache
from batchocr.pages.input.render import open_document
from batchocr.pages.page_worker import PageWorker
from batchocr.pages.protocol.base import Reader
from batchocr.processes.messages import Finished, ReadPage
from tests.support.pdf_files import DCT, JPEG, scan


@dataclass
class OneTask:
    """A channel that brings one message and keeps what is sent."""

    task: ReadPage
    closed: bool = False
    sent: list[object] = field(default_factory=list)

    def receive(self) -> list[tuple[ReadPage, None]]:
        self.closed = any(isinstance(message, Finished) for message in self.sent)
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
        return Reading("", self.blocks, len(answers), 0, degraded=self.degraded)


def finished_page(path: Path, protocol: Falling) -> Finished:
    channel = OneTask(ReadPage(1, str(path), 0))
    documents = DocumentCache(partial(open_document, password=None, dpi=72))
    PageWorker(channel, protocol, documents).run()  # type: ignore[arg-type]
    finished = channel.sent[-1]
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
    assert finished_page(path, Falling(short)).reading.degraded == said


@pytest.mark.parametrize(("read", "agreement"), [("A sentence of some words", 1.0), ("A sentence of same birds", 0.85)])
def test_a_reading_says_how_far_it_agrees_with_the_text_that_the_page_has_of_its_own(
    tmp_path: Path, read: str, agreement: float
) -> None:
    with pymupdf.open() as document:
        document.new_page(width=300, height=200).insert_text((20, 50), "A sentence of some words")
        document.save(tmp_path / "a.pdf")
    block = Block("text", (0.0, 0.0, 1.0, 1.0), 0, read)
    assert finished_page(tmp_path / "a.pdf", Falling(None, (block,))).reading.text_layer_agreement == agreement
