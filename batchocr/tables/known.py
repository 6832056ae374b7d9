"""What is known of rows without their text: of those of a table, as columns; and over these, of those that a journal
has in their place or besides.

A row of the table is known by its number there, a document by its number among those of the table.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import chain
from typing import Any, Final, NamedTuple, TypeAlias, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import TypeAdapter
from pydantic_core import from_json

from batchocr.data import MAX_PAGES, Document, ErrorKind, PageNumber, PageResult, Status, valid_text
from batchocr.option_values import PageSpec
from batchocr.storage.checksums import is_sound
from batchocr.tables.page_quality import DOUBTFUL, LOOKS_WRITTEN, TRAITS, TURNED, Trait

_OF_BLOCKS: Final[Mapping[str, pa.DataType]] = {
    "angle": pa.int64(),
    "confidence": pa.float64(),
    **dict.fromkeys(("finish_reason", "text_source"), pa.string()),
}
KNOWN_SCHEMA: Final = pa.schema(
    {
        **dict.fromkeys(("source", "status", "doc_id", "error_kind"), pa.string()),
        **dict.fromkeys(("page_index", "page_count", "attempts", "file_bytes", "file_mtime_ns"), pa.int64()),
        **dict.fromkeys(("orientation", "rescued_blocks"), pa.int64()),
        **dict.fromkeys(("ink_outside", "text_layer_agreement", "ink_in_figures", "writing_in_figures"), pa.float64()),
        "blocks": pa.list_(pa.struct(_OF_BLOCKS)),
    }
)
"""The columns that are looked at."""
LEAVES: Final = [
    *(name for name in KNOWN_SCHEMA.names if name != "blocks"),
    *(f"blocks.list.element.{name}" for name in _OF_BLOCKS),
]
"""The columns that are read, as Parquet calls them."""

STATUSES: Final[Sequence[Status]] = get_args(Status)
ERROR_KINDS: Final[Sequence[ErrorKind]] = get_args(ErrorKind)
_LASTING: Final[frozenset[ErrorKind | None]] = frozenset({"damaged", "unsupported"})
"""The errors that a file has as long as it is the same."""
_QUALITY: Final[Mapping[Status, int]] = {"ok": 2, "degraded": 1, "failed": 0, "skipped": 0}
_LOOKED_UP_AT_ONCE: Final = 1 << 19
"""The number of names among which others are looked up at a time: to do so takes 200 bytes for each."""
_NULL: Final = -(1 << 63)
_OF_FILE: Final = "page_count", "file_bytes", "file_mtime_ns"
_FILE: Final = np.dtype([("num_rows", "i8"), ("begins_document", "?"), *((name, "i8") for name in _OF_FILE)])
"""The record of a version of a file: of rows of a document that follow each other and say the same of it."""
_PAGE: Final = np.dtype(
    [
        *dict.fromkeys(("page_index", "attempts"), "i4").items(),
        *dict.fromkeys(("ink_outside", "text_layer_agreement"), "i2").items(),  # in thousandths
        *dict.fromkeys(("status", "error_kind"), "i1").items(),  # the places in STATUSES and ERROR_KINDS
        ("traits", "u1"),  # a bit for each of page_quality.TRAITS
    ],
    align=True,
)
"""The record of a row: what is kept of it."""

Version = tuple[int | None, int | None]
"""Size and time of a file."""
Flags = NDArray[np.bool_]
Numbers = NDArray[np.signedinteger[Any]]


class Kept(NamedTuple):
    """Rows of a table that stay as they are in the one that takes its place."""

    start: int
    stop: int


class Unread(NamedTuple):
    """A row that is read when it is written."""

    source: str
    page_index: int | None
    is_asked: bool
    """Whether the run was to read the row."""
    version: Version | None
    """The version of the row's file, if the file was touched but has the same content; else None."""
    place: int
    """The row's number in the table, or its place in the journal, as in a KnownRow."""
    load: Callable[[Unread], PageResult]


Row: TypeAlias = PageResult | Unread | Kept


