"""What `batchocr export` does: the documents of a table as files, written only where something is new."""

from __future__ import annotations

import hashlib
import json
import logging
import tempfile
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field
from typing import Final, Literal

from batchocr.data import Additions, ErrorKind, PageResult
from batchocr.documents.assembly.assemble import assemble, version_read
from batchocr.documents.export.dolma import Dataset
from batchocr.documents.export.figures import Figures, File
from batchocr.documents.export.folder import ExportFolder
from batchocr.documents.export.formats import DATASET, NEED_PAGES, FormatOptions, format_named
from batchocr.documents.export.names import Names
from batchocr.documents.export.placing.document import DocumentText
from batchocr.documents.export.refusal import FileRefusedError
from batchocr.errors import ExitCode
from batchocr.processes.source_files import Begun, SourceFile, SourceFiles, Steps
from batchocr.storage.temporary import writing_temporary
from batchocr.tables.opened import StoredRows
from batchocr.tables.schema import content_to_json

logger = logging.getLogger(__name__)

_REVISION: Final = 6
"""The revision of `assembly`, which goes up with every change there that may alter a document, so that it is written
again."""

_Result = Literal["written", "up_to_date", "refused"]
_Opened = tuple[Figures, Mapping[str, Iterator[File]]]
"""The figures of a document, and its files by format."""


@dataclass(slots=True)
class Exported:
    """What became of the documents of a table."""

    documents: int = 0
    pages: int = 0
    written: int = 0
    """Documents of which a file was written."""
    up_to_date: int = 0
    """Documents of which no file had to be written."""
    without_pages: int = 0
    """Documents without a page, such as those that the run could not open: no file in the formats that show pages."""
    without_text: int = 0
    """Documents without text, which have no row in a dataset."""
    refused: int = 0
    """Documents of which a file could not be put in its place."""
    vanished: int = 0
    """Documents exported before that are no longer in the table."""
    missing_figures: dict[ErrorKind, int] = field(default_factory=dict)
    """How many pictures could not be cut out, by what is wrong with their file or page."""
    unclear_blocks: int = 0
    """Blocks whose lines could not be told apart, so that they are one word where words have places."""
    signed: int = 0
    """Documents whose PDF is a copy, as a change would end their signature."""
    hidden_lines: int = 0
    """Lines that were not added to PDFs, which keep invisible text of their own there."""

    def add(self, results: Collection[_Result], figures: Figures) -> None:
        """Count a document. results: what came of each of its formats, of which the worst counts."""
        if "refused" in results:
            self.refused += 1
        elif "written" in results:
            self.written += 1
        else:
            self.up_to_date += 1
        for kind in figures.missing.values():
            self.missing_figures[kind] = self.missing_figures.get(kind, 0) + 1
        self.unclear_blocks += figures.text.counts["unclear"]
        self.signed += figures.text.counts["signed"]
        self.hidden_lines += figures.text.counts["hidden_lines"]

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of the command: 3 if a document is not exported in full."""
        return ExitCode.TOO_MANY_FAILURES if self.refused or self.missing_figures else ExitCode.DONE

    def to_json(self) -> str:
        return json.dumps({**asdict(self), "exit_code": self.exit_code})


@dataclass(slots=True)
class _Document:
    """A document of the table that waits for its turn."""

    source: str
    rows: Sequence[PageResult]
    name: str
    versions: Mapping[str, str]
    """The version of each format's files, as `Export` makes them of what the files depend on."""
    opened: Begun[_Opened] | None = None
    """What was begun for the document; None while nothing of it seems to be new."""


