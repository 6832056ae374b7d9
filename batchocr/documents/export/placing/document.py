"""The words of a document: placed once for all formats that show where they are, and kept in a temporary file."""

from __future__ import annotations

import mmap
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Protocol

from PIL import Image

from batchocr.data import Failure, OutlineEntry, SearchableMade
from batchocr.documents.assembly.document import AssembledDocument, Piece
from batchocr.documents.export.placing.page import page_words, plain_text
from batchocr.pages.searchable.placed_text import PageText, line_of, pages_in


class SearchableWriter(Protocol):
    """Writes a document as a PDF to `to_path`, with the text of its pages in the file at `text_path`."""

    def __call__(self, text_path: str, to_path: str, outline: list[OutlineEntry], /) -> SearchableMade | Failure: ...


class DocumentText:
    """The words of a document's pages; in a `with` block. counts: blocks that are one word as their lines are unclear,
    documents that are signed."""

    def __init__(
        self,
        document: AssembledDocument,
        page_image: Callable[[int], Image.Image | Failure],
        write_searchable: SearchableWriter,
    ) -> None:
        self._document = document
        self._page_image = page_image
        self._write_searchable = write_searchable
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._placed: str | Failure | None = None
        self.counts: Counter[str] = Counter()

    def __enter__(self) -> DocumentText:
        return self

    def __exit__(self, *_: object) -> None:
        if self._folder is not None:
            self._folder.cleanup()

    def pages(self) -> Iterator[PageText] | Failure:
        """The pages with their words, one at a time; or why a page cannot be looked at."""
        path = self._path()
        return path if isinstance(path, Failure) else pages_in(path)

    def searchable_pdf(self) -> memoryview | Failure:
        """The document as a PDF that can be searched."""
        path = self._path()
        if isinstance(path, Failure) or self._folder is None:
            return path if isinstance(path, Failure) else Failure("damaged", "it has no pages")
        to_path = os.path.join(self._folder.name, "searchable.pdf")
        made = self._write_searchable(path, to_path, _headings(self._document))
        if isinstance(made, Failure):
            return made
        self.counts["signed"] += made.is_signed
        with tempfile.TemporaryFile() as copy, open(to_path, "rb") as written:
            shutil.copyfileobj(written, copy)  # the worker could change what it has written
            copy.flush()
            return memoryview(mmap.mmap(copy.fileno(), 0, access=mmap.ACCESS_READ))

    def _path(self) -> str | Failure:
        """The file with the words, made when it is first asked for."""
        if self._placed is None:
            self._folder = tempfile.TemporaryDirectory(prefix="batchocr-")
            self._placed = self._place(os.path.join(self._folder.name, "words.jsonl"))
        return self._placed

    def _place(self, path: str) -> str | Failure:
        with open(path, "wb") as file:
            for row in self._document.rows:
                if row.page_index is None:
                    continue
                image = self._page_image(row.page_index) if any(block.content for block in row.blocks) else None
                if isinstance(image, Failure):
                    return image
                blocks = page_words(row, image)
                self.counts["unclear"] += sum(block.is_whole for block in blocks)
                file.write(line_of(PageText(row.page_index, row.width, row.height, row.dpi, tuple(blocks))))
        return path


def _headings(document: AssembledDocument) -> list[OutlineEntry]:
    return [
        OutlineEntry(part.level or 1, title, part.places[0].page_index, min(1.0, max(0.0, part.places[0].bbox[1])))
        for part in document.parts
        if isinstance(part, Piece) and part.level and (title := plain_text(part.content or ""))
    ]