@dataclass(frozen=True, slots=True)
class KnownRow:
    """A row without its text."""

    page_index: PageNumber | None
    status: Status
    doc_id: str | None
    page_count: PageNumber | None
    attempts: int
    place: int
    """The row's number in the table; if negative, -1 less the byte of the journal at which its line begins."""
    file_bytes: int | None = None
    file_mtime_ns: int | None = None
    error_kind: ErrorKind | None = None

    @property
    def version(self) -> Version:
        """Size and time of the file when it was read."""
        return self.file_bytes, self.file_mtime_ns

    def is_of(self, version: Version) -> bool:
        """Whether the row was read from the file that has this size and time."""
        return self.file_bytes is not None and self.version == version


_ROW: Final = TypeAdapter(KnownRow)


def needs_no_attempt(status: Status, error_kind: ErrorKind | None, retry_failed: bool | None) -> bool:
    """Whether a row stays as it is, if its file has not changed. retry_failed: as the option."""
    if status != "failed":
        return True
    return error_kind in _LASTING if retry_failed is None else not retry_failed


def settled(rows: Iterable[KnownRow], retry_failed: bool | None) -> list[KnownRow]:
    """The rows that need no further attempt, if their files have not changed."""
    return [row for row in rows if needs_no_attempt(row.status, row.error_kind, retry_failed)]


def is_failed_again(later: KnownRow | PageResult, earlier: KnownRow) -> bool:
    """Whether the later row is a failure of a page that was read before, in the same version of its file."""
    was_read = earlier.status in ("ok", "degraded")
    return later.status == "failed" and was_read and later.doc_id == earlier.doc_id


def page_rank(page_index: int | None) -> int:
    """Where a row stands among those of its document; the document as a whole comes first."""
    return -1 if page_index is None else page_index


def version_of(document: Document) -> Version:
    """Size and time of a document's file as it is now; of one that cannot be looked at, None."""
    if document.size is None:
        with suppress(OSError):
            file = os.stat(document.path)
            return file.st_size, file.st_mtime_ns
    return document.size, document.mtime_ns


def possible(table: pa.Table) -> pa.Table:
    """The table. Raises ValueError, which names the column, if a row is of a page that no document can have, or has a
    status that is none."""
    for name in ("page_index", "page_count"):
        for value in pc.min_max(table[name]).as_py().values() if name in table.column_names else ():
            if not 0 <= (value or 0) <= MAX_PAGES:
                raise ValueError(f"{name}: no document has {value}")
    if "status" in table.column_names and not {*pc.unique(table["status"]).to_pylist()} <= {*STATUSES}:
        raise ValueError("status: a row has one that is none")
    return table


def read(row: PageResult | Unread) -> PageResult:
    """The row itself."""
    return row.load(row) if isinstance(row, Unread) else row


