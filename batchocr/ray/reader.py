"""The actor: a model that stays loaded on one GPU, or on the CPUs of a node, and reads one item after the other.

It opens, renders and reads documents on its node, with workers and an engine of its own: no pixels pass through Ray.
This module does not import Ray.
"""

from __future__ import annotations

import platform
import shutil
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from batchocr.config import Config, for_call
from batchocr.data import Failure
from batchocr.errors import NoInputError, OutputError
from batchocr.job.output_job import read_into_table
from batchocr.job.session import Session, worker_memory_bytes
from batchocr.job.stats.report import Report, Setting
from batchocr.job.stop import StopSwitch
from batchocr.option_values import parse_page_spec
from batchocr.pages.input.sources import Found
from batchocr.ray.folder import OutputFolder, PartRows, read_part
from batchocr.ray.items import Item
from batchocr.storage.listing import Documents
from batchocr.tables import parquet
from batchocr.tables.atomic import writing
from batchocr.tables.output import Output
from batchocr.tables.schema import RunMetadata
from batchocr.tables.selection import selection_of

_MOST_WORKERS = 16
_PUT_AGAIN_S = (5.0, 60.0)
"""Seconds to wait before a part is written again: a store that is away for a minute should not end the run."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A reader that is ready."""

    node: str
    metadata: RunMetadata
    """What its rows depend on."""
    settings: dict[str, Setting]


@dataclass(frozen=True, slots=True)
class ItemRead:
    """An item whose part is there."""

    rows: PartRows
    report: Report | None
    """Of reading it; None if it turned out to have no row."""


class Reader:
    """Reads items. cpus: how many cores of its node are for it, and per_node: how many readers share its memory.
    begun_in: the metadata of the rows of earlier runs."""

    def __init__(
        self,
        config: Config,
        folder: OutputFolder,
        roots: tuple[str, ...],
        *,
        cpus: int,
        per_node: int,
        begun_in: RunMetadata | None,
    ) -> None:
        workers = config.workers or max(1, min(_MOST_WORKERS, cpus // 2))
        memory_bytes = worker_memory_bytes(replace(config, workers=workers * per_node))
        self._config = replace(config, workers=workers, worker_memory=memory_bytes)
        self._folder = folder
        self._roots = roots
        self._begun_in = begun_in
        self._session: Session | None = None

    def load(self) -> Loaded:
        """Load the model. Raises UsageError, ModelError, EngineError, OutputError."""
        try:
            self._folder.require_seen()
        except OutputError as error:
            raise OutputError(f"on {platform.node()}: {error}") from error
        self._session = Session(self._config, begun_in=self._begun_in)
        self._session.load()
        return Loaded(platform.node(), self._session.metadata, self._session.settings())

    def read(self, item: Item, *, again: bool) -> ItemRead:
        """Read an item and put its part into the folder. again: read only what failed in the part that is there.

        The part is built on a local disk. Raises EngineError if the engine is gone for good, OutputError.
        """
        assert self._session is not None
        config = for_call(self._config, {"report": None, "overwrite": False})
        stop = StopSwitch()
        documents = [each.document for each in item.documents]
        if item.pages != self._config.pages:  # a piece of one document; its part says what the run was asked for
            [planned] = item.documents
            pages = parse_page_spec(item.pages).pages(planned.page_count or 0)
            documents = [replace(planned.document, pages=set(pages))]
        found = Found(Documents(documents), {}, self._roots)
        report: Report | None = None
        with tempfile.TemporaryDirectory(prefix="batchocr-") as work:
            local = Path(work) / item.name
            if again:
                with self._folder.files.local(item.name) as part, writing(local):
                    shutil.copyfile(part, local)
            try:
                report = read_into_table(self._session, config, found, Output(local), stop, None)
            except NoInputError:  # none of the pages exists, which could not be known before
                parquet.write(local, [], replace(self._session.metadata, selection=selection_of(config)))
            if item.pages != self._config.pages:
                _name_pages(item, local)
            rows, _ = read_part(local, self._session.metadata, item.name)
            self._put(local, item.name)
        return ItemRead(rows, report)

    def _put(self, local: Path, name: str) -> None:
        for wait_s in _PUT_AGAIN_S:
            with suppress(OutputError):
                self._folder.files.put(local, name)
                return
            time.sleep(wait_s)
        self._folder.files.put(local, name)


def _name_pages(item: Item, part: Path) -> None:
    """Replace the one row of a divided document that can no longer be opened by a row for each of the item's pages."""
    metadata, row = parquet.read_metadata(part), next(parquet.read_rows(part), None)
    if metadata is not None and row is not None and row.page_index is None and row.error_kind is not None:
        failure = Failure(row.error_kind, row.error_message or "")
        parquet.write(part, item.failed_rows(failure, attempts=row.attempts), metadata)
