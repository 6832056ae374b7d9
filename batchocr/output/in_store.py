"""An output in an object store: made in a local folder, and put there at the end, whole.

What of it is in that folder before a run: a journal, if rows are to be read or tried again; a table, if it could not be
put. Otherwise the table in the store is fetched, so that a run into it continues it.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from batchocr.data import Document
from batchocr.errors import NoInputError, NotFoundError, OutputError, PageError, UsageError
from batchocr.output.atomic import atomic_file
from batchocr.output.files import facts_path, journal_path, report_path
from batchocr.output.table import TABLE_SUFFIXES, table_for
from batchocr.storage.objects import StoredObject, fetch, look_at, put, remove
from batchocr.storage.uris import is_uri, parse_uri

logger = logging.getLogger(__name__)

_FETCH_S = 3600.0


class OutputPlace:
    """Where an output goes. path: where it is made; its final place, unless that is in a store."""

    def __init__(self, out: str | os.PathLike[str], work_dir: str | os.PathLike[str] | None) -> None:
        """work_dir: in which outputs for a store are made. Raises UsageError, OutputError."""
        name = os.fspath(out)
        self._uri = name if is_uri(name) else None
        self.path = Path(name) if self._uri is None else _folder(self._uri, work_dir) / _name(self._uri)
        table_for(self.path)

    def require_free(self, *, overwrite: bool) -> None:
        """Have an empty folder at `path`, for a table that continues none. Raises OutputError if there is one in the
        store; a report of it that is to be replaced is removed."""
        if self._uri is None:
            return
        if _look(self._uri) is not None and not overwrite:
            raise OutputError(f"{self._uri} exists already: choose another --out, or replace it with --overwrite")
        self._make_folder()
        if overwrite:
            with suppress(PageError):  # putting the table will say what is wrong
                remove(f"{self._uri}.report.json")

    def prepare(self, *, overwrite: bool) -> None:
        """Have at `path` what a run has to continue. Raises OutputError."""
        if self._uri is None:
            return
        self._make_folder()
        logger.info("the table is made in %s and put to %s at the end", self.path.parent, self._uri)
        stored = _look(self._uri)
        if overwrite:
            return
        if self.path.exists():
            self._put()
            self._clear()
            stored = _look(self._uri)
        if stored is not None:
            fetch_file(f"{self._uri}.report.json", report_path(self.path), required=False)
        if stored is not None and not journal_path(self.path).exists():
            fetch_file(self._uri, self.path)
            if self.path.suffix.lower() == ".jsonl":
                fetch_file(f"{self._uri}.meta.json", facts_path(self.path), required=False)

    def without_itself(self, documents: Sequence[Document]) -> list[Document]:
        """Leave out what an earlier run has put: a glob matches that, too. Raises NoInputError if nothing is left."""
        ours = [self._uri, f"{self._uri}.meta.json", f"{self._uri}.report.json"] if self._uri else []
        remaining = [document for document in documents if document.path not in ours]
        if documents and not remaining:
            raise NoInputError("nothing to read: nothing was found but the run's own output")
        return remaining

    def publish(self) -> None:
        """Put what is at `path` into the store. Raises OutputError, and the table stays where it is."""
        if self._uri is not None:
            self._put()
            self._clear()

    def _make_folder(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(
                f"{self.path.parent} cannot be made ({error.strerror}): --work-dir names another place"
            ) from error

    def _put(self) -> None:
        assert self._uri is not None
        try:
            for file in (facts_path(self.path), report_path(self.path), self.path):
                if file.exists():
                    put(file, self._uri + file.name.removeprefix(self.path.name))
        except PageError as error:
            raise OutputError(
                f"{error}. The table is made: it is {self.path}, and the same command puts it to {self._uri}"
            ) from error

    def _clear(self) -> None:
        for file in (facts_path(self.path), report_path(self.path), self.path):
            file.unlink(missing_ok=True)


def _folder(uri: str, work_dir: str | os.PathLike[str] | None) -> Path:
    """A folder for this output alone; the same in every run."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "batchocr")
    digest = hashlib.sha256(str(parse_uri(uri)).encode()).hexdigest()
    return Path(work_dir or cache) / digest[:16]


def _name(uri: str) -> str:
    name = parse_uri(uri).key.rpartition("/")[2]
    if not name.lower().endswith(TABLE_SUFFIXES):
        raise UsageError(f"the table {uri} must end in .parquet or .jsonl")
    return name


def _look(uri: str) -> StoredObject | None:
    """The object; None if there is none. Raises OutputError if its bucket is not there, or cannot be asked."""
    try:
        return look_at(uri)
    except NotFoundError as error:
        if "no bucket" in str(error):
            raise OutputError(f"cannot write {uri}: {error}") from error
        return None
    except PageError as error:
        raise OutputError(f"cannot write {uri}: {error}") from error


def fetch_file(uri: str, path: Path, *, required: bool = True) -> None:
    """Fetch an object into a file. Raises OutputError; none for an object that is missing, if it is not required."""
    try:
        with atomic_file(path) as file:
            fetch(uri, file, timeout_s=_FETCH_S)
    except NotFoundError as error:
        if required:
            raise OutputError(str(error)) from error
    except PageError as error:
        raise OutputError(f"{uri} cannot be fetched: {error}") from error
