"""Parquet tables with documents in a column: what their rows are called, and the bytes of one. Runs in a worker."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import islice
from typing import BinaryIO, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from batchocr.errors import DamagedError, UnsupportedError
from batchocr.pages.input.archives import Entry
from batchocr.storage.members import Member, MemberAddress

_NAMES_AT_ONCE: Final = 1000
_ROWS_AT_ONCE: Final = 8
_MAX_AHEAD: Final = 1000
_BUFFER_BYTES: Final = 1 << 20


def table_entries(
    file: BinaryIO, version: tuple[int, int], document_column: str | None, name_column: str | None
) -> Iterator[Entry]:
    """Yield the rows of a table: its size and time are theirs, as they have none of their own. A row without a name is
    called by its number. Raises DamagedError, UnsupportedError."""
    with _damages():
        num_bytes = file.seek(0, os.SEEK_END)
        table = _open(file)
        if (num_rows := table.metadata.num_rows) > num_bytes:
            raise DamagedError(f"the table says that it has {num_rows:,} rows, in {num_bytes:,} bytes")
        schema = table.schema_arrow
        if any(key.startswith(b"batchocr.") for key in schema.metadata or ()):
            raise UnsupportedError("it is a table that batchocr wrote: name the documents that it was read from")
        fitting = [field.name for field in schema if _holds_documents(field.type)]
        column = document_column or (fitting[0] if len(fitting) == 1 else "")
        if column not in fitting:
            which = f"one of {', '.join(fitting)}" if fitting else "none of this table does"
            raise UnsupportedError(f"--document-column has to name the column that holds documents: {which}")
        if name_column is not None and name_column not in schema.names:
            raise UnsupportedError(f"there is no --name-column {name_column}, but {', '.join(schema.names)}")
        if name_column is not None and _is_no_name(schema.field(name_column).type):
            raise UnsupportedError(f"--name-column {name_column} has neither text nor numbers")
        index, kind = schema.get_field_index(column), schema.field(column).type
        is_struct = pa.types.is_struct(kind) and kind.get_field_index("path") >= 0
        paths = [field.type for field in schema if field.name == "path"]
        beside = "path" if paths in ([pa.string()], [pa.large_string()]) else ""
        of_names = name_column or (f"{column}.path" if is_struct else beside)
        batches = table.iter_batches(_NAMES_AT_ONCE, columns=[of_names]) if of_names else iter(())
        # As bytes, as one that is no UTF-8 costs all otherwise.
        texts = (_leaf(batch.column(0), "path").cast(pa.string()).cast(pa.binary()) for batch in batches)
        names = (name for each in texts for name in each.to_pylist())
        for ordinal in range(num_rows):
            name = (next(names, None) or b"%d" % ordinal).decode(errors="surrogateescape")
            yield Entry(Member(ordinal, index, 0, *version, name), "row")


class TableRows:
    """Reads documents in rows of tables. Who asks for one row after the other has each decoded once."""

    def __init__(self, open_file: Callable[[str], AbstractContextManager[BinaryIO]]) -> None:
        self._open_file = open_file
        self._table: object = None
        """The container, its version and the column that `_values` are of."""
        self._next = 0
        """The row of which they have the value next."""
        self._values: Iterator[bytes | None] = iter(())

    def read(self, address: MemberAddress) -> bytes:
        """The bytes in a row. Raises DamagedError."""
        row, table = address.member.ordinal, (address.container, address.version, address.member.offset)
        is_next = table == self._table and self._next <= row < self._next + _MAX_AHEAD
        if not is_next:
            self._next, self._values = row, self._from(address)
        self._table = None  # after an error nothing comes of these values any more
        value = next(islice(self._values, row - self._next, None), None)
        self._table, self._next = table, row + 1
        if value is None:
            raise DamagedError("the table has nothing in this row")
        return value

    def _from(self, address: MemberAddress) -> Iterator[bytes | None]:
        """Yield the documents from this one on. Raises DamagedError."""
        left, group = address.member.ordinal, 0
        with self._open_file(address.container) as file, _damages():
            table = _open(file)
            while left >= (num_rows := table.metadata.row_group(group).num_rows):
                left, group = left - num_rows, group + 1
            columns, groups = [table.schema_arrow.names[address.member.offset]], range(group, table.num_row_groups)
            for batch in table.iter_batches(_ROWS_AT_ONCE, row_groups=groups, columns=columns):
                for value in _leaf(batch.column(0), "bytes")[left:]:
                    yield value.as_py()
                left = max(0, left - len(batch))


def _open(file: BinaryIO) -> pq.ParquetFile:
    """The table, of which no more is read at a time than a page."""
    return pq.ParquetFile(file, pre_buffer=False, buffer_size=_BUFFER_BYTES)


def _is_no_name(kind: pa.DataType) -> bool:
    return bool(pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _holds_documents(kind: pa.DataType) -> bool:
    kind = kind.field("bytes").type if pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0 else kind
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _leaf(values: pa.Array, name: str) -> pa.Array:
    """The values, or those of a field of them."""
    return pc.struct_field(values, name) if pa.types.is_struct(values.type) else values


@contextmanager
def _damages() -> Iterator[None]:
    """Turn what Arrow says of a table that is none into a DamagedError."""
    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError, LookupError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # Arrow's own has none
            raise
        raise DamagedError(f"the table is damaged: {str(error)[:300]}") from error
