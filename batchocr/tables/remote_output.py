"""Tables in an object store: fetched to be read; an output is made in a local folder, and put there at the end, whole.

Before a run that folder holds a journal, if rows are to be read or tried again, or a table, if that was not put.
Otherwise the table in the store is fetched, so that a run into it continues it.
"""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from batchocr.errors import DeniedError, NotFoundError, OutputError, PageError, UsageError, of_store
from batchocr.pages.input.folders import SkippedFiles
from batchocr.pages.input.globs import WILDCARD, natural_key
from batchocr.pages.input.objects import documents_matching
from batchocr.storage.objects import fetch, list_below, look_at, put, remove
from batchocr.storage.temporary import new_folder, work_folder
from batchocr.storage.uris import is_uri, parse_uri
from batchocr.tables.atomic import atomic_file, writing
from batchocr.tables.files import (
    CLUSTER_REPORT_NAME,
    TABLE_SUFFIXES,
    UNFINISHED_REPORT,
    is_beside_a_table,
    journal_path,
    metadata_path,
    report_path,
)
from batchocr.tables.table import could_be_table, table_for

logger = logging.getLogger(__name__)

_FETCH_S = 3600.0
_AT_ONCE = 8


class OutputPlace:
    """Where an output goes."""

    def __init__(self, out: str | os.PathLike[str], work_dir: str | os.PathLike[str] | None) -> None:
        """work_dir: in which outputs for a store are made. Raises UsageError, OutputError."""
        name = os.fspath(out)
        self._uri = name if is_uri(name) else None
        self.path = Path(name) if self._uri is None else _folder(self._uri, work_dir) / _name(self._uri)
        """Where it is made: its final place, unless that is in a store."""
        self._fetched: int | None = None
        """The inode of the table that was fetched: another takes its place only if there is something new."""
        if name.endswith("/") and self._uri is None:
            with writing(self.path):
                self.path.mkdir(exist_ok=True)
        table_for(self.path)

    def require_free(self, *, overwrite: bool) -> None:
        """Make the folder of `path`, for a new table. Raises OutputError if there is a table in the store, or none can
        be put there."""
        if self._uri is None:
            return
        self._make_folder()
        if not overwrite and self._is_there():
            raise OutputError(f"{self._uri} exists already: choose another --out, or replace it with --overwrite")
        self._try_to_put()
        report_path(self.path).unlink(missing_ok=True)

    def prepare(self, *, overwrite: bool) -> None:
        """Bring to `path` what a run has to continue. Raises OutputError, also if no table can be put into the
        store."""
        if self._uri is None:
            return
        self._make_folder()
        logger.info("the table is made in %s and put to %s at the end", self.path.parent, self._uri)
        if not overwrite and not journal_path(self.path).exists():
            if self.path.exists():
                self._put()
            elif self._is_there():
                _fetch_table(self._uri, self.path)
                self._fetched = self.path.stat().st_ino
        self._try_to_put()

    def is_own(self, path: str) -> bool:
        """Whether an earlier run has put the object of this URI."""
        ours = [self._uri, f"{self._uri}.meta.json", f"{self._uri}.report.json"] if self._uri else []
        return path in ours

    def publish(self) -> None:
        """Put what is at `path` into the store. Raises OutputError, and the table stays where it is."""
        if self._uri is None:
            return
        self._put()
        if not report_path(self.path).exists():
            with suppress(PageError):  # it may be that nothing can be deleted
                remove(f"{self._uri}.report.json")
        for file in self._files:
            file.unlink(missing_ok=True)

    @property
    def _files(self) -> list[Path]:
        """The files of the output. The table comes last, so that the others are there when it is."""
        return [metadata_path(self.path), report_path(self.path), self.path]

    def _put(self) -> None:
        assert self._uri is not None
        try:
            is_same = self.path.stat().st_ino == self._fetched
            for file in [report_path(self.path)] if is_same else self._files:
                if file.exists():
                    put_file(file, self._uri + file.name.removeprefix(self.path.name))
        except OutputError as error:
            raise type(error)(
                f"{error}. The table is made: it is {self.path}, and the same command puts it to {self._uri}"
            ) from error

    def _make_folder(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(
                f"{self.path.parent} cannot be made ({error.strerror}): --work-dir names another place"
            ) from error

    def _is_there(self) -> bool:
        """Whether there is a table in the store. Raises OutputError if that cannot be found out."""
        assert self._uri is not None
        try:
            return look_at(self._uri) is not None
        except NotFoundError:
            return False
        except DeniedError as error:
            # Those who may not list names are denied what is not there, too: a look at what is there tells.
            self._try_to_put()
            with suppress(PageError):
                look_at(f"{self._uri}.report.json")
                return False
            raise of_store(error, f"nothing tells whether there is a table: {error}") from error
        except PageError as error:
            raise of_store(error, f"cannot write {self._uri}: {error}") from error

    def _try_to_put(self) -> None:
        """Put the report once more, or one of a run that is at work: if that cannot be, neither can the table, which
        should be known before the work. Raises OutputError."""
        report, uri = report_path(self.path), f"{self._uri}.report.json"
        if not report.exists():
            fetch_file(uri, report, required=False)
        if report.exists() and report.read_bytes() != UNFINISHED_REPORT:
            put_file(report, uri)
            return
        report.unlink(missing_ok=True)
        with tempfile.NamedTemporaryFile(dir=self.path.parent) as file:
            file.write(UNFINISHED_REPORT)
            file.flush()
            put_file(Path(file.name), uri)


def _folder(uri: str, work_dir: str | os.PathLike[str] | None) -> Path:
    """A folder for this output alone; the same in every run. Raises UsageError."""
    digest = hashlib.sha256(str(parse_uri(uri)).encode()).hexdigest()
    return work_folder(work_dir) / digest[:16]


def _name(uri: str) -> str:
    name = parse_uri(uri).key.rpartition("/")[2]
    if not name.lower().endswith(TABLE_SUFFIXES):
        raise UsageError(f"the table {uri} must end in .parquet or .jsonl")
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
    try:
        with atomic_file(path) as file:
            fetch(uri, file, timeout_s=_FETCH_S)
    except PageError as error:
        if required or not isinstance(error, NotFoundError | DeniedError):
            raise of_store(error, f"{uri} cannot be fetched: {error}") from error


def fetch_tables(name: str) -> list[Path]:
    """Copies of the tables that a URI names: one, those below a prefix, or those that match a glob, in natural order.
    Other files are left out, unless they are named themselves. The copies are deleted when the process ends. Raises
    OutputError, UsageError."""
    try:
        uris = [uri for uri in _uris(name) if uri.lower().endswith(TABLE_SUFFIXES) and not is_beside_a_table(uri)]
    except NotFoundError as error:
        raise of_store(error, f"there is no table {name}: {error}") from error
    except PageError as error:
        raise of_store(error, str(error)) from error
    uris.sort(key=natural_key)
    folders = [new_folder() for _ in uris]
    fetching = ThreadPoolExecutor(_AT_ONCE)
    try:
        paths = list(fetching.map(_fetch_into, folders, uris))
    finally:
        fetching.shutdown(wait=False, cancel_futures=True)  # whoever interrupts this does not wait for gigabytes
    named = name.lower().endswith(TABLE_SUFFIXES)
    fetched = [(uri, path) for uri, path in zip(uris, paths, strict=True) if named or could_be_table(path)]
    if not fetched:
        raise OutputError(f"there is no table {name}: was the run finished? `batchocr run` puts it there at its end")
    if not named:
        uri, path = fetched[0]
        with suppress(OutputError):  # `view` shows it, if it is there
            fetch_file(f"{uri.rpartition('/')[0]}/{CLUSTER_REPORT_NAME}", path.with_name(CLUSTER_REPORT_NAME))
    return [path for _, path in fetched]


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
