"""The words of a document: placed once for all formats that show where they are, and kept in a temporary file."""

from __future__ import annotations

import errno
import mmap
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import IO, TypeVar

from PIL import Image

from batchocr.data import Failure, OutlineEntry, SearchableMade
from batchocr.documents.assembly.document import AssembledDocument, Piece
from batchocr.documents.export.placing.page import page_words, plain_text
from batchocr.documents.export.refusal import FileRefusedError
from batchocr.pages.searchable.placed_text import PageText, line_of, pages_in

Made = TypeVar("Made", str, SearchableMade)

SearchableWriter = Callable[[str, str, list[OutlineEntry]], SearchableMade | Failure]
"""Writes a document as a PDF: with the text of its pages in the file at the first path, to the second, with the outline
if it has none."""


class DocumentText:
    """The words of a document's pages."""

    def __init__(
        self,
        document: AssembledDocument,
        page_image: Callable[[int], Image.Image | Failure],
        write_searchable: SearchableWriter,
        file: IO[bytes],
    ) -> None:
        """file: an empty one, for the words."""
        self._document = document
        self._page_image = page_image
        self._write_searchable = write_searchable
        self._file = file
        self.counts: Counter[str] = Counter()
        """`unclear`: blocks that are one word, as their lines cannot be told apart; `signed`: documents that are
        signed; `hidden_lines`: lines left out where a PDF has invisible letters."""

    def pages(self) -> Iterator[PageText]:
        """The pages with their words, one at a time. Raises FileRefusedError if a page cannot be looked at."""
        return pages_in(_required(self._path))

    def searchable_pdf(self) -> memoryview:
        """The document as a PDF that can be searched. Raises FileRefusedError if it cannot be had, and OSError if there
        is no room for temporary files."""
        words = _required(self._path)
        with tempfile.TemporaryFile() as written, tempfile.TemporaryFile() as copy:
            made = _required(self._write_searchable(words, _path_of(written), _headings(self._document)))
            if made.lacks_room:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self.counts["signed"] += int(made.is_signed)
            self.counts["hidden_lines"] += made.num_hidden_lines
            shutil.copyfileobj(written, copy)  # the worker could still change what it has written
            copy.flush()
            return memoryview(mmap.mmap(copy.fileno(), 0, access=mmap.ACCESS_READ))

    @cached_property
    def _path(self) -> str | Failure:
        """Where the words are, once they are placed; or why a page cannot be looked at."""
        for row in self._document.rows:
            if row.page_index is None:
                continue
            image = self._page_image(row.page_index) if any(block.content for block in row.blocks) else None
            if isinstance(image, Failure):
                return image
            blocks = page_words(row, image)
            self.counts["unclear"] += sum(block.is_whole for block in blocks)
            page = PageText(row.page_index, row.width, row.height, row.dpi, tuple(blocks), is_ok=row.status == "ok")
            self._file.write(line_of(page))
        self._file.flush()
        return _path_of(self._file)


def _required(made: Made | Failure) -> Made:
    """It, if there is no failure in its place. Raises FileRefusedError."""
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
