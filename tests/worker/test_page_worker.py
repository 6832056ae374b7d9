"""A worker's page, from its file to its reading: what the file lost and what the model left out are both said."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from batchocr.data import Completion, Page, Reading, Request
from batchocr.input.render import open_document
from batchocr.protocol.base import Reader
from batchocr.wire.messages import Finished, ReadPage
from batchocr.worker.documents import DocumentCache
from batchocr.worker.page_worker import PageWorker
from tests.support.pdf_files import DCT, JPEG, scan


@dataclass
class OneTask:
    """A channel that brings one message and keeps what is sent."""

    task: ReadPage
    closed: bool = False
    sent: list[object] = field(default_factory=list)

    def receive(self) -> list[tuple[ReadPage, None]]:
        self.closed = bool(self.sent)
        return [] if self.closed else [(self.task, None)]

    def send(self, message: object, descriptor: int | None = None) -> None:
        self.sent.append(message)


@dataclass
class Falling:
    """A protocol that asks nothing, and falls short by so much."""

    degraded: str | None

    def read(self, page: Page) -> Reader:
        requests: list[Request] = []
        answers: list[Completion] = yield requests
        return Reading("", (), len(answers), 0, degraded=self.degraded)


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
    channel = OneTask(ReadPage(1, str(path), 0))
    documents = DocumentCache(lambda path: open_document(path, password=None, dpi=72))
    PageWorker(channel, Falling(short), documents).run()  # type: ignore[arg-type]
    finished = channel.sent[-1]
    assert isinstance(finished, Finished)
    assert finished.reading.degraded == said
