"""The actor: a model that stays loaded on one GPU, or on the CPUs of a node, and reads one item after the other.

It opens, renders and reads documents on its node, with workers and an engine of its own: no pixels pass through Ray.
What it has read it puts where the table is made, as a table of its own of which nobody knows but the driver, and the
next run. This module does not import Ray.
"""

from __future__ import annotations

import logging
import platform
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from batchocr.config import Config
from batchocr.data import Document, Status, valid_text
from batchocr.errors import NoInputError, OutputError
from batchocr.job.output_job import read_into_table
from batchocr.job.session import Session, worker_memory_bytes
from batchocr.job.stats.report import Report, Setting
from batchocr.job.stop import StopSwitch
from batchocr.option_values import parse_page_spec
from batchocr.pages.input.sources import Found
from batchocr.storage.listing import Documents
from batchocr.tables import parquet
from batchocr.tables.known import KnownRow, KnownRows
from batchocr.tables.output import Output
from batchocr.tables.schema import RunMetadata
from batchocr.tables.target import Target

_MOST_WORKERS = 16


@dataclass(frozen=True, slots=True)
class Loaded:
    """A reader that is ready."""

    node: str
    metadata: RunMetadata
    """The metadata of the actor's rows: what they depend on."""
    settings: dict[str, Setting]


@dataclass(frozen=True, slots=True)
class ItemRead:
    """What was read of an item."""

    name: str = ""
    """The name of what was put; empty if there are no rows."""
    report: Report | None = None
    rows: Counter[Status] = field(default_factory=Counter)
    """How many rows have each status."""
    rest: tuple[Document, ...] = ()
    """What is left, as there are more pages than were to be read."""
    row: KnownRow | None = None
    """A row that was read of the first document of `rest`, if that was begun."""
    said: Sequence[tuple[str, Mapping[str, Any]]] = ()
    """The warnings that the actor would log, each with the fields of its event."""


class Reader:
    """Reads items. roots: as in Found. cpus: how many cores of its node are for it, and per_node: how many readers
    share its memory. max_pages: how many to read of an item. begun_in: the metadata of rows that are there."""

    def __init__(
        self,
        config: Config,
        target: Target,
        roots: tuple[str, ...],
        *,
        cpus: int,
        per_node: int,
        max_pages: int,
        begun_in: RunMetadata | None,
    ) -> None:
        workers = config.workers or max(1, min(_MOST_WORKERS, cpus // 2))
        memory_bytes = worker_memory_bytes(replace(config, workers=workers * per_node))
        config = replace(config, workers=workers, worker_memory=memory_bytes)
        self._config = replace(config, report=None, overwrite=False, resume=True, limit=max_pages)
        self._max_pages = max_pages
        self._target = target
        self._roots = roots
        self._begun_in = begun_in
        self._session: Session | None = None

    def load(self) -> Loaded:
        """Load the model. Raises UsageError, ModelError, EngineError, OutputError."""
        try:
            self._target.require_seen()
        except OutputError as error:
            raise OutputError(f"on {platform.node()}: {error}") from error
        self._session = Session(self._config, begun_in=self._begun_in)
        self._session.load()
        return Loaded(platform.node(), self._session.metadata, self._session.settings())

    def read(self, documents: Sequence[Document]) -> ItemRead:
        """Read documents, and put what was read where the table is made; that is built on a local disk. Raises
        EngineError if the engine is gone for good, OutputError."""
        assert self._session is not None
        found = Found(Documents(documents), {}, self._roots)
        with tempfile.TemporaryDirectory(prefix="batchocr-") as work:
            local = Path(work, "item.parquet")
            try:
                with _listening() as said:
                    report = read_into_table(self._session, self._config, found, Output(local), StopSwitch(), None)
            except NoInputError:  # they have none of the pages
                return ItemRead()
            known = _known_rows(local)
            name = self._target.put(local)
        statuses, _ = known.counts(known.pages["page_index"] > -2)
        if known.num_rows < self._max_pages:
            return ItemRead(name, report, statuses, said=said)
        sources = [valid_text(each.source) for each in documents]
        last = max(index for index, source in enumerate(sources) if known.document_of(source) is not None)
        rows = known.rows(sources[last])
        wanted = documents[last].chosen(parse_page_spec(self._config.pages).pages(rows[0].page_count or 0))
        if missing := frozenset(wanted) - {row.page_index for row in rows}:
            begun = replace(documents[last], pages=missing)
            return ItemRead(name, report, statuses, (begun, *documents[last + 1 :]), rows[0], said)
        return ItemRead(name, report, statuses, tuple(documents[last + 1 :]), said=said)


@contextmanager
def _listening() -> Iterator[list[tuple[str, Mapping[str, Any]]]]:
    """What batchocr warns of in the block."""
    said: list[tuple[str, Mapping[str, Any]]] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: said.append((record.getMessage(), _extra(record)))  # type: ignore[method-assign]
    logging.getLogger("batchocr").addHandler(handler)
    try:
        yield said
    finally:
        logging.getLogger("batchocr").removeHandler(handler)


def _extra(record: logging.LogRecord) -> Mapping[str, Any]:
    return {name: getattr(record, name) for name in ("event", "fields") if hasattr(record, name)}


def _known_rows(local: Path) -> KnownRows:
    table = parquet.open_table(local)
    assert table is not None
    with closing(table):
        return table.columns
