"""Parquet tables with documents in a column: what their rows are called, and the bytes of one. Runs in a worker."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import islice, repeat
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from batchocr.errors import AbsentError, DamagedError, UnsupportedError
from batchocr.pages.input.archives import Entry
from batchocr.storage.members import Member, MemberAddress

_NAMES_AT_ONCE: Final = 1000
_ROWS_AT_ONCE: Final = 8
_MAX_AHEAD: Final = 1000
_BUFFER_BYTES: Final = 1 << 20
_BYTES: Final = {pa.binary(), pa.large_binary(), pa.binary_view()}


def table_entries(
    file: BinaryIO, version: tuple[int, int], document_column: str | None, name_column: str | None
) -> Iterator[Entry]:
    """Yield the rows of a table as members, of a list each place in it. The size and time are those of the table, as
    rows have none of their own. A row without a name is called by its number. Raises DamagedError, UnsupportedError."""
    with _damages():
        num_bytes = file.seek(0, os.SEEK_END)
        table = _open(file)
        if (num_rows := table.metadata.num_rows) > num_bytes:
            raise DamagedError(f"the table says that it has {num_rows:,} rows, in {num_bytes:,} bytes")
        schema = table.schema_arrow
        if any(key.startswith(b"batchocr.") for key in schema.metadata or ()):
            raise UnsupportedError("it is a table that batchocr wrote: name the documents that it was read from")
        fitting = [field.name for field in schema if _holds_documents(_of_list(field.type) or field.type)]
        single = [name for name in fitting if _of_list(schema.field(name).type) is None] or fitting
        column = document_column or (single[0] if len(single) == 1 else "")
        if column not in fitting:
            which = f"one of {', '.join(fitting)}" if fitting else "none of this table does"
            raise UnsupportedError(f"--document-column has to name the column that holds documents: {which}")
        if name_column is not None and name_column not in schema.names:
            raise UnsupportedError(f"there is no --name-column {name_column}, but {', '.join(schema.names)}")
        if name_column and (pa.types.is_nested(naming := schema.field(name_column).type) or naming in _BYTES):
            raise UnsupportedError(f"--name-column {name_column} has neither text nor numbers")
        index, kind = schema.get_field_index(column), schema.field(column).type
        is_struct = pa.types.is_struct(kind) and kind.get_field_index("path") >= 0
        paths = [field.type for field in schema if field.name == "path"]
        beside = "path" if paths in ([pa.string()], [pa.large_string()]) else ""
        of_names = name_column or (f"{column}.path" if is_struct else beside)
        batches = table.iter_batches(_NAMES_AT_ONCE, columns=[of_names]) if of_names else iter(())
        # As bytes, as one that is no UTF-8 costs all otherwise.
        texts = (_paths(batch.column(0)).cast(pa.string()).cast(pa.binary()) for batch in batches)
        names = (name for each in texts for name in each.to_pylist())
        endings = repeat([""], num_rows) if _of_list(kind) is None else _in_lists(table, column, num_bytes)
        for ordinal, in_row in enumerate(endings):
            name = (next(names, None) or b"%d" % ordinal).decode(errors="surrogateescape")
            for number, ending in enumerate(in_row):
                yield Entry(Member(ordinal, index, number, *version, name + ending), "row")


class TableRows:
    """Reads documents in rows of tables. If the rows are asked for one after the other, each is decoded once."""

    def __init__(self, open_file: Callable[[str], AbstractContextManager[BinaryIO]]) -> None:
        self._open_file = open_file
        self._table: object = None
        """The container, its version and the column that `_values` are of."""
        self._row = 0
        """The row that was read last."""
        self._value: pa.Scalar[Any] | None = None
        """The value in the row that was read last, which may be a list."""
        self._values: Iterator[pa.Scalar[Any]] = iter(())
        """The values of the rows after that of `_value`."""

    def read(self, address: MemberAddress) -> bytes:
        """The bytes in a row, or in one place of its list. Raises AbsentError, DamagedError."""
        row, table = address.member.ordinal, (address.container, address.version, address.member.offset)
        if table != self._table or not self._row <= row <= self._row + _MAX_AHEAD:
            self._row, self._values = row - 1, self._from(address)
        self._table = None  # after an error nothing comes of these values any more
        if row > self._row:
            self._value = next(islice(self._values, row - self._row - 1, None), None)
        self._table, self._row = table, row
        value = self._value
        if isinstance(value, pa.ListScalar):
            value = value[address.member.length]
        document = value["bytes"] if isinstance(value, pa.StructScalar) else value
        if document is None or (data := document.as_py()) is None:
            raise AbsentError("the table has nothing there")
        return bytes(data)

    def _from(self, address: MemberAddress) -> Iterator[pa.Scalar[Any]]:
        """Yield the values of the rows from this one on. Raises DamagedError."""
        left, group = address.member.ordinal, 0
        with self._open_file(address.container) as file, _damages():
            table = _open(file)
            while left >= (num_rows := table.metadata.row_group(group).num_rows):
                left, group = left - num_rows, group + 1
            columns, groups = [table.schema_arrow.names[address.member.offset]], range(group, table.num_row_groups)
            for batch in table.iter_batches(_ROWS_AT_ONCE, row_groups=groups, columns=columns):
                yield from batch.column(0)[left:]
                left = max(0, left - len(batch))


def _open(file: BinaryIO) -> pq.ParquetFile:
    """The table, of which no more is read at a time than a page."""
    return pq.ParquetFile(file, pre_buffer=False, buffer_size=_BUFFER_BYTES)


def _of_list(kind: pa.DataType) -> pa.DataType | None:
    """The type of a list column's values; None if the column has no lists."""
    return kind.value_type if isinstance(kind, pa.ListType | pa.LargeListType | pa.FixedSizeListType) else None


def _holds_documents(kind: pa.DataType) -> bool:
    kind = kind.field("bytes").type if pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0 else kind
    return (kind.value_type if pa.types.is_dictionary(kind) else kind) in _BYTES


def _in_lists(table: pq.ParquetFile, column: str, num_bytes: int) -> Iterator[Iterator[str]]:
    """Yield the ends of the names of the documents in each row's list. Raises DamagedError."""
    leaves = (table.schema.column(number).path for number in range(len(table.schema)))
    path = next((leaf for leaf in leaves if leaf.startswith(f"{column}.") and leaf.endswith(".path")), column)
    for batch in table.iter_batches(_ROWS_AT_ONCE, columns=[path]):
        for length in pc.fill_null(pc.list_value_length(batch.column(0)), 0).to_pylist():
            if (num_bytes := num_bytes - length) < 0:
                raise DamagedError("the table says that it has more documents than bytes")
            yield (f"/{number}" for number in range(length))


def _paths(values: pa.Array) -> pa.Array:
    """The values, or the `path` of each."""
    return pc.struct_field(values, "path") if pa.types.is_struct(values.type) else values


@contextmanager
def _damages() -> Iterator[None]:
    """Turn what Arrow says of a table that is none into a DamagedError."""
    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError, LookupError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # Arrow's own has none
            raise
        raise DamagedError(f"the table is damaged: {str(error)[:300]}") from error
