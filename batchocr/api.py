"""The Python interface: `run`, `process`, and `Ocr`, which keeps the model loaded between calls."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from batchocr.config import Config, make_config
from batchocr.data import Document, PageResult
from batchocr.input.sources import find_documents
from batchocr.job import write_output
from batchocr.ordered import read_in_order
from batchocr.output.table import table_for
from batchocr.progress import Progress
from batchocr.report import Report
from batchocr.session import Session
from batchocr.stop import StopSwitch

Inputs = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


class Ocr:
    """A loaded model. Its options are those of the command line, with underscores for dashes, and `recipe`.

    Serves one loop or one run at a time. Raises UsageError, ModelError.
    """

    def __init__(self, **options: object) -> None:
        self._session = Session(_config(options))
        self._session.load()

    def process(self, inputs: Inputs) -> Iterator[PageResult]:
        """Read documents; yields one row per page, in input order. See `process` below."""
        return read_in_order(self._session, list_documents(self._session.config, inputs))

    def run(self, inputs: Inputs, *, out: str | os.PathLike[str]) -> Report:
        """Read documents into one table. See `run` below."""
        started_s = time.perf_counter()
        config = self._session.config
        documents = list_documents(config, inputs)
        return write_output(
            self._session, documents, Path(out), StopSwitch(config.stop_after), None, started_s=started_s
        )

    def close(self) -> None:
        """Release the model and its memory."""
        self._session.unload()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def process(inputs: Inputs, **options: object) -> Iterator[PageResult]:
    """Read documents; yields a PageResult per page, in input order.

    inputs: one path or several: files, folders, globs, `@list.txt`. Keeps reading while the caller handles a page; ends
    its workers if the loop is left early. Whatever fails becomes a row with a status, not an exception. Options that
    concern the output file have no effect. Raises UsageError, NoInputError, ModelError, EngineError.
    """
    with Ocr(**options) as ocr:
        yield from ocr.process(inputs)


def run(inputs: Inputs, *, out: str | os.PathLike[str], **options: object) -> Report:
    """Read documents into a Parquet or JSON Lines table, as the command does, and return its report.

    Continues an unfinished output of the same settings. Raises UsageError, NoInputError, ModelError, OutputError,
    EngineError; failures of single pages are in the table and counted in the report.
    """
    config = _config(options)
    return run_with(config, inputs, out=Path(out), stop=StopSwitch(config.stop_after), progress=None)


def run_with(config: Config, inputs: Inputs, *, out: Path, stop: StopSwitch, progress: Progress | None) -> Report:
    """`run` for a Config, with a switch that stops it and a Progress to report to."""
    started_s = time.perf_counter()
    table_for(out)
    documents = list_documents(config, inputs)
    session = Session(config)
    try:
        return write_output(session, documents, out, stop, progress, started_s=started_s)
    finally:
        session.unload()


def _config(options: dict[str, object]) -> Config:
    recipe = options.pop("recipe", None)
    return make_config(options, None if recipe is None else str(recipe))


def list_documents(config: Config, inputs: Inputs) -> list[Document]:
    """The documents of the inputs that belong to this shard. Raises NoInputError."""
    paths = [inputs] if isinstance(inputs, str | os.PathLike) else inputs
    return find_documents(
        [os.fspath(path) for path in paths],
        stdin=sys.stdin,
        follow_symlinks=config.follow_symlinks,
        shard=config.shard,
    )
