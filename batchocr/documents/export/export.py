"""What `batchocr export` does: the documents of a table as files, written only where something is new."""

from __future__ import annotations

import hashlib
import json
import logging
import tempfile
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, astuple, dataclass, field
from functools import lru_cache, partial
from typing import Final, Literal

from PIL import Image

from batchocr.data import Additions, ErrorKind, Failure, OutlineEntry, PageResult, SearchableMade
from batchocr.documents.assembly.assemble import assemble, version_read
from batchocr.documents.export.figures import Figures
from batchocr.documents.export.folder import ExportFolder
from batchocr.documents.export.formats import NEED_PAGES, FormatOptions, format_named
from batchocr.documents.export.names import Names
from batchocr.documents.export.placing.document import DocumentText
from batchocr.documents.export.refusal import FileRefusedError
from batchocr.errors import ExitCode
from batchocr.processes.source_files import SourceFile, SourceFiles
from batchocr.storage.temporary import writing_temporary
from batchocr.tables.opened import StoredRows
from batchocr.tables.schema import content_to_json

logger = logging.getLogger(__name__)

_REVISION: Final = 4
"""Goes up with every change in `assembly` that may alter a document, so that it is written again."""

_Result = Literal["written", "up_to_date", "refused"]


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
        """Count a document. results: of its formats; the worst counts."""
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
        """Of the command: 3 if a document is not exported in full."""
        return ExitCode.TOO_MANY_FAILURES if self.refused or self.missing_figures else ExitCode.DONE

    def to_json(self) -> str:
        return json.dumps({**asdict(self), "exit_code": self.exit_code})


@dataclass(frozen=True, slots=True)
class Export:
    """An export to be made."""

    table: StoredRows
    folder: ExportFolder
    formats: Sequence[str]
    """Of FORMAT_NAMES."""
    options: FormatOptions
    sources: SourceFiles
    on_document: Callable[[int], object] = lambda _pages: None
    """Called after each document with how many rows it has."""

    def run(self, names: Names) -> Exported:
        """Write what is new. A file that cannot be put in its place is logged, and the rest is written.

        Raises OutputError if the table cannot be read, or nothing more can be written.
        """
        done = Exported()
        for source, rows in self.table.by_document():
            done.documents += 1
            done.pages += sum(row.page_index is not None for row in rows)
            self._export(names.name_of(source), source, rows, done)
            self.on_document(len(rows))
        done.vanished = self.folder.num_vanished(self.formats)
        return done

    def _export(self, name: str, source: str, rows: Sequence[PageResult], done: Exported) -> None:
        """Write a document in the formats in which it is not up to date. What is written without its file is written
        again by the next export, as the file may have an outline."""
        begun = [self.folder.begin(source, format) for format in self.formats]
        if not all(begun):
            done.refused += 1
            logger.error("%s has rows in two places of the table: only the first are exported", source)
            return
        formats = self.formats
        if all(row.page_index is None for row in rows):
            done.without_pages += 1
            formats = [format for format in formats if format not in NEED_PAGES]
            if not formats:
                return
        versions = {format: self._version(format, name, rows) for format in formats}
        stale = {key: to for key, to in versions.items() if not self.folder.is_up_to_date(source, key, to)}
        if not stale:
            done.up_to_date += 1
            return
        file = self.sources.find(source, version_read(rows))
        outline = self.sources.outline(file) if isinstance(file, SourceFile) else []
        document = assemble(source, rows, outline, unfinished=self.table.is_partial)
        of_page = {row.page_index: row for row in rows}
        page_image = lru_cache(maxsize=1)(lambda page_index: self._page_image(file, of_page[page_index]))
        with writing_temporary(), tempfile.TemporaryFile() as words:
            text = DocumentText(document, page_image, partial(self._write_searchable, file), words)
            figures = Figures(document, page_image, self.folder.picture, text)
            results: set[_Result] = set()
            for format, version in stale.items():
                try:
                    files = format_named(format).files(document, name, figures, self.options)
                    results.add("written" if self.folder.write(source, format, files) else "up_to_date")
                except FileRefusedError as error:
                    results.add("refused")
                    logger.error("%s is not exported as %s: %s", source, format, error)
                else:
                    if isinstance(file, SourceFile) and not figures.missing:
                        self.folder.complete(source, format, version)
            done.add(results, figures)

    def _version(self, format: str, name: str, rows: Sequence[PageResult]) -> str:
        """A digest of all that the document's files depend on, but for the pictures."""
        made_by = [_REVISION, format, format_named(format).REVISION, name, *astuple(self.options)]
        made_by += ["partial"] if self.table.is_partial else []
        digest = hashlib.sha256(repr(made_by).encode())
        for row in rows:
            digest.update(content_to_json(row))
        return digest.hexdigest()

    def _page_image(self, file: SourceFile | Failure, row: PageResult) -> Image.Image | Failure:
        """The page as it was read, or why it cannot be had."""
        if isinstance(file, Failure):
            return file
        if row.doc_id != file.doc_id:
            return Failure("changed", f"{row.source} has changed since this page was read")
        return self.sources.page_image(file, row)

    def _write_searchable(
        self, file: SourceFile | Failure, text_path: str, to_path: str, outline: list[OutlineEntry]
    ) -> SearchableMade | Failure:
        if isinstance(file, Failure):
            return file
        additions = Additions(tuple(outline), self.options.language, self.options.force_text)
        return self.sources.write_searchable(file, text_path, to_path, additions)
