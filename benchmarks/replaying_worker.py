"""`python -m benchmarks.replaying_worker RECORDING FD`: a worker process that plays recorded pages.

Its messages are those of a real one, but it renders nothing and its pixels are few. RECORDING: the pages' file
(`recorded.py`), which every document repeats. FD: as of `batchocr.pages`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from PIL import Image

from batchocr.data import OutlineEntry, Page, PageSeen
from batchocr.pages import serve
from batchocr.pages.protocol.base import Reader
from benchmarks.recorded import Recording, read_recording

PAGES_EACH = 10


class ReplayedDocument:
    """A document of recorded pages. What it is asked about is like no other's."""

    format = "PDF"
    page_count = PAGES_EACH

    def __init__(self, path: str) -> None:
        self._number = int(Path(path).stem)

    def approach(self, page_index: int) -> Iterator[None]:
        return iter(())

    def outline(self) -> list[OutlineEntry]:
        return []

    def look(self, page_index: int) -> PageSeen:
        raise NotImplementedError

    def render(self, page_index: int) -> Page:
        image = Image.new("RGB", (8, 8))
        image.info["number"] = page_index
        image.info["tokens"] = 1000 + PAGES_EACH * self._number + page_index
        return Page(image, 200.0)

    def close(self) -> None:
        pass


class ReplayedProtocol:
    """Asks what was asked when the pages were recorded, and returns what was read."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    def read(self, page: Page) -> Reader:
        number = page.image.info["number"] % len(self._recording)
        recorded = self._recording[number]
        tokens = page.image.info["tokens"]
        for round in range(len(recorded.rounds)):
            requests = recorded.requests(number, round)
            yield [replace(each, sampling=replace(each.sampling, max_new_tokens=tokens)) for each in requests]
        return recorded.reading


if __name__ == "__main__":
    recording = read_recording(Path(sys.argv[1]))
    serve.open_document = lambda path, **_: ReplayedDocument(path)
    serve.serve(int(sys.argv[2]), lambda setup: ReplayedProtocol(recording))
