"""The words of a document: placed once for all formats that show where they are, and kept in a temporary file."""

from __future__ import annotations

import errno
import mmap
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import IO, TypeVar

from PIL import Image

from batchocr.data import Additions, Failure, OutlineEntry, PageResult, SearchableMade
from batchocr.documents.assembly.document import AssembledDocument, Piece
from batchocr.documents.export.placing.page import page_words, plain_text
from batchocr.documents.export.refusal import FileRefusedError
from batchocr.pages.searchable.placed_text import PageText, line_of, pages_in
from batchocr.processes.source_files import SourceFile, SourceFiles, Steps, drawing_page, writing_searchable

Made = TypeVar("Made", str, SourceFile, SearchableMade)


class DocumentText:
    """The words of a document's pages."""

    words: IO[bytes]
    """The file that the words are written to, empty at first. It has to be set before anything is asked for, and
    `begin` called."""

    def __init__(
        self, document: AssembledDocument, file: SourceFile | Failure, sources: SourceFiles, additions: Additions
    ) -> None:
        """file: the document's. additions: to a PDF, which is given an outline too."""
        self._document = document
        self._file = file
        self._sources = sources
        self._additions = additions
        self.counts: Counter[str] = Counter()
        """What was counted. `unclear`: blocks that are one word, as their lines cannot be told apart; `signed`:
        documents that are signed; `hidden_lines`: lines left out where a PDF has invisible letters."""

    def begin(self) -> None:
        """Have workers draw the pages."""
        rows = (row for row in self._document.rows if row.page_index is not None)
        self._pages = self._sources.ahead((row, self._drawing(row)) for row in rows)

    def pages(self) -> Iterator[PageText]:
        """The pages with their words, one at a time. Raises FileRefusedError if a page cannot be looked at."""
        return pages_in(_required(self._path))

    def searchable_pdf(self) -> memoryview:
        """The document as a PDF that can be searched. Raises FileRefusedError if it cannot be had, and OSError if there
        is no room for temporary files."""
        words, file = _required(self._path), _required(self._file)
        additions = replace(self._additions, outline=tuple(_headings(self._document)))
        with tempfile.TemporaryFile() as written, tempfile.TemporaryFile() as copy:
            writing = writing_searchable(file, words, _path_of(written), additions)
            made = _required(self._sources.take(self._sources.begin(writing)))
            if made.lacks_room:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self.counts["signed"] += int(made.is_signed)
            self.counts["hidden_lines"] += made.num_hidden_lines
            shutil.copyfileobj(written, copy)  # the worker could still change what it has written
            copy.flush()
            return memoryview(mmap.mmap(copy.fileno(), 0, access=mmap.ACCESS_READ))

    @cached_property
    def _path(self) -> str | Failure:
        """Where the file of the words is, once they are placed; or why a page cannot be looked at."""
        for row, image in self._pages:
            if isinstance(image, Failure):
                return image
            blocks = page_words(row, image)
            self.counts["unclear"] += sum(block.is_whole for block in blocks)
            page = PageText(
                row.page_index or 0, row.width, row.height, row.dpi, tuple(blocks), is_ok=row.status == "ok"
            )
            self.words.write(line_of(page))
        self.words.flush()
        return _path_of(self.words)

    def _drawing(self, row: PageResult) -> Steps[Image.Image | Failure | None]:
        return (yield from drawing_page(self._file, row)) if any(block.content for block in row.blocks) else None


def _required(made: Made | Failure) -> Made:
    """What was made, if there is no failure in its place. Raises FileRefusedError."""
    if isinstance(made, Failure):
        raise FileRefusedError(made.message)
    return made


def _path_of(file: IO[bytes]) -> str:
    """Where a worker finds a file that has no name, and that is gone with this process, however that ends."""
    return f"/proc/{os.getpid()}/fd/{file.fileno()}"


def _headings(document: AssembledDocument) -> list[OutlineEntry]:
    return [
        OutlineEntry(part.level or 1, title, part.places[0].page_index, min(1.0, max(0.0, part.places[0].bbox[1])))
        for part in document.parts
        if isinstance(part, Piece) and part.level and (title := plain_text(part.content or ""))
    ]
