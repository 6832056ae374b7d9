"""A SQLite file that others may have made: it runs no code, and each query ends."""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

QUERY_S: Final = 10.0
"""How long a query may work: ours take milliseconds, but one over a view may have no end."""


class SqliteFile(sqlite3.Connection):
    """A connection on which all ends: what is begun with `execute` ends at the next one, or after QUERY_S with an
    OperationalError, "interrupted"."""

    def __init__(self, path: Path, *, wait_s: float) -> None:
        """wait_s: how long to wait for another's lock. Threads may have the file in turn. Raises sqlite3.Error."""
        _require_ordinary(f"{os.path.realpath(path)}-journal")
        super().__init__(path, timeout=wait_s, isolation_level=None, check_same_thread=False)
        self.set_progress_handler(lambda: time.monotonic() > self._until_s, 1_000_000)  # steps, in some 30 ms
        self.execute("PRAGMA trusted_schema = OFF")

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        self._until_s = time.monotonic() + QUERY_S
        return super().execute(sql, parameters)

    def require_only(self, *tables: str) -> None:
        """Raise DatabaseError if the file holds anything that these statements do not make, such as a view or a
        trigger."""
        schema = "SELECT type, name, tbl_name, sql FROM sqlite_schema"
        with closing(sqlite3.connect(":memory:")) as ours:
            ours.executescript(";".join(tables))
            allowed = ours.execute(schema).fetchall()
        if not set(self.execute(schema)).issubset(allowed):
            raise sqlite3.DatabaseError("it holds other tables than batchocr makes: move it away")


def _require_ordinary(path: str) -> None:
    """Raise DatabaseError if SQLite would wait for what lies there."""
    with suppress(OSError):
        if not stat.S_ISREG(os.lstat(path).st_mode):
            raise sqlite3.DatabaseError(f"{path} is no journal of it: move both away")
