"""The files of a run: its table, and what stands next to it."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from batchocr.errors import NoInputError
from batchocr.storage.members import file_of

if TYPE_CHECKING:
    from batchocr.storage.listing import Documents

OWN_FOLDER = ".batchocr"
"""The folder of what belongs to a folder of parts and is none. It is hidden, so that other programs open the folder as
a table."""

TABLE_SUFFIXES = (".parquet", ".jsonl")

_BESIDE = (".journal", ".meta.json", ".report.json", ".run.json", ".new")
"""How the names end of the files beside a table that is a single file."""

EARLIER_NAMES = ("table.json", "report.json", "run.json")
"""What version 6 had in a folder of parts, beside them; `run.json` if a cluster had made them."""
EARLIER_JOURNAL = "table.journal"
"""What it had there until a run was finished."""

_PART_NAME = re.compile(r"part-[0-9]{6,}-[0-9a-f]{16}\.parquet")
_TEMPORARY = re.compile(r"\.[0-9a-f]{16}\.tmp$")


def is_folder(out: Path) -> bool:
    """Whether the table at `out` is a folder of parts."""
    return out.suffix.lower() not in TABLE_SUFFIXES and out.is_dir()


def journal_path(out: Path) -> Path:
    """Where the journal of the table at `out` is, which may be a folder of parts. A journal that version 6 has left in
    one stays where it is."""
    if not is_folder(out):
        return out.with_name(out.name + ".journal")
    earlier = out / EARLIER_JOURNAL
    return earlier if os.path.exists(earlier) else out / OWN_FOLDER / "journal"


def record_path(out: Path) -> Path:
    """Where the record of a JSON Lines table is, or of a folder of parts."""
    return out / OWN_FOLDER / "table.json" if is_folder(out) else out.with_name(out.name + ".meta.json")


def table_of_journal(name: str) -> str:
    """The name, or path, of the table whose journal this is; any other name as it is."""
    return name.removesuffix(".journal")


def report_path(out: Path) -> Path:
    """Where the report goes unless the user says otherwise."""
    return out / OWN_FOLDER / "report.json" if is_folder(out) else out.with_name(out.name + ".report.json")


def temporary_path(path: Path) -> Path:
    """A new name under which a file is written before it takes its place. Nobody can know it before, and put a pipe or
    a link there. A run that is killed may leave the file there: see `leftovers_of`."""
    return path.with_name(f"{path.name}.{secrets.token_hex(8)}.tmp")


def final_name(name: str) -> str:
    """The name, or path, that the file with this temporary one was to take; any other name as it is."""
    return _TEMPORARY.sub("", name)


def leftovers_of(files: Iterable[Path]) -> Iterator[Path]:
    """The temporary files, of runs that were killed or are at work, that were to replace these files. Raises
    OSError."""
    for folder, ours in groupby(sorted(files), key=lambda file: file.parent):
        names = {file.name for file in ours}
        with os.scandir(folder) as entries:
            yield from (folder / entry.name for entry in entries if final_name(entry.name) in names - {entry.name})


def is_part_name(name: str) -> bool:
    """Whether a file of this name is a part of a table, or what a run that was killed has left of one; tables of shards
    may be `part-1.parquet`."""
    return _PART_NAME.fullmatch(final_name(name)) is not None


def how_to_restore(path: Path) -> str:
    """What to do about a table that is damaged."""
    if is_part_name(path.name):
        record = record_path(path.parent)
        also = f" and {record}" if record.exists() else ""
        return f"restore it, or delete it{also} and run the same command again, which reads its documents again"
    return "restore it, or read the documents again with `batchocr run --overwrite`"


def is_beside_a_table(name: str) -> bool:
    """Whether a name is that of a file that a run leaves beside its table, or was still writing."""
    return name.endswith(_BESIDE) or final_name(name) != name


def files_of(out: Path, report: Path) -> list[Path]:
    """The paths that a run with this table and this report may write, whether or not they exist; of parts, only those
    that do."""
    tables = [out]
    if is_folder(out):
        tables = [out / final_name(name) for name in os.listdir(out) if is_part_name(name)]
    return [*tables, journal_path(out), record_path(out), report]


def among(files: Sequence[Path]) -> Callable[[str], bool]:
    """A function that tells whether a path is one of these files, or was to become one."""
    names, paths = {file.name for file in files}, set(map(os.path.realpath, files))

    def is_among(path: str) -> bool:
        path = final_name(path)
        return os.path.basename(path) in names and os.path.realpath(path) in paths

    return is_among


def without_output(documents: Documents, is_own: Callable[[str], bool]) -> Documents:
    """Leave out what the run, or one before it, has written: a glob matches that, too. is_own: says it of a path, or a
    URI. Raises NoInputError if nothing else was found."""
    remaining = documents.where(not is_own(file_of(path)) for path in documents.paths())
    if documents and not remaining:
        raise NoInputError("nothing to read: nothing was found but the run's own output")
    return remaining
