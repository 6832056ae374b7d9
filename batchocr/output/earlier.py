"""What an earlier run left at an output's place, looked at before the output is opened."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from batchocr.config import DType
from batchocr.errors import OutputError
from batchocr.output.files import journal_path
from batchocr.output.schema import MAX_FACTS_BYTES, RunFacts, facts_from_json
from batchocr.output.table import table_for


def dtype_of_rows(out: Path) -> DType | None:
    """The data type in which the rows at `out` were read. None if there are none, or none that can be read: opening the
    output says why."""
    facts = _facts_of_journal(journal_path(out)) or _facts_of_table(out)
    match facts.settings.get("dtype") if facts else None:
        case "float32":
            return "float32"
        case "bfloat16":
            return "bfloat16"
        case _:
            return None


def _facts_of_journal(path: Path) -> RunFacts | None:
    with suppress(OSError):
        if path.is_file():
            with path.open("rb") as journal:
                return facts_from_json(journal.readline(MAX_FACTS_BYTES))
    return None


def _facts_of_table(out: Path) -> RunFacts | None:
    with suppress(OutputError, OSError):
        if out.is_file():
            return table_for(out).read_facts(out)
    return None