class KnownRows:
    """The rows of tables without their text, as columns. What is null is negative.

    several: the tables, each as all of its rows, in order, with the columns of KNOWN_SCHEMA. If a document is in
    several of them, it is known by its place in the first, and the others are `again`.
    """

    def __init__(self, *several: Iterable[pa.Table]) -> None:
        pages, files = bytearray(), bytearray()  # arrays of each table, joined in the end, took twice the memory
        sources, doc_ids = list[pa.Array](), list[pa.Array]()
        for table in chain.from_iterable(map(_undivided, several)):
            column = {name: table[name].combine_chunks() for name in KNOWN_SCHEMA.names}
            begins, of_files = _files_in(column)
            pages += _pages_in(column).tobytes()
            files += of_files.tobytes()
            sources.append(column["source"].take(begins[of_files["begins_document"]]))
            doc_ids.append(column["doc_id"].take(begins))
        self.pages = np.frombuffer(pages, _PAGE)
        """A record of each row."""
        self._files, self._doc_ids = np.frombuffer(files, _FILE), pa.chunked_array(doc_ids, pa.string())
        self._begins: Numbers = np.append(0, np.cumsum(self._files["num_rows"]))
        """The first row of each version of a file, and at the end the number of rows."""
        self._first_file: Numbers = np.append(np.flatnonzero(self._files["begins_document"]), len(self._files))
        """The first version of each document's file, and at the end how many there are."""
        has_one_version = len(self._first_file) == len(self._begins)
        self.first: Numbers = self._begins if has_one_version else self._begins[self._first_file]
        """The first row of each document, and at the end the number of rows."""
        self.sources = pa.chunked_array(sources, pa.string())
        self._is_one = len(several) < 2

    @property
    def num_rows(self) -> int:
        """How many rows the table has."""
        return len(self.pages)

    def asked(self, spec: PageSpec, retry_failed: bool | None) -> tuple[Flags, Numbers]:
        """Which rows are of pages that a run asks for; and for each document how many rows it has of them, if it has
        all of them, and they need no further attempt unless the file has changed; else 0."""
        page_counts = np.repeat(np.maximum(self._files["page_count"], 0).astype(np.int32), self._files["num_rows"])
        page_index, first = self.pages["page_index"], self.first[:-1]
        asked = np.where(page_counts > 0, _in_spec(spec, page_index, page_counts), page_index < 0)
        is_settled = self.pages["status"] != STATUSES.index("failed")
        lasts = np.array([needs_no_attempt("failed", kind, retry_failed) for kind in (*ERROR_KINDS, None)])
        is_settled[~is_settled] = lasts[self.pages["error_kind"][~is_settled]]
        counts, places = np.unique(page_counts[first], return_inverse=True)
        wanted = np.array([len(spec.pages(count)) if count else 1 for count in counts.tolist()], np.int64)[places]
        has_all = (np.diff(self._first_file) == 1) & (np.add.reduceat(asked, first) == wanted)
        return asked, np.where(has_all & np.logical_and.reduceat(is_settled, first), wanted, 0)

    def counts(self, which: Flags) -> tuple[Counter[Status], Counter[ErrorKind]]:
        """How many of these rows have each status, and each error."""
        statuses = np.bincount(self.pages["status"][which], minlength=len(STATUSES)).tolist()
        kinds = np.bincount(self.pages["error_kind"][which] + 1, minlength=len(ERROR_KINDS) + 1).tolist()[1:]
        return Counter(dict(zip(STATUSES, statuses, strict=True))), +Counter(dict(zip(ERROR_KINDS, kinds, strict=True)))

    def sources_of(self, which: Flags) -> list[str]:
        """The documents that have one of these rows."""
        numbers = np.unique(np.searchsorted(self.first, np.flatnonzero(which), "right")) - 1
        found: list[str] = self.sources.take(pa.array(numbers)).to_pylist()
        return found

    def rows(self, source: str) -> list[KnownRow]:
        """What is known of a document's rows; nothing if it has none."""
        if (document := self.document_of(source)) is None:
            return []
        return self.rows_of(document)

    def rows_of(self, document: int) -> list[KnownRow]:
        """What is known of the rows of a document, in one table."""
        first, end = self._first_file[document : document + 2].tolist()
        return [row for file in range(first, end) for row in self._rows_of_file(file)]

    def version(self, document: int) -> tuple[int, int]:
        """Size and time of the file of a document, as its first row says."""
        file = self._files[self._first_file[document]]
        return int(file["file_bytes"]), int(file["file_mtime_ns"])

    def versions(self) -> tuple[Numbers, Numbers]:
        """`version` of all documents."""
        firsts = self._first_file[:-1]
        return self._files["file_bytes"][firsts], self._files["file_mtime_ns"][firsts]

    def source_of(self, doc_id: str) -> str | None:
        """The first document with this content of which there are pages."""
        if (file := _first_of(doc_id, *self._ids_of_pages)) is None:
            return None
        source: str = self.sources[int(np.searchsorted(self._first_file, file, "right")) - 1].as_py()
        return source

    def numbers_of(self, sources: pa.ChunkedArray) -> Numbers:
        """The number of each document, where it stands first; -1 of one that has no rows."""
        numbers: Numbers = np.full(len(sources), -1, np.int32)
        for start in reversed(range(0, len(self.sources), _LOOKED_UP_AT_ONCE)):
            found = pc.index_in(sources, self.sources.slice(start, _LOOKED_UP_AT_ONCE)).fill_null(-1).to_numpy()
            numbers[found >= 0] = found[found >= 0] + start
        return numbers

    def document_of(self, source: str) -> int | None:
        """The number of a document; None if it has no rows."""
        return _first_of(source, self.sources, self._by_source)

    def documents_in(self, rows: Kept) -> Iterator[tuple[int, Kept]]:
        """The documents of these rows, each by its number where it stands first, with its rows that are among them."""
        begin, pieces = divided(rows, self.first)
        return zip(self.first_place[begin : begin + len(pieces)].tolist(), pieces, strict=True)

    def begin_of_document(self, row: int) -> int:
        """The first row from this one on with which a document begins, or the number of rows."""
        return int(self.first[np.searchsorted(self.first, min(row, self.num_rows))])

    def _rows_of_file(self, file: int) -> Iterator[KnownRow]:
        """The rows that say the same of a file."""
        begin, end = self._begins[file : file + 2].tolist()
        doc_id, of_file = self._doc_ids[file].as_py(), self._files[[*_OF_FILE]][file].tolist()
        page_count, size, mtime_ns = (None if number == _NULL else number for number in of_file)
        rows = self.pages[["page_index", "status", "attempts", "error_kind"]][begin:end].tolist()
        for place, (page, status, attempts, kind) in enumerate(rows, start=begin):
            page_index, error_kind = page if page >= 0 else None, ERROR_KINDS[kind] if kind >= 0 else None
            of_row = STATUSES[status], doc_id, page_count, attempts, place, size, mtime_ns, error_kind
            yield KnownRow(page_index, *of_row)

    @cached_property
    def first_place(self) -> Numbers:
        """For each document, its number where it stands first."""
        numbers: Numbers = np.arange(len(self.sources))
        return numbers if self._is_one else self.numbers_of(self.sources)

    @cached_property
    def again(self) -> Numbers:
        """The documents that stand before, in another table."""
        return np.flatnonzero([] if self._is_one else self.first_place != np.arange(len(self.sources)))

    @cached_property
    def _by_source(self) -> Numbers:
        """The numbers of the documents, by their names. This takes 8 bytes for each, a dictionary some 200."""
        numbers: Numbers = pc.sort_indices(self.sources).to_numpy()
        return numbers

    @cached_property
    def _ids_of_pages(self) -> tuple[pa.ChunkedArray, Numbers]:
        """The `doc_id` of each version of a file of which there are pages, and the numbers of these versions by it."""
        has_pages = pa.array(self.pages["page_index"][self._begins[:-1]] >= 0)
        ids = pc.if_else(has_pages, self._doc_ids.fill_null(""), "")
        return ids, pc.sort_indices(ids).to_numpy()


