"""Tables in an object store: fetched to be read; an output is made in a local folder, and put there at the end, whole,
or of a folder of parts those that the run has changed.

Before a run the local folder holds a journal, if rows are to be read or tried again, or a table, if that was not put.
What the store has is brought beside it (`tables/stored`), so that a run into it continues it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Container
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

from batchocr.errors import DeniedError, NotFoundError, OutputError, PageError, UsageError, of_store
from batchocr.pages.input.folders import SkippedFiles
from batchocr.pages.input.globs import WILDCARD, natural_key
from batchocr.pages.input.objects import documents_matching
from batchocr.storage.objects import StoredObject, fetch, list_below, look_at, put, remove
from batchocr.storage.temporary import is_private, new_folder, work_folder
from batchocr.storage.uris import is_uri, parse_uri
from batchocr.tables.atomic import atomic_file, open_locked, writing
from batchocr.tables.earlier import require_ours
from batchocr.tables.files import (
    CLUSTER_REPORT_NAME,
    PARTS_METADATA_NAME,
    TABLE_SUFFIXES,
    UNFINISHED_REPORT,
    is_beside_a_table,
    is_folder,
    journal_path,
    metadata_path,
    report_path,
    table_file,
)
from batchocr.tables.parts import part_names
from batchocr.tables.stored import FETCH_S, fetch_looked_at, fetching, make_copies_folder, stored_copy
from batchocr.tables.table import could_be_table, table_for

_AT_ONCE = 8


class OutputPlace:
    """Where an output goes."""

    def __init__(self, out: str | os.PathLike[str], work_dir: str | os.PathLike[str] | None) -> None:
        """work_dir: in which outputs for a store are made. Raises UsageError, OutputError."""
        name = os.fspath(out)
        self._uri = name if is_uri(name) else None
        self._address = name[: name.rfind("/") + 1]
        """How the URIs begin of what is put."""
        self.path = Path(name) if self._uri is None else _folder(self._uri, work_dir) / _name(self._uri)
        """Where it is made: its final place, unless that is in a store."""
        if self._uri is not None:
            self._make_folder()
        elif name.endswith("/"):
            with writing(self.path):
                self.path.mkdir(exist_ok=True)
        table_for(self.path)

    def require_free(self, *, overwrite: bool) -> None:
        """Make the folder of `path`, for a new table. Raises OutputError if there is a table in the store, or none can
        be put there."""
        if self._uri is None:
            return
        names = [found.uri.rpartition("/")[2] for found in self._found()]
        if not overwrite and table_file(self.path).name in names:
            raise OutputError(f"{self._uri} exists already: choose another --out, or replace it with --overwrite")
        self._copy_stored(overwrite=True)
        self._try_to_put()
        report_path(self.path).unlink(missing_ok=True)

    def prepare(self, *, overwrite: bool) -> None:
        """Bring to `path` what a run has to continue. Raises OutputError, also if no table can be put into the store,
        or another run is at work."""
        if self._uri is None:
            return
        if journal_path(self.path).exists():
            open_locked(journal_path(self.path)).close()  # else the copies are those of a run that is at work
        elif not overwrite and table_file(self.path).exists():
            self.publish()
        self._copy_stored(overwrite=overwrite)
        self._try_to_put()

    def own(self) -> Container[str]:
        """The URIs of what an earlier run has put; known once the output is prepared."""
        return {self._address + file.name for file in self._files} if self._uri else ()

    def publish(self) -> None:
        """Put what is at `path` into the store. Raises OutputError, and the table stays where it is."""
        if self._uri is None:
            return
        self._put()
        if not report_path(self.path).exists():
            with suppress(PageError):  # it may be that nothing can be deleted
                remove(self._uri_of(report_path(self.path)))
        for file in self._files:
            file.unlink(missing_ok=True)
        shutil.rmtree(self._copies, ignore_errors=True)

    @property
    def _files(self) -> list[Path]:
        """The files of the output. The table comes last, so that the others are there when it is."""
        folder = is_folder(self.path)
        tables = [self.path / name for name in part_names(self.path)] if folder else [self.path]
        return [metadata_path(self.path), report_path(self.path), *tables]

    @property
    def _copies(self) -> Path:
        """Where the copies are of what the store has."""
        return stored_copy(table_file(self.path)).parent

    def _uri_of(self, file: Path) -> str:
        return self._address + file.name

    def _copy_stored(self, *, overwrite: bool) -> None:
        """Bring what the store has beside `path`, unless a later table is there. overwrite: only the names in a folder,
        which new parts take. Raises OutputError, also if it is not of an earlier run."""
        shutil.rmtree(self._copies, ignore_errors=True)
        if is_folder(self.path) or not (overwrite or self.path.exists()):
            with writing(self._copies), ThreadPoolExecutor(_AT_ONCE) as copying:
                make_copies_folder(self._copies, self._address)
                list(copying.map(partial(self._copy, overwrite=overwrite), self._found()))
        require_ours(self.path)

    def _copy(self, stored: StoredObject, *, overwrite: bool) -> None:
        copy = self._copies / stored.uri.rpartition("/")[2]
        if copy.name == table_file(self.path).name and copy.suffix != ".parquet":
            _fetch_table(stored.uri, copy)
        elif copy.suffix == ".parquet" and not overwrite:
            fetch_looked_at(stored, copy)
        else:
            copy.touch()

    def _put(self) -> None:
        try:
            for file in self._files:
                if file.exists():
                    put_file(file, self._uri_of(file))
        except OutputError as error:
            raise type(error)(
                f"{error}. The table is made: it is {self.path}, and the same command puts it to {self._uri}"
            ) from error

    def _make_folder(self) -> None:
        """Make the folder of this output alone. Raises OutputError if others may have written what is there."""
        own, elsewhere = self.path.parent, "--work-dir names another place"
        try:
            own.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not is_private(own, closed_to=stat.S_IWOTH):  # its group may be of this user alone
                raise OutputError(
                    f"{own}, where the table is made, is a link, another user's, or open to all: what is there may be "
                    f"anybody's. If it is yours, `chmod 700` it; else {elsewhere}"
                )
            if self._address == self._uri:
                self.path.mkdir(exist_ok=True)
        except OSError as error:
            raise OutputError(f"{own} cannot be made ({error.strerror}): {elsewhere}") from error

    def _found(self) -> list[StoredObject]:
        """The table in the store, or what is in its folder. Raises OutputError if that cannot be found out."""
        assert self._uri is not None
        try:
            if is_folder(self.path):
                return list_below(self._uri, recursive=False)
            return list(filter(None, [look_at(self._uri)]))
        except NotFoundError:
            return []
        except DeniedError as error:
            # Those who may not list names are denied what is not there, too: a look at what is there tells.
            self._try_to_put()
            with suppress(PageError):
                if not is_folder(self.path) and look_at(self._uri_of(report_path(self.path))):
                    return []
            raise of_store(error, f"nothing tells whether there is a table: {error}") from error
        except PageError as error:
            raise of_store(error, f"cannot write {self._uri}: {error}") from error

    def _try_to_put(self) -> None:
        """Put the report once more, or one of a run that is at work: if that cannot be, neither can the table, which
        should be known before the work. Raises OutputError."""
        report, uri = report_path(self.path), self._uri_of(report_path(self.path))
        if not report.exists():
            fetch_file(uri, report, required=False)
        if report.exists() and report.read_bytes() != UNFINISHED_REPORT:
            put_file(report, uri)
            return
        report.write_bytes(UNFINISHED_REPORT)
        put_file(report, uri)
        report.unlink()


def _folder(uri: str, work_dir: str | os.PathLike[str] | None) -> Path:
    """A folder for this output alone; the same in every run. Raises UsageError."""
    digest = hashlib.sha256(str(parse_uri(uri)).encode()).hexdigest()
    return work_folder(work_dir) / digest[:16]


def _name(uri: str) -> str:
    if uri.endswith("/"):
        return "parts"
    name = parse_uri(uri).key.rpartition("/")[2]
    if not name.lower().endswith(TABLE_SUFFIXES):
        raise UsageError(f"the table {uri} must end in .parquet or .jsonl, or in / for a folder of parts")
    return name


def put_file(file: Path, uri: str) -> None:
    """Put a file into the store, whole. Raises OutputError."""
    try:
        put(file, uri)
    except PageError as error:
        raise of_store(error, f"cannot write {uri}: {error}") from error


def fetch_file(uri: str, path: Path, *, required: bool = True) -> None:
    """Fetch an object into a file. Raises OutputError. An object that is not required may be missing, or denied, as
    some stores say of what is missing: then nothing is fetched."""
    may_lack = () if required else (NotFoundError, DeniedError)
    with fetching(uri), suppress(*may_lack), atomic_file(path) as file:
        fetch(uri, file, timeout_s=FETCH_S)


def fetch_tables(name: str) -> list[Path]:
    """Copies of the tables that a URI names: one, a folder of parts, those below a prefix, or those that match a glob,
    in natural order. Other files are left out, unless they are named themselves. The copies are deleted when the
    process ends. Raises OutputError, UsageError."""
    try:
        found = _uris(name)
        uris = [uri for uri in found if uri.lower().endswith(TABLE_SUFFIXES) and not is_beside_a_table(uri)]
    except NotFoundError as error:
        raise of_store(error, f"there is no table {name}: {error}") from error
    except PageError as error:
        raise of_store(error, str(error)) from error
    uris.sort(key=natural_key)
    once = [uri for uri in found if uri.endswith(f"/{PARTS_METADATA_NAME}") and not WILDCARD.search(name)]
    folder = new_folder()
    folders = [folder if once else new_folder() for _ in uris]
    pool = ThreadPoolExecutor(_AT_ONCE)
    try:
        paths = list(pool.map(_fetch_into, folders, uris))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # whoever interrupts this does not wait for gigabytes
    named = name.lower().endswith(TABLE_SUFFIXES)
    fetched = [(uri, path) for uri, path in zip(uris, paths, strict=True) if named or could_be_table(path)]
    if not fetched:
        raise OutputError(f"there is no table {name}: was the run finished? `batchocr run` puts it there at its end")
    if not named:
        uri, path = fetched[0]
        with suppress(OutputError):  # `view` shows it, if it is there
            fetch_file(f"{uri.rpartition('/')[0]}/{CLUSTER_REPORT_NAME}", path.with_name(CLUSTER_REPORT_NAME))
    for uri in once:
        fetch_file(uri, folder / PARTS_METADATA_NAME)
    return [folder] if once else [path for _, path in fetched]


def _uris(name: str) -> list[str]:
    if WILDCARD.search(name):
        return [found.uri for found in documents_matching(name, SkippedFiles())]
    if (found := look_at(name)) is not None:
        return [found.uri]
    return [found.uri for found in list_below(name, recursive=False)]


def _fetch_into(folder: Path, uri: str) -> Path:
    """The copy of a table, with its report beside it."""
    path = folder / uri.rpartition("/")[2]
    _fetch_table(uri, path)
    fetch_file(f"{uri}.report.json", report_path(path), required=False)
    return path


def _fetch_table(uri: str, path: Path) -> None:
    fetch_file(uri, path)
    if path.suffix.lower() == ".jsonl":
        fetch_file(f"{uri}.meta.json", metadata_path(path), required=False)
