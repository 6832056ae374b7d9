"""Tables as a run or a merge leaves them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from batchocr.tables.files import OWN_FOLDER, is_folder
from batchocr.tables.output import Output
from batchocr.tables.schema import RunMetadata


def put_table(out: Path, rows: Iterable[Any], metadata: RunMetadata, *, rows_per_part: int = 1000, **more: Any) -> None:
    """Put a table of these rows at `out`, which is a folder if there is one, in place of what is there. more: as in
    `Output.commit`."""
    if is_folder(out):
        (out / OWN_FOLDER).mkdir(exist_ok=True)
    output = Output(out)
    output.begin()
    output.commit(rows, metadata, rows_per_part=rows_per_part, **more)
