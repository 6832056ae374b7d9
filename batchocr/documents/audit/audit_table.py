"""The table of an audit, with a row for each page that was looked at, and the journal from which it is built."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import TypeAdapter, ValidationError

from batchocr.documents.findings import AuditFinding, LeftOut, PageOutcome
from batchocr.documents.review.choose import PageKey
from batchocr.errors import OutputError, OutputMismatchError
from batchocr.storage.checksums import checked_line, is_sound
from batchocr.tables.atomic import atomic_file, lies_at, open_locked, reading, writing
from batchocr.tables.files import journal_path
from batchocr.tables.schema import columns_of

_KEY: Final = "batchocr.audit"
_ROW_GROUP: Final = 256


@dataclass(frozen=True, slots=True)
class AuditedPage:
    """What an audit says of a page."""

    position: int
    """The position of the page's row in the table that was audited."""
    source: str
    page_index: int
    doc_id: str | None
    text_hash: str
    """The hash of the text that the row says."""
    outcome: PageOutcome
    """What became of the page. `compared`; `empty`: neither reader found text; `uncompared`: there is text, and none of
    it could be compared; `unreadable`: `message` says why."""
    message: str | None = None
    characters: int = 0
    """The characters that were compared, as in PageComparison."""
    uncompared: int = 0
    omitted: int = 0
    """How many characters the findings of text omitted concern."""
    invented: int = 0
    """How many characters the findings of text invented concern."""
    different: int = 0
    """How many characters the findings of other words and other numbers concern."""
    weight: float = 0.0
    """The weight of all findings of the page."""
    left_out: tuple[LeftOut, ...] = ()
    """The text that was left out, as in PageComparison."""
    findings: tuple[AuditFinding, ...] = ()

    @property
    def key(self) -> PageKey:
        return self.source, self.page_index, self.text_hash


AUDIT_SCHEMA: Final = pa.schema(columns_of(AuditedPage))
_PAGE: Final = TypeAdapter(AuditedPage)

Settings = Mapping[str, str]
"""What the rows of an audit depend on: the table, the choice, the second reader and its version."""


class AuditJournal:
    """What an audit has found so far, a line for each page, beside the table that becomes of it; locked against a
    second audit."""

    def __init__(self, out: Path, settings: Settings) -> None:
        """Begin an audit, or continue it. Raises OutputError if the table or the journal is not of an audit,
        OutputMismatchError if it is of another one."""
        self.pages: dict[int, AuditedPage] = {}
        """The pages by their place in the audited table, with those of a table that is finished."""
        self._in_table: dict[int, AuditedPage] | None = None
        self._path = journal_path(out)
        self._out = out
        self._settings = dict(settings)
        with writing(out):
            self._file: FileIO = open_locked(self._path)
            try:
                self._load()
            except BaseException:
                self.close()
                raise

    def append(self, page: AuditedPage) -> None:
        """Write the page to the journal at once: a process that is killed loses no page. Raises OutputError."""
        with writing(self._path):
            self._file.write(checked_line(_PAGE.dump_json(page)))
        self.pages[page.position] = page

    def finish(self) -> list[AuditedPage]:
        """Make the audit's table of the journal, unless that table says the same already, and empty the journal.
        Returns the rows of the table. Raises OutputError."""
        pages = [page for _, page in sorted(self.pages.items())]
        if self.pages != self._in_table:
            _write(self._out, pages, self._settings)
        self._file.truncate(0)
        return pages

    def close(self) -> None:
        """Release the lock, and delete the file if nothing is in it, unless another one has taken its name."""
        with self._file:
            if os.fstat(self._file.fileno()).st_size == 0 and lies_at(self._path, self._file):
                self._path.unlink()

    def _load(self) -> None:
        """Take the rows of the table, then the lines that are sound, and end a torn last one, so that it stays
        alone."""
        if self._out.exists():
            require_same(self._out, read_settings(self._out), self._settings)
            self._in_table = {page.position: page for page in read_pages(self._out)}
            self.pages |= self._in_table
        self._file.seek(0)
        header, *lines = self._file.readall().splitlines(keepends=True) or [b""]
        own_header = checked_line(json.dumps(self._settings).encode())
        if header != own_header and own_header.startswith(header):  # nothing, or torn
            self._file.truncate(0)
            self._file.write(own_header)
            return
        found = json.loads(header) if is_sound(header) else {}
        found.pop("crc32", None)
        require_same(self._path, found if "table" in found else None, self._settings)
        self.pages |= {page.position: page for page in map(_PAGE.validate_json, filter(is_sound, lines))}
        if lines and not lines[-1].endswith(b"\n"):
            self._file.write(b"\n")


def require_same(path: Path, found: Settings | None, settings: Settings) -> None:
    """Refuse to go on with what is at `path`. found: its settings; None if it is no audit. Raises OutputError, and
    OutputMismatchError, naming what differs, if it is another audit."""
    if found is None:
        raise OutputError(f"{path} is not of an audit, or is damaged: it is left as it is, choose another --out")
    different = [name for name in {**found, **settings} if found.get(name) != settings.get(name)]
    if different:
        raise OutputMismatchError(
            f"{path} belongs to an audit with another {', '.join(different)}: choose another --out, or remove it"
        )


def _write(path: Path, pages: Sequence[AuditedPage], settings: Settings) -> None:
    schema = AUDIT_SCHEMA.with_metadata({_KEY: json.dumps(dict(settings))})
    with atomic_file(path) as file, pq.ParquetWriter(file, schema, compression="zstd") as writer:
        writer.write_table(pa.Table.from_pylist(list(map(_PAGE.dump_python, pages)), schema=schema), _ROW_GROUP)


def read_settings(path: Path) -> Settings | None:
    """What the audit at `path` depends on; None if it is something else. Raises OutputError if it cannot be read."""
    with reading(path):
        try:
            metadata = pq.read_schema(path).metadata or {}
            found = json.loads(metadata[_KEY.encode()])
        except (pa.ArrowInvalid, KeyError, ValueError):
            return None
    return found if isinstance(found, dict) else None


def read_pages(path: Path) -> Iterator[AuditedPage]:
    """Yield the rows of an audit, one row group at a time in memory. Raises OutputError."""
    if read_settings(path) is None:
        raise OutputError(f"{path} is not the table of an audit: `batchocr audit --out` writes one")
    with reading(path), pq.ParquetFile(path) as file:
        for group in range(file.num_row_groups):
            try:
                yield from map(_PAGE.validate_python, file.read_row_group(group).to_pylist())
            except (ValidationError, pa.ArrowException) as error:
                raise OutputError(f"cannot read {path}: it is damaged; remove it, and audit again") from error
