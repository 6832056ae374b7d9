"""The table as JSON Lines: UTF-8, one row per line, and nothing else in the file.

A line of facts would give readers a row that is not a page, so the facts are in `<name>.meta.json` next to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from batchocr.data import PageResult
from batchocr.errors import OutputError
from batchocr.output.atomic import atomic_file, reading
from batchocr.output.files import facts_path
from batchocr.output.schema import RunFacts, facts_from_json, facts_to_json, from_json, to_json


def write(path: Path, rows: Iterable[PageResult], facts: RunFacts) -> None:
    """Write the rows, in order, atomically; only one row at a time is in memory. Raises OutputError."""
    with atomic_file(path) as file:
        file.writelines(to_json(result) + b"\n" for result in rows)
    with atomic_file(facts_path(path)) as file:
        file.write(facts_to_json(facts) + b"\n")


def read_facts(path: Path) -> RunFacts | None:
    """The facts of the run that wrote the file; None if it is not a table of ours. Raises OutputError."""
    facts = facts_path(path)
    with reading(facts):
        return facts_from_json(facts.read_bytes()) if facts.exists() else None


def read_rows(path: Path) -> Iterator[PageResult]:
    """Yield the rows of a table of ours, in order. Raises OutputError if it cannot be read or is damaged."""
    with reading(path), open(path, "rb") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                result = from_json(line)
            except ValueError as error:
                raise OutputError(f"{path}, line {number} is damaged; start over with --overwrite") from error
            yield result