@dataclass(frozen=True, slots=True)
class Export:
    """An export to be made."""

    table: StoredRows
    folder: ExportFolder
    formats: Sequence[str]
    """The names of the formats to export, as in FORMATS."""
    options: FormatOptions
    sources: SourceFiles
    on_document: Callable[[int], object] = lambda _pages: None
    """What is called after each document, with the number of its rows."""

    def run(self, names: Names) -> Exported:
        """Write the documents that are new or have changed. A file that cannot be put in its place is logged, and the
        rest is written.

        Raises OutputError if the table cannot be read, or nothing more can be written.
        """
        done = Exported()
        dataset = Dataset(self.folder)
        for document in self._documents(names):
            done.documents += 1
            done.pages += sum(row.page_index is not None for row in document.rows)
            self._write(document, dataset, done)
            self.on_document(len(document.rows))
        if DATASET in self.formats:
            dataset.finish()
        done.vanished = self.folder.num_vanished([format for format in self.formats if format != DATASET])
        return done

    def _documents(self, names: Names) -> Iterator[_Document]:
        """Yield the documents of the table in its order. Workers have begun with the next of them, and with some of
        those behind it, as long as they have few pages."""
        waiting: deque[_Document] = deque()
        for source, rows in self.table.by_document():
            waiting.append(self._begin(source, rows, names.name_of(source)))
            while len(waiting) > 1 and sum(len(document.rows) for document in waiting) > self.sources.most_ahead:
                yield waiting.popleft()
        yield from waiting

    def _begin(self, source: str, rows: Sequence[PageResult], name: str) -> _Document:
        """Have workers begin with a document, if anything of it is new."""
        has_pages = any(row.page_index is not None for row in rows)
        formats = [format for format in self.formats if has_pages or format not in NEED_PAGES]
        document = _Document(source, rows, name, {format: self._version(format, name, rows) for format in formats})
        if stale := self._stale(document):
            document.opened = self.sources.begin(self._opening(document, stale))
        return document

    def _stale(self, document: _Document) -> list[str]:
        """The formats in which the document is not up to date."""
        versions = document.versions.items()
        return [format for format, to in versions if not self.folder.is_up_to_date(document.source, format, to)]

    def _opening(self, document: _Document, formats: Sequence[str]) -> Steps[_Opened]:
        """Steps: all that the files of a document are made of."""
        file = yield from self.sources.finding(document.source, version_read(document.rows))
        outline = file.outline if isinstance(file, SourceFile) else ()
        assembled = assemble(document.source, document.rows, outline, unfinished=self.table.is_partial)
        additions = Additions((), self.options.language, self.options.force_text)
        text = DocumentText(assembled, file, self.sources, additions)
        figures = Figures(assembled, file, self.sources, self.folder.picture, text)
        if not set(formats).isdisjoint(NEED_PAGES):
            text.begin()
        return figures, {
            format: format_named(format).files(assembled, document.name, figures, self.options) for format in formats
        }

    def _write(self, document: _Document, dataset: Dataset, done: Exported) -> None:
        """Write a document in the formats in which it is not up to date. What is written while the document's own file
        is missing is written again by the next export, as the file may have an outline."""
        opened = self.sources.take(document.opened) if document.opened else None
        begun = [self.folder.begin(document.source, format) for format in self.formats]
        if not all(begun):
            done.refused += 1
            logger.error("%s has rows in two places of the table: only the first are exported", document.source)
            return
        done.without_pages += all(row.page_index is None for row in document.rows)
        stale = self._stale(document)
        if not stale:
            done.up_to_date += bool(document.versions)
            return
        if opened is None or list(opened[1]) != stale:  # a document before it has taken the place of one of its files
            opened = self.sources.take(self.sources.begin(self._opening(document, stale)))
        figures, files = opened
        results: set[_Result] = set()
        with writing_temporary(), tempfile.TemporaryFile() as figures.text.words:
            for format, made in files.items():
                if format == DATASET:
                    done.without_text += not dataset.add(made)
                    results.add("written")
                    continue
                try:
                    results.add("written" if self.folder.write(document.source, format, made) else "up_to_date")
                except FileRefusedError as error:
                    results.add("refused")
                    logger.error("%s is not exported as %s: %s", document.source, format, error)
                else:
                    if isinstance(figures.file, SourceFile) and not figures.missing:
                        self.folder.complete(document.source, format, document.versions[format])
            done.add(results, figures)

    def _version(self, format: str, name: str, rows: Sequence[PageResult]) -> str:
        """A digest of all that the document's files depend on, but for the pictures."""
        made_by = [_REVISION, format, format_named(format).REVISION, name, *astuple(self.options)]
        made_by += ["partial"] if self.table.is_partial else []
        digest = hashlib.sha256(repr(made_by).encode())
        for row in rows:
            digest.update(content_to_json(row))
        return digest.hexdigest()
