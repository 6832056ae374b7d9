"""Tables in an object store: fetched to be read, and replaced by runs and merges, which make the parts in a local
folder. That has the journal, too. Of the table that a run continues it has copies (see `tables/stored`).
"""

from __future__ import annotations

import hashlib
import logging
import os
import stat
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from batchocr.errors import (
    DeniedError,
    NotFoundError,
    OutputError,
    PageError,
    StaleError,
    StoreRefusesError,
    UsageError,
    of_store,
)
from batchocr.pages.input.folders import SkippedFiles
from batchocr.pages.input.globs import WILDCARD, natural_key
from batchocr.pages.input.objects import documents_matching
from batchocr.storage.objects import asked, list_below, look_at
from batchocr.storage.temporary import is_private, new_folder, work_folder
from batchocr.storage.uris import is_uri, parse_uri
from batchocr.tables.atomic import open_locked, writing
from batchocr.tables.files import (
    EARLIER_NAMES,
    TABLE_SUFFIXES,
    is_beside_a_table,
    is_folder,
    is_part_name,
    journal_path,
    report_path,
)
from batchocr.tables.known import Row
from batchocr.tables.layout import Layout
from batchocr.tables.output import Output
from batchocr.tables.parts import has_table, require_ours
from batchocr.tables.place import DiskPlace, Place, replaced_meanwhile
from batchocr.tables.record import Commit, Part, parse_record
from batchocr.tables.schema import RunMetadata
from batchocr.tables.store_place import StorePlace, Writer
from batchocr.tables.stored import fetch_all, fetch_file, fetch_looked_at, fetch_recorded, fetching
from batchocr.tables.table import StoredTable, could_be_table

logger = logging.getLogger(__name__)


def output_at(out: str | os.PathLike[str], work_dir: str | os.PathLike[str] | None) -> Output:
    """Where an output goes. work_dir: in which outputs for a store are made. Raises UsageError, OutputError."""
    name = os.fspath(out)
    if is_uri(name):
        return StoredOutput(name, work_dir)
    if name.endswith("/"):
        with writing(Path(name)):
            Path(name).mkdir(exist_ok=True)
    return Output(Path(name), name)


def place_at(out: str) -> Place:
    """A folder, or a prefix in a store, for who puts items there. Raises UsageError."""
    return StorePlace(f"{out.rstrip('/')}/") if is_uri(out) else DiskPlace(Path(out))


