"""How the files of a table are called, below the folder, or the prefix in a store, that they are in."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from batchocr.errors import OutputError
from batchocr.tables.atomic import reading
from batchocr.tables.files import OWN_FOLDER, is_folder
from batchocr.tables.parquet import said_digest
from batchocr.tables.place import DiskPlace
from batchocr.tables.record import Commit, Part, Record, parse_record

Table = TypeVar("Table")

_ITEM = re.compile(rf"{re.escape(OWN_FOLDER)}/new/[0-9]{{8}}-item-[0-9a-f]{{16}}\.[0-9a-f]{{16}}\.new")


@dataclass(frozen=True, slots=True)
class Layout:
    """The names of the files of a table."""

    table: str = ""
    """The file that is the table; empty for a folder of parts."""

    @property
    def record(self) -> str:
        return self._named("table.json", ".meta.json")

    @property
    def report(self) -> str:
        return self._named("report.json", ".report.json")

    @property
    def writer(self) -> str:
        """The name of the file that says who writes, in a store."""
        return self._named("run.json", ".run.json")

    @property
    def staging(self) -> str:
        """The folder of the staged parts."""
        return "" if self.table else f"{OWN_FOLDER}/new"

    def staged(self, name: str, part: Part) -> str:
        """The name that a part has until it takes its own; no part with another content has it."""
        return f"{self._staged}{part.made:08}{'' if self.table else '-' + name}.{part.sha256[:16]}.new"

    def items(self, names: Iterable[str]) -> list[str]:
        """The names, among these, of items: of what actors have read, in order."""
        return sorted(name for name in names if _ITEM.fullmatch(name))

    def of_generation(self, staged: str, generation: int) -> str:
        """The staged name with another generation."""
        return f"{self._staged}{generation:08}{staged[len(self._staged) + 8 :]}"

    def generation_of(self, staged: str) -> int:
        """The generation for which a part was staged, or was to get its own name; 0 of what is no name of one."""
        number = staged.removeprefix(self._staged)[:8]
        is_one = staged.startswith(self._staged) and ".new" in staged and number.isdigit()
        return int(number) if is_one else 0

    def places(self, name: str, commit: Commit) -> Sequence[str]:
        """Where a part of the table that a commit brought may be, to be looked at in turn: what was committed last may
        not have its own name yet, or get it meanwhile."""
        part = commit.parts[name]
        is_moving = part.made == commit.generation and not commit.ended
        return (name, self.staged(name, part), name) if is_moving else (name,)

    @property
    def _staged(self) -> str:
        """What the names of staged parts begin with."""
        return f"{self.table}." if self.table else f"{OWN_FOLDER}/new/"

    def _named(self, in_folder: str, beside: str) -> str:
        return f"{self.table}{beside}" if self.table else f"{OWN_FOLDER}/{in_folder}"


def layout_of(out: Path) -> tuple[Path, Layout]:
    """The folder that the files of the table at `out` are in, and their names below it."""
    return (out, Layout()) if is_folder(out) else (out.parent, Layout(out.name))


def items_at(out: Path) -> list[str]:
    """The items at `out` that no commit has taken in, by their names there. Raises OutputError."""
    folder, layout = layout_of(out)
    names = layout.items(DiskPlace(folder).names(layout.staging)) if not layout.table else []
    record = read_record(out) if names else None
    return [name for name in names if layout.generation_of(name) > (record.commit.generation if record else 0)]


def tag_of(out: Path) -> str:
    """The tag by which what is at `out` is known, as long as it is the same, also as a copy; empty if nothing is there.
    Raises OutputError."""
    folder, layout = layout_of(out)
    if out.suffix.lower() != ".parquet":
        return (DiskPlace(folder).get(layout.record) or (b"", ""))[1]
    if not out.is_file():
        return ""
    with reading(out), out.open("rb") as file:
        at = os.fstat(file.fileno())
        return said_digest(file) or f"{at.st_size}:{at.st_mtime_ns}"


def read_record(out: Path) -> Record | None:
    """Read the record of a folder or a `.jsonl` file at `out`: the run's metadata, and the parts that the table has.
    None if there is none, or it is not ours; a Parquet file has none. Raises OutputError if it is damaged,
    OutputMismatchError if a later version wrote it."""
    folder, layout = layout_of(out)
    found = DiskPlace(folder).get(layout.record)
    return None if found is None else parse_record(found[0], folder / layout.record, layout.table)


def open_recorded(out: Path, opened: Callable[[Record], Table]) -> Table | None:
    """What `opened` makes of the record of the table at `out`; None if there is none of ours. Raises OutputError as it
    does."""
    folder, layout = layout_of(out)
    place = DiskPlace(folder)
    return as_recorded(lambda: (place.get(layout.record) or [None])[0], folder / layout.record, layout.table, opened)


def as_recorded(
    get: Callable[[], bytes | None], path: object, name: str, opened: Callable[[Record], Table]
) -> Table | None:
    """What `opened` makes of a record; None if there is none of ours. If it does not find what the record names, and
    that was replaced meanwhile, it is called again. get, path, name: what gets the record, where it is, and of which
    file. Raises OutputError as `opened` does."""
    before, failed = b"", OutputError()
    while line := get():
        if line == before:
            raise failed
        if (record := parse_record(line, path, name)) is None:
            return None
        try:
            return opened(record)
        except OutputError as error:
            before, failed = line, error
    return None
