"""The output of a cluster: a folder, or a prefix in a store, with a part of the table for each item, and `run.json`.

Parts are listed, read and put here, and nowhere else. What is put appears whole.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import TypeAdapter, ValidationError

from batchocr.data import ErrorKind, Status, counted
from batchocr.errors import NotFoundError, OutputError, OutputMismatchError, PageError, UsageError, of_store
from batchocr.ray.items import ClusterPlan, Item
from batchocr.storage.objects import list_below, remove
from batchocr.storage.uris import is_uri, parse_uri
from batchocr.tables.atomic import atomic_file, reading, writing
from batchocr.tables.files import CLUSTER_PLAN_NAME, CLUSTER_REPORT_NAME, is_cluster_part
from batchocr.tables.remote_output import put_file
from batchocr.tables.schema import RunMetadata, decode_metadata
from batchocr.tables.stored import fetch_file

logger = logging.getLogger(__name__)

_AT_ONCE = 16
"""How many parts are looked into at the same time: a store, or a file system on the network, is slow to answer."""


_PLAN: TypeAdapter[ClusterPlan] = TypeAdapter(ClusterPlan)
_NOT_STORED = {"items": {"__all__": {"documents": {"__all__": {"path"}}}}}


class Folder:
    """The files of a folder that all machines see; it is made if need be. All methods raise OutputError."""

    def __init__(self, path: str) -> None:
        self._path = Path(os.path.abspath(path))

    def __str__(self) -> str:
        return str(self._path)

    def names(self) -> set[str]:
        with reading(self._path):
            return set(os.listdir(self._path)) if self._path.exists() else set()

    @contextmanager
    def local(self, name: str) -> Iterator[Path]:
        """The path of the file itself."""
        with reading(self._path / name), open(self._path / name, "rb"):
            yield self._path / name

    def put(self, local: Path, name: str) -> None:
        with writing(self._path):
            self._path.mkdir(exist_ok=True)
        with open(local, "rb") as source, atomic_file(self._path / name) as target:
            shutil.copyfileobj(source, target)

    def remove(self, name: str) -> None:
        with writing(self._path / name):
            (self._path / name).unlink(missing_ok=True)


class Prefix:
    """The objects directly below a prefix in a store. All methods raise OutputError."""

    def __init__(self, uri: str) -> None:
        self._uri = str(parse_uri(uri)).rstrip("/")

    def __str__(self) -> str:
        return f"{self._uri}/"

    def names(self) -> set[str]:
        try:
            return {found.uri.rpartition("/")[2] for found in list_below(self._uri, recursive=False)}
        except NotFoundError:  # there may be no bucket either, which `put` reports
            return set()
        except PageError as error:
            raise of_store(error, str(error)) from error

    @contextmanager
    def local(self, name: str) -> Iterator[Path]:
        """A copy of the object."""
        with tempfile.TemporaryDirectory(prefix="batchocr-") as folder:
            fetch_file(f"{self}{name}", path := Path(folder, name))
            yield path

    def put(self, local: Path, name: str) -> None:
        put_file(local, f"{self}{name}")

    def remove(self, name: str) -> None:
        try:
            remove(f"{self}{name}")
        except PageError as error:
            raise of_store(error, str(error)) from error


@dataclass(frozen=True, slots=True)
class PartRows:
    """How many rows a part has."""

    by_status: Counter[Status]
    """All rows, by status."""
    errors: Counter[ErrorKind]
    """Those in which something is said to be wrong, by what."""
    by_document: Counter[tuple[str, Status]] = field(default_factory=Counter)
    """All rows, by `source` and status."""
    outcomes: frozenset[tuple[Status, ErrorKind | None]] = frozenset()
    """Each status that a row has, with what is wrong there."""


class OutputFolder:
    """The folder of a run, or the prefix in a store, as the driver and all actors see it under the same name. All
    methods raise OutputError."""

    def __init__(self, out: str) -> None:
        """Raises UsageError."""
        if not out:
            raise UsageError("--out is empty: say where to write")
        self.files = Prefix(out) if is_uri(out) else Folder(out)
        self._run = secrets.token_hex(8)

    def __str__(self) -> str:
        return str(self.files)

    def require_of_cluster(self) -> None:
        """Raise OutputMismatchError if there is a table, but not of a run on a cluster."""
        names = self.files.names()
        if CLUSTER_PLAN_NAME not in names and (others := sorted(name for name in names if name.endswith(".parquet"))):
            raise OutputMismatchError(
                f"{self} holds {others[0]} and no {CLUSTER_PLAN_NAME}: it is not of a run on a cluster; choose another "
                "--out"
            )

    def plan(self) -> ClusterPlan | None:
        """The plan of an earlier run; None if there was none. Raises OutputMismatchError if it is damaged."""
        if CLUSTER_PLAN_NAME not in self.files.names():
            return None
        with self.files.local(CLUSTER_PLAN_NAME) as local:
            try:
                return _PLAN.validate_json(local.read_bytes())
            except ValidationError as error:
                raise OutputMismatchError(
                    f"{CLUSTER_PLAN_NAME} in {self} is damaged, or not of this version of batchocr: restore it, choose "
                    "another --out, or --overwrite"
                ) from error

    def try_to_put(self, *, afresh: bool = False) -> None:
        """Write the plan again, or an empty one, to know before the work whether parts can be written. afresh: as the
        plan of this run, so that another run in this folder ends."""
        try:
            plan = self.plan()
        except OutputMismatchError:
            if not afresh:
                raise
            plan = None
        if plan is None:
            plan = ClusterPlan(self._run, None, None, ())
        self._put_plan(replace(plan, run=self._run) if afresh else plan)

    def is_own(self, path: str) -> bool:
        """Whether a run has put the file at this path, or of this URI."""
        folder, _, name = (path if is_uri(path) else os.path.abspath(path)).rpartition("/")
        return folder == str(self).rstrip("/") and (
            is_cluster_part(name) or name in (CLUSTER_PLAN_NAME, CLUSTER_REPORT_NAME)
        )

    def begin(self, plan: ClusterPlan, *, afresh: bool = False) -> None:
        """Record the plan as that of this run, and remove parts of other items; afresh: all parts. From now on the
        folder belongs to this run, and another run in it ends."""
        if afresh:
            self._remove_parts(but=())
            self.files.remove(CLUSTER_REPORT_NAME)
        self._put_plan(replace(plan, run=self._run))
        self._remove_parts(but=() if afresh else plan.items)  # the run before may have put one meanwhile

    def end(self, items: Iterable[Item]) -> None:
        """Remove parts of other items, which an earlier run may have written since this one began.
        Raises OutputError if it is no longer this run's."""
        self.require_own()
        self._remove_parts(but=items)

    def require_seen(self) -> None:
        """Raise OutputError unless this machine sees the folder in which the driver has put the plan."""
        if CLUSTER_PLAN_NAME not in self.files.names():
            raise OutputError(f"{CLUSTER_PLAN_NAME} is not in {self}: all machines need to see the same folder")

    def require_own(self) -> None:
        """Raise OutputError if another run has begun here since this one did: the two would remove each other's
        parts. A folder that does not answer is no reason to end: parts may be put when it does."""
        try:
            plan = self.plan()
        except OutputMismatchError:
            plan = None
        except OutputError as error:
            logger.warning("%s", error)
            return
        if plan is None or plan.run != self._run:
            raise OutputError(f"another run has begun to write into {self}: this one ends; what it has read is there")

    def rows_of(self, items: Iterable[Item], metadata: RunMetadata) -> dict[str, PartRows]:
        """What the parts of these items hold, by name; without parts that are not there, are damaged as far as they are
        read, or hold other documents. Raises OutputMismatchError if one is of other settings than this metadata."""
        names = self.files.names()
        there = [item for item in items if item.name in names]
        with ThreadPoolExecutor(_AT_ONCE) as looking:
            found = zip(there, looking.map(partial(self._rows, metadata=metadata), there), strict=True)
            return {item.name: rows for item, rows in found if rows is not None}

    def _rows(self, item: Item, metadata: RunMetadata) -> PartRows | None:
        name = f"{item.name} in {self}"
        rows, keys = None, set[tuple[str, int | None]]()
        with self.files.local(item.name) as part, suppress(pa.ArrowException, OSError, ValueError):
            rows, keys = read_part(part, metadata, name)
        if rows is not None and item.is_held_by(keys):
            return rows
        logger.warning("%s is damaged, or of other documents, and is read again", name)
        return None

    def put_text(self, text: str, name: str) -> None:
        """Put a file of this text in its place, whole."""
        with tempfile.TemporaryDirectory(prefix="batchocr-") as folder:
            (local := Path(folder, name)).write_text(text, encoding="utf-8")
            self.files.put(local, name)

    def _put_plan(self, plan: ClusterPlan) -> None:
        self.put_text(_PLAN.dump_json(plan, exclude=_NOT_STORED, by_alias=True).decode(), CLUSTER_PLAN_NAME)

    def _remove_parts(self, *, but: Iterable[Item]) -> None:
        """Remove the parts of other items."""
        kept = {item.name for item in but}
        others = [name for name in self.files.names() if is_cluster_part(name) and name not in kept]
        for name in others:
            self.files.remove(name)
        if others:
            logger.info("removed %s of other runs or of documents that have changed", counted(len(others), "part"))


def read_part(part: Path, metadata: RunMetadata, name: str) -> tuple[PartRows, set[tuple[str, int | None]]]:
    """What a part holds, and the source and page of each row; of a file of another program, none. Only its footer and a
    few columns are read. Raises OutputMismatchError if it is of other settings than this metadata, and what Arrow
    raises if these are damaged."""
    with pq.ParquetFile(part, page_checksum_verification=True) as file:
        found = decode_metadata(file.schema_arrow.metadata)
        columns = file.read(columns=["source", "page_index", "status", "error_kind"]).columns
    if found is not None and found.settings_fingerprint != metadata.settings_fingerprint:
        raise OutputMismatchError(f"{name} was made with other settings: choose another --out")
    sources, pages, statuses, errors = (column.to_pylist() for column in columns)
    kinds = Counter(kind for kind in errors if kind is not None)
    outcomes = frozenset(zip(statuses, errors, strict=True))
    rows = PartRows(Counter(statuses), kinds, Counter(zip(sources, statuses, strict=True)), outcomes)
    return rows, set(zip(sources, pages, strict=True)) if found is not None else set()