class Overlay:
    """The rows that count, by document: those of a table, over them those of the tables behind it, and those of a
    journal. Of a page the last row counts, but no failure after a success of the same file."""

    def __init__(self, table: KnownRows, end: int = 0) -> None:
        self.table = table
        self.end = end
        """The end of the journal's lines that were taken, in bytes: where the next one begins."""
        self._of_table = lru_cache(1)(table.rows)
        self._rows: dict[str, list[KnownRow]] = {}
        """The rows by page of each document of which the journal or another table has a row, also those of the first
        table."""
        self._best: defaultdict[str, dict[int | None, Status]] = defaultdict(dict)
        self.forget()

    @property
    def has_rows(self) -> bool:
        """Whether there are any rows, in the journal or in the table."""
        return bool(self._rows or self.table.num_rows)

    def sources(self) -> Collection[str]:
        """Every document of which the journal has a row, or several tables."""
        return self._rows.keys()

    def rows(self, source: str) -> Sequence[KnownRow]:
        """All rows of a document by page; the row of the document as a whole (page_index None) comes first."""
        return tuple(self._rows_of(source))

    def find(self, source: str, page_index: int | None) -> KnownRow | None:
        """The row of a page, or of the document as a whole; None if there is none yet."""
        rows = self._rows_of(source)
        at = _index_of(page_index, rows)
        return rows[at] if at < len(rows) and rows[at].page_index == page_index else None

    def worse_pages(self, source: str) -> Collection[int | None]:
        """The pages of a document that had a better row before, of an earlier version of the file."""
        return self._best.get(valid_text(source), {}).keys()

    def take(self, line: bytes) -> bool:
        """Add the next line of the journal. Returns whether a sound row is in it."""
        begin, self.end = self.end, self.end + len(line)
        try:
            row: dict[str, Any] = from_json(line) if is_sound(line) else {}
            source, known = row["source"], _ROW.validate_python(row | {"place": -1 - begin})
        except (ValueError, KeyError, TypeError):  # ValidationError; the first line has other keys
            return False
        self.put(source, known)
        return True

    def put(self, source: str, row: KnownRow) -> None:
        """Add a later row."""
        if source not in self._rows:
            self._rows[source] = [*self._of_table(source)]
        rows = self._rows[source]
        row = _sharing(row, rows[-1]) if rows else row
        at = _index_of(row.page_index, rows)
        if at == len(rows) or rows[at].page_index != row.page_index:
            rows.insert(at, row)
        elif not is_failed_again(row, rows[at]):
            best = self._best[source].pop(row.page_index, rows[at].status)
            if _QUALITY[row.status] < _QUALITY[best]:
                self._best[source][row.page_index] = best
            rows[at] = row

    def forget(self) -> None:
        """Drop the rows of the journal: they are in the table."""
        self._rows.clear()
        self._best.clear()
        for document in self.table.again.tolist():
            source = self.table.sources[document].as_py()
            for row in self.table.rows_of(document):
                self.put(source, row)

    def put_again(self, begin: int) -> None:
        """Have the rows of the table from this one on count as the last ones: they are newer than the journal's."""
        for document in range(int(np.searchsorted(self.table.first, begin)), len(self.table.sources)):
            source = self.table.sources[document].as_py()
            for row in self.table.rows_of(document) if source in self._rows else ():
                self.put(source, row)

    def drop_outdated(self, version_now: Callable[[str], Version]) -> None:
        """Drop the journal's rows of pages that the table has from another version of the file, unless they are of the
        file as it is now: somebody may have replaced the table since. version_now: of a document's file."""
        for source, rows in [*self._rows.items()]:
            before, now = self._of_table(source), version_now(source)
            of_table = {row.page_index: row for row in before}
            for at, row in enumerate(rows):
                earlier = of_table.get(row.page_index, row)
                if row.doc_id != earlier.doc_id and not row.is_of(now):
                    rows[at] = earlier
                    self._best[source].pop(row.page_index, None)
            if rows == before:
                del self._rows[source]

    def _rows_of(self, source: str) -> Sequence[KnownRow]:
        source = valid_text(source)
        return self._rows[source] if source in self._rows else self._of_table(source)


