"""A table as the rows that olmOCR writes, in the format of the Dolma toolkit: gzipped JSON Lines.

Source: `build_dolma_document` in olmOCR 0.4.27, and Dolma's docs/data-format.md.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, Final

from batchocr.documents.assembly.document import AssembledDocument, PageEnd, Piece
from batchocr.documents.export.data_text import BETWEEN, text_of
from batchocr.documents.export.figures import Figures, File
from batchocr.documents.export.folder import ExportFolder
from batchocr.documents.export.formats import DATASET, FormatOptions
from batchocr.documents.export.refusal import FileRefusedError
from batchocr.errors import OutputError
from batchocr.machine import own_version

REVISION: Final = 1

_FILE_BYTES: Final = 1 << 28
"""The bytes of the rows in a file. Compressed they are some 80 MB, which are in memory: a file is a piece of work for a
pipeline, which cannot read one from the middle."""
_GZIP: Final = 16 + zlib.MAX_WBITS


def files(document: AssembledDocument, name: str, figures: Figures, options: FormatOptions) -> Iterator[File]:
    """Yield `NAME.jsonl`, the row of the document, if it has text; but a `Dataset` gathers them. See `Format`."""
    row = dolma_row(document)
    if row["text"]:
        yield File(f"{name}.jsonl", json.dumps(row, ensure_ascii=False).encode() + b"\n")


class Dataset:
    """The files of a dataset, `documents/NUMBER.jsonl.gz`, each written as soon as it is full. All are made anew."""

    def __init__(self, folder: ExportFolder) -> None:
        self._folder = folder
        self._num_files = 0
        self._begin_file()

    def add(self, lines: Iterable[File]) -> bool:
        """Add what `files` yields; False if that is nothing. Raises OutputError."""
        has_text = False
        for line in lines:
            has_text = True
            self._packed += self._packer.compress(line.data)
            self._num_bytes += len(line.data)
            if self._num_bytes >= _FILE_BYTES:
                self._write_file()
        return has_text

    def finish(self) -> None:
        """Write the last file, and remove the files that an earlier export had beyond that. Raises OutputError."""
        if self._num_bytes:
            self._write_file()
        while self._folder.write(self._path, DATASET, ()):
            self._num_files += 1

    @property
    def _path(self) -> str:
        """The path of the file that is not written yet."""
        return f"documents/{self._num_files:05}.jsonl.gz"

    def _begin_file(self) -> None:
        self._packer = zlib.compressobj(wbits=_GZIP)
        self._packed = bytearray()
        self._num_bytes = 0

    def _write_file(self) -> None:
        self._packed += self._packer.flush()
        try:
            self._folder.write(self._path, DATASET, [File(self._path, memoryview(self._packed))])
        except FileRefusedError as error:  # it would be many documents that are missing
            raise OutputError(str(error)) from error
        self._num_files += 1
        self._begin_file()


def dolma_row(document: AssembledDocument) -> dict[str, Any]:
    """The row of a document."""
    text, spans = _text_and_spans(document)
    modified = next((row.file_mtime_ns / 1e9 for row in document.rows if row.file_mtime_ns is not None), None)
    today = datetime.now(UTC)
    states = [row.status for row in document.rows]
    return {
        # The same when the document is read again.
        "id": hashlib.sha1(f"{document.source}\n{document.doc_id}".encode()).hexdigest(),
        "text": text,
        "source": "batchocr",
        "added": f"{today:%Y-%m-%d}",
        "created": f"{today if modified is None else datetime.fromtimestamp(modified, UTC):%Y-%m-%d}",
        "version": own_version(),
        "metadata": {
            "Source-File": document.source,
            "doc-id": document.doc_id,
            "pdf-total-pages": document.page_count,
            "total-output-tokens": sum(row.output_tokens for row in document.rows),
            "failed-pages": states.count("failed"),
            "degraded-pages": states.count("degraded"),
        },
        "attributes": {"pdf_page_numbers": spans},
    }


def _text_and_spans(document: AssembledDocument) -> tuple[str, list[list[int]]]:
    """The text, and for each page [begin, end, number]: the part of the text that begins on it. Numbers are from 1."""
    texts: list[str] = []
    spans: list[list[int]] = []
    pieces: list[Piece] = []
    end = 0
    for part in document.parts:
        if isinstance(part, Piece):
            pieces += part.with_captions
        elif isinstance(part, PageEnd):
            text, pieces = text_of(pieces), []
            begin = end + len(BETWEEN) if text and end else end
            end = begin + len(text)
            spans.append([begin, end, part.page_index + 1])
            texts.append(text)
    return BETWEEN.join(filter(None, texts)), spans