class StoredOutput(Output):
    """The place of a table in a store."""

    def __init__(self, uri: str, work_dir: str | os.PathLike[str] | None) -> None:
        """work_dir: in which parts are made. Raises UsageError, OutputError."""
        path = _work_path(uri, work_dir)
        self._prefix = uri[: uri.rfind("/") + 1]
        self._store = StorePlace(self._prefix)
        super().__init__(path, uri, self._store)
        self._work_folder = path.parent
        self._displaced: list[str] = []
        """The parts that have not got their own names yet."""
        self._other: Writer | None = None
        """What another run that has not ended says of itself; None if there is none."""

    def prepare(self, *, overwrite: bool = False) -> None:
        folder = new_folder()
        self.table = folder / self.path.name
        if is_folder(self.path):
            self.table.mkdir()
            folder = self.table
            self._require_ours(folder)
        if any(self.path.glob("*.parquet")) or self.path.is_file():
            raise OutputError(
                f"{self.path} is a table that an earlier version made for {self.name}, and did not put there: "
                f"`batchocr merge {self.path} --out {self.name} --overwrite` puts it; then delete it"
            )
        super().prepare(overwrite=overwrite)
        journal = journal_path(self.path)
        is_own = journal.exists()  # that of a run that was killed on this machine
        if is_own:
            with writing(journal):
                open_locked(journal).close()  # else it would be said of a run at work that it has ended
        self._other = self._store.begin(self._layout.writer, self.run)
        try:
            found = fetch_recorded(self._get_record, self._prefix, self._layout, folder, in_full=False)
        except OutputError:
            if not overwrite:
                raise
            there = self._seen()[1]  # of a damaged record, nothing
            found = there if there.parts else _listed(self._place.names("")), []
        if found is not None:
            self._there, self._displaced = found
        else:
            self._fetch_unrecorded(folder)
        if overwrite and self._parts_there() and not self._store.can_remove:
            raise StoreRefusesError(
                f"{self.name} cannot be replaced by other parts, as nothing can be removed there, and other programs "
                "would read both: allow that, or choose another --out"
            )
        if self._other is not None and self._other.run != self._there.run and not is_own:
            logger.warning(
                "a run on %s began to write %s at %s and has not ended: if it is still at work, the later one of both "
                "goes on from what the other has put",
                self._other.host,
                self.name,
                self._other.since,
            )

    def _require_ours(self, folder: Path) -> None:
        """Raise OutputMismatchError if there are other files in the place of a folder of parts. folder: for copies."""
        for name in self._place.names(""):
            (folder / name).touch()
        require_ours(folder, self.name)
        for file in folder.iterdir():
            file.unlink()

    def take_in(self, items: Sequence[str]) -> None:
        super().take_in(items)
        if items:
            (self.table / self._layout.staging).mkdir(parents=True, exist_ok=True)
        fetch_all(lambda name: self._copy_unrecorded(name, self.table / name), items)

    def begin(self) -> None:
        self._clear()

    def announce(self) -> None:
        """Do nothing: `prepare` has said that the table is made."""

    def unreported(self, of_journal: Mapping[str, int]) -> Mapping[str, int]:
        tag, there = self._seen()
        if there.run != self._there.run:  # it is another one, of which the run that made it reports
            return {}
        self.tag, self._there = tag, replace(self._there, worse=there.worse, ended=there.ended)
        return there.worse

    def settle(self, table: StoredTable | None) -> None:
        if self._displaced or (self._other is not None and self._other.run == self._there.run):
            self._finish(self._displaced)

    def commit(self, rows: Iterable[Row], metadata: RunMetadata, **options: Any) -> None:
        try:
            super().commit(rows, metadata, **options)
        except StaleError:
            self._keep_items()
            raise
        except OutputError as error:
            tag = self.tag
            with suppress(OutputError):  # it may be the same fault
                tag = self._seen()[0]
            if tag != self.tag:  # so that parts are not what they were when this run began
                self._keep_items()
                raise StaleError(replaced_meanwhile(self.name)) from error
            raise type(error)(f"{error}. Nothing is lost, and the same command puts the table") from error

    def _keep_items(self) -> None:
        """Have what actors have read count for the commit after that of another run, which has come first."""
        with suppress(OutputError):
            self._there = self._seen()[1]
            for item in self.items:
                if self._layout.generation_of(item) <= self._there.generation:
                    self._place.copy(item, self._layout.of_generation(item, self.next_generation))

    def put_report(self, report: Path | None) -> None:
        if report == report_path(self.path):
            self._place.put(report, self._layout.report)
            report.unlink()
        else:
            self._place.remove(self._layout.report)  # of an earlier run
        if self._there.worse or not self._there.ended:
            self._say_ended()

    def _say_ended(self) -> None:
        """Say in the record that the parts have got their names, and what came out worse has been reported; unless
        another run has replaced it, who does both then."""
        line, tag = self._store.get(self._layout.record) or (b"", "")
        if tag == self.tag and (record := parse_record(line, self.name, self._layout.table)):
            ended = replace(record, commit=replace(record.commit, worse={}, ended=True))
            with suppress(StaleError):
                self.tag = self._store.swap(self._layout.record, ended.to_line(), tag)

    def close(self) -> None:
        with suppress(OutputError):
            self._store.end()

    def own(self) -> Container[str]:
        layout, there = self._layout, self._there
        return {f"{self._prefix}{name}" for name in (*there.parts, *there.removed, layout.table, layout.record)}

    def _parts_there(self) -> Iterable[str]:
        return (*self._there.parts, *self._there.removed) if not self._layout.table else ()

    def _get_record(self) -> bytes | None:
        """The record in the store, which is the version that may be replaced."""
        line, self.tag = self._place.get(self._layout.record) or (None, "")
        return line

    def _fetch_unrecorded(self, folder: Path) -> None:
        """Copy the table that the version before this one has put. Raises OutputError."""
        names = [self._layout.table, self._layout.record] if self._layout.table else self._place.names("")
        if not names and any(map(self._place.get, ("table.json", "run.json"))):
            raise StoreRefusesError(
                f"{self.name} has no record of its parts, and nobody may list them here: allow that"
            )
        fetch_all(lambda name: self._copy_unrecorded(name, folder / name), names)
        self._there = _listed(names)

    def _copy_unrecorded(self, name: str, copy: Path) -> None:
        uri = f"{self._prefix}{name}"
        with fetching(uri), suppress(NotFoundError, DeniedError):
            if name.lower().endswith(".parquet"):
                fetch_looked_at(uri, copy)
            else:
                fetch_file(uri, copy, required=False)