def divided(rows: Kept, first: NDArray[Any]) -> tuple[int, list[Kept]]:
    """The rows by documents, and the number of the first of these. first: the first row of each document, and at the
    end the number of rows."""
    begin, end = (first.searchsorted(np.array(rows, first.dtype) - [0, 1], "right") - 1).tolist()
    starts = [rows.start, *first[begin + 1 : end + 1].tolist()]
    return begin, [*map(Kept, starts, [*starts[1:], rows.stop])]


def _index_of(page_index: int | None, rows: Sequence[KnownRow]) -> int:
    """Where the row of a page is among these rows, which are by page; or where it would be."""
    return bisect_left(rows, page_rank(page_index), key=lambda row: page_rank(row.page_index))


def _sharing(row: KnownRow, neighbour: KnownRow) -> KnownRow:
    """The row with its neighbour's objects if both describe one file: this halves what a row takes."""
    if (row.doc_id, row.version) != (neighbour.doc_id, neighbour.version):
        return row
    return replace(row, **{name: getattr(neighbour, name) for name in ("doc_id", "file_bytes", "file_mtime_ns")})


def _first_of(string: str, strings: pa.ChunkedArray, order: Numbers) -> int | None:
    """The first place of a string; None if it is nowhere. order: the places in the order of the strings."""
    at = bisect_left(order, string, key=lambda place: strings[int(place)].as_py())
    return int(order[at]) if at < len(order) and strings[int(order[at])].as_py() == string else None


def _files_in(column: Mapping[str, pa.Array]) -> tuple[Numbers, NDArray[np.void]]:
    """The first row of each version of a file, and the versions. column: of whole documents, by the name."""
    runs = [pc.run_end_encode(column[name]).run_ends for name in ("source", "doc_id", *_OF_FILE)]
    ends = np.unique(np.concatenate(runs))
    files = np.empty(len(ends), _FILE)
    files["num_rows"] = np.diff(ends, prepend=0)
    begins: Numbers = ends - files["num_rows"]
    files["begins_document"] = np.isin(begins, np.append(0, runs[0]))
    for name in _OF_FILE:
        files[name] = column[name].take(begins).fill_null(_NULL)
    return begins, files


