"""Where the actors of a cluster put what they have read: items, tables of which nobody knows but the run that makes the
table, and the next one."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from batchocr.data import PageResult
from batchocr.errors import OutputError
from batchocr.storage.uris import is_uri
from batchocr.tables import parquet
from batchocr.tables.layout import Layout
from batchocr.tables.record import Part
from batchocr.tables.remote_output import place_at
from batchocr.tables.schema import RunMetadata

_PUT_AGAIN_S = (5.0, 60.0)
"""The seconds to wait before an item is put again: a store that is away for a minute should not end the run."""


_PROBE_BYTES = 1 << 16
"""How many bytes are written to find whether there is room: a full disk still takes an empty file."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where items are put."""

    out: str
    """The folder, or the prefix in a store, as all machines name it."""
    generation: int
    """The generation of the table that is made."""

    def require_seen(self) -> None:
        """Raise OutputError unless this machine sees what the driver has put there."""
        if place_at(self.out).get(Layout().writer) is None:
            raise OutputError(f"{Layout().writer} is not in {self.out}: all machines need to see the same folder")

    def require_writable(self) -> None:
        """Raise OutputError if nothing can be put there."""
        with tempfile.TemporaryDirectory(prefix="batchocr-") as folder:
            (probe := Path(folder, "probe")).write_bytes(bytes(_PROBE_BYTES))
            place_at(self.out).put(probe, name := f"{Layout().writer}.probe")
            place_at(self.out).remove(name)

    def put(self, local: Path) -> str:
        """Put a table as an item; returns its name there. Raises OutputError."""
        with local.open("rb") as file:
            digest = parquet.said_digest(file)
        part = Part(local.stat().st_size, digest, self.generation)
        name = Layout().staged(f"item-{time.time_ns():016x}", part)  # of a page, what was put last counts
        for wait_s in _PUT_AGAIN_S if is_uri(self.out) else ():
            with suppress(OutputError):
                place_at(self.out).put(local, name)
                return name
            time.sleep(wait_s)
        place_at(self.out).put(local, name)
        return name

    def put_rows(self, rows: Iterable[PageResult], metadata: RunMetadata) -> str:
        """Put these rows as an item; returns its name there. Raises OutputError."""
        with tempfile.TemporaryDirectory(prefix="batchocr-") as folder:
            parquet.write(local := Path(folder, "item.parquet"), rows, metadata)
            return self.put(local)