def _listed(names: Iterable[str]) -> Commit:
    """What is known of a table of which there are these objects, and no record."""
    return Commit(parts={name: Part(0, "", 0) for name in names if is_part_name(name)})


def _work_path(uri: str, work_dir: str | os.PathLike[str] | None) -> Path:
    """Where the journal of an output in a store is, in a folder for this output alone; the same in every run. Raises
    UsageError, OutputError if others may have written what is there."""
    digest = hashlib.sha256(str(parse_uri(uri)).encode()).hexdigest()
    own, elsewhere = work_folder(work_dir) / digest[:16], "--work-dir names another place"
    name = parse_uri(uri).key.rpartition("/")[2]
    if name and not name.lower().endswith(TABLE_SUFFIXES):
        raise UsageError(f"the table {uri} must end in .parquet or .jsonl, or in / for a folder of parts")
    try:
        own.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not is_private(own, closed_to=stat.S_IWOTH):  # its group may be of this user alone
            raise OutputError(
                f"{own}, where the table is made, is a link, another user's, or open to all: what is there may be "
                f"anybody's. If it is yours, `chmod 700` it; else {elsewhere}"
            )
        if not name:
            (own / "parts").mkdir(exist_ok=True)
    except OSError as error:
        raise OutputError(f"{own} cannot be made ({error.strerror}): {elsewhere}") from error
    return own / (name or "parts")


def fetch_tables(name: str) -> list[Path]:
    """Copies of the tables that a URI names: one, a folder of parts, those below a prefix, or those that match a glob,
    in natural order. Other files are left out, unless they are named themselves. The copies are deleted when the
    process ends. Raises OutputError, UsageError."""
    prefix, named = f"{name.rstrip('/')}/", name.lower().endswith(TABLE_SUFFIXES)
    if not named and (table := _fetch_whole(prefix, Layout())) is not None:
        return [table]
    try:
        found = _uris(name)
        uris = [uri for uri in found if uri.lower().endswith(TABLE_SUFFIXES) and not is_beside_a_table(uri)]
    except NotFoundError as error:
        raise of_store(error, f"there is no table {name}: {error}") from error
    except PageError as error:
        raise of_store(error, str(error)) from error
    uris.sort(key=natural_key)
    may_be_folder = not named and not WILDCARD.search(name)
    folder = new_folder() if may_be_folder and any(map(is_part_name, map(os.path.basename, uris))) else None
    paths = fetch_all(partial(_fetch_one, folder), uris)
    fetched = [path for path in paths if named or could_be_table(path)]
    if not fetched:
        raise OutputError(f"there is no table {name}: was the run finished? `batchocr run` puts it there at its end")
    if folder is not None:
        if (table := _fetch_whole(prefix, Layout())) is not None:
            return [table]  # the first commit has come meanwhile
        for beside in EARLIER_NAMES:
            fetch_file(prefix + beside, folder / beside, required=False)
        return [folder] if has_table(folder) else sorted(paths)
    return fetched


def _fetch_whole(prefix: str, layout: Layout) -> Path | None:
    """A copy of the table that a record below this prefix names, with its report; None if there is no record."""
    folder = new_folder()

    def get() -> bytes | None:
        is_there = fetch_file(prefix + layout.record, folder / "record", required=False)
        return (folder / "record").read_bytes() if is_there else None

    if fetch_recorded(get, prefix, layout, folder, in_full=True) is None:
        return None
    fetch_file(prefix + layout.report, folder / layout.report, required=False)
    return folder / layout.table if layout.table else folder


def _fetch_one(folder: Path | None, uri: str) -> Path:
    """A copy of a table that is a single object, or of a part of one that has no record."""
    prefix, _, name = uri.rpartition("/")
    if folder is None and (table := _fetch_whole(f"{prefix}/", Layout(name))) is not None:
        return table
    path = (folder or new_folder()) / name
    fetch_file(uri, path)
    fetch_file(f"{uri}.report.json", report_path(path), required=False)
    return path


def _uris(name: str) -> list[str]:
    is_glob = WILDCARD.search(name) is not None  # unless an object has this very name
    with suppress(*[NotFoundError] if is_glob else ()):
        if (object_there := asked(partial(look_at, name)).result()) is not None:
            return [object_there.uri]
    below = documents_matching(name, SkippedFiles()) if is_glob else list_below(name, recursive=False)
    return [found.uri for found in below]