def _pages_in(column: Mapping[str, pa.Array]) -> NDArray[np.void]:
    """The records of rows. column: a column by its name."""
    pages = np.zeros(len(column["status"]), _PAGE)
    pages["page_index"] = column["page_index"].fill_null(-1)
    pages["attempts"] = np.minimum(column["attempts"].fill_null(0), np.iinfo(np.int32).max)
    for name, values in ("status", STATUSES), ("error_kind", ERROR_KINDS):
        pages[name] = pc.index_in(column[name], pa.array(values)).fill_null(-1)
    for name in "ink_outside", "text_layer_agreement":
        pages[name] = np.nan_to_num(np.rint(column[name].to_numpy(zero_copy_only=False) * 1000), nan=-1)
    for trait, flags in _with_traits(column).items():
        pages["traits"] |= flags.astype(np.uint8) << TRAITS.index(trait)
    return pages


def _with_traits(column: Mapping[str, pa.Array]) -> Mapping[Trait, Flags]:
    """Which of many rows have each trait, as `traits_of` says of one row. column: of these rows, by the name."""
    blocks = column["blocks"]
    lengths = blocks.value_lengths().fill_null(0).to_numpy()
    rows, of_rows = np.repeat(np.arange(len(blocks)), lengths), blocks.flatten()
    certain = np.ones(len(blocks))
    by_model = ~_flags(pc.equal(of_rows.field("text_source"), "page"))
    np.minimum.at(certain, rows, np.where(by_model, _shares(of_rows.field("confidence"), 1.0), 1.0))

    def num_blocks(flags: Flags) -> NDArray[Any]:
        return np.bincount(rows, weights=flags, minlength=len(blocks))

    loops = num_blocks(by_model & _flags(pc.equal(of_rows.field("finish_reason"), "repetition")))
    orientation = column["orientation"].fill_null(0)
    turned = _flags(pc.not_equal(orientation, 0))
    if turned.any():
        stand = pc.equal(of_rows.field("angle"), pc.subtract(360, orientation).take(pa.array(rows)))
        turned &= 2 * num_blocks(_flags(stand)) < np.maximum(1, lengths)
    written = _shares(column["writing_in_figures"], 0.0)
    seen = (1.0 - _shares(column["ink_outside"], 0.0)) * (1.0 - written)
    seen *= _shares(column["text_layer_agreement"], 1.0) * certain * 0.5**loops * np.where(turned, TURNED, 1.0)
    only_figures, rescued = pc.equal(column["ink_in_figures"], 1.0), pc.greater(column["rescued_blocks"], 0)
    is_read = _flags(pc.is_in(column["status"], pa.array(["ok", "degraded"])))
    found: dict[Trait, Flags] = {
        "doubtful": seen < DOUBTFUL,
        "turned": turned,
        "only_figures": _flags(only_figures),
        "writing_in_figures": written > LOOKS_WRITTEN,
        "rescued": _flags(rescued),
    }
    return {trait: flags & is_read for trait, flags in found.items()}


def _flags(are: pa.Array) -> Flags:
    """The booleans of Arrow as flags; what is not known is false."""
    flags: Flags = are.fill_null(False).to_numpy(zero_copy_only=False)
    return flags


def _shares(values: Any, unknown: float) -> NDArray[np.float64]:
    """The values of an Arrow array as shares from 0 to 1."""
    numbers = values.to_numpy(zero_copy_only=False).astype(np.float64)
    shares: NDArray[np.float64] = np.clip(np.nan_to_num(numbers, nan=unknown), 0.0, 1.0)
    return shares


def _undivided(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield the rows divided otherwise, so that all of a document are together."""
    rest = KNOWN_SCHEMA.empty_table()
    for given in tables:
        table = pa.concat_tables([rest, given], promote_options="default")  # the order of columns differs
        ends = pc.run_end_encode(table["source"].combine_chunks()).run_ends.to_pylist()
        last = ends[-2] if len(ends) > 1 else 0
        yield table.slice(0, last)
        rest = table.slice(last)
    yield rest


def _in_spec(spec: PageSpec, pages: NDArray[np.int32], page_counts: NDArray[np.int32]) -> Flags:
    """Which pages are asked for, each of a document with so many pages."""
    inside: Flags = pages >= page_counts
    for ends in spec.ranges:
        first, last = (page_counts + end if end < 0 else end - 1 for end in ends)
        inside |= (pages >= first) & (pages <= last)
    return inside & (pages >= 0)
