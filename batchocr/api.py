"""The Python interface: `run`, `process`, and `Ocr`, which keeps the model loaded between calls."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, Unpack

from batchocr.config import Config, for_call, make_config
from batchocr.data import Document, PageResult
from batchocr.errors import NoInputError, UsageError
from batchocr.job.ordered import read_in_order
from batchocr.job.output_job import read_into_table
from batchocr.job.progress import Progress, ProgressCallback, ProgressLog, RunProgress
from batchocr.job.session import Session, require_usable
from batchocr.job.stats.report import Report
from batchocr.job.stop import StopSwitch, finish_on_interrupt
from batchocr.options import CallOptions, Options
from batchocr.pages.input.in_memory import Content, hold
from batchocr.pages.input.sources import Found
from batchocr.tables.earlier import metadata_of_rows
from batchocr.tables.files import journal_path, without_output
from batchocr.tables.page_list import documents_asked_for
from batchocr.tables.remote_output import output_at

Input = str | os.PathLike[str] | tuple[str, Content]
"""A path, or a document in memory under the name that becomes its `source`."""
Inputs = Input | Iterable[Input]

ShowProgress = Callable[[RunProgress], object]


class Ocr:
    """A loaded model to read documents with. Its options are those of the command line, with underscores for dashes,
    and `recipe`.

    The model is in engine processes, one for each device. They end with `close`, and with this process however it ends.
    A fork of this process leaves them alone and may make an Ocr of its own.

    CallOptions, such as `pages`, `password`, `overwrite` and `limit`, can be chosen anew for each call; the others are
    fixed. Serves one loop or one run at a time. Raises UsageError, ModelError, EngineError.
    """

    def __init__(self, **options: Unpack[Options]) -> None:
        self._session = Session(config_of(options))
        self._session.load()

    def process(self, inputs: Inputs, **options: Unpack[CallOptions]) -> Iterator[PageResult]:
        """Read documents; yields one row per page, in input order. See `process` below."""
        self._session.require_open()
        config = for_call(self._session.config, options)
        return read_in_order(self._session.lent, config, find_inputs(config, inputs))

    def run(
        self,
        inputs: Inputs,
        *,
        out: str | os.PathLike[str],
        stop: StopSwitch | None = None,
        progress: ShowProgress | None = None,
        **options: Unpack[CallOptions],
    ) -> Report:
        """Read documents into one table. See `run` below."""
        config = for_call(self._session.config, options)
        with self._session.lent() as session, finish_on_interrupt(StopSwitch(config.stop_after, stop)) as switch:
            return run_with(config, inputs, out=out, stop=switch, progress=progress_of(progress), session=session)

    def close(self) -> None:
        """End the engines, which hold the model, once a loop that is still open has ended. Every call after this raises
        UsageError."""
        self._session.close()

    def __enter__(self) -> Self:
        self._session.require_open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def process(inputs: Inputs, **options: Unpack[Options]) -> Iterator[PageResult]:
    """Read documents; yields a PageResult per page, in input order.

    inputs: one or several of: files, folders, globs, `@list.txt`, and documents in memory, each as a pair of its name,
    which becomes the `source`, and its content: bytes, a file opened for reading them, or a PIL image; for example
    [("scan-1.pdf", data), ("photo", image)].

    Keeps reading while the caller handles a page; ends its workers if the loop is left early. With `stop_after` the
    loop just ends early: rows that were not read are missing. Whatever fails becomes a row with a status, not an
    exception. Options that concern the output file have no effect. The call raises UsageError and NoInputError; the
    loop, which loads the model, raises UsageError, ModelError and EngineError.
    """
    config = config_of(options)
    require_usable(config)
    return read_in_order(lambda: closing(Session(config)), config, find_inputs(config, inputs))


def run(
    inputs: Inputs,
    *,
    out: str | os.PathLike[str],
    stop: StopSwitch | None = None,
    progress: ShowProgress | None = None,
    **options: Unpack[Options],
) -> Report:
    """Read documents into a Parquet or JSON Lines table, as the command does, and return its report.

    out: a path, or a URI in an object store.

    Continues an unfinished output of the same settings. stop: once its `request` is called, from whatever thread, the
    pages in flight are finished and the run ends; the report says so. progress: called with a RunProgress whenever
    something happened, at least about twice a second, in this thread, which waits for it: it should be quick; without
    it, how far the run is goes to the logger `batchocr` at INFO, every ten seconds.

    The first Ctrl-C also lets the pages in flight finish, and a second one does not; both end in KeyboardInterrupt, and
    the same call later continues. That is so in the main thread, unless the program handles SIGINT itself.

    Raises UsageError, NoInputError, ModelError, OutputError, OutputMismatchError, EngineError; failures of single pages
    are in the table and counted in the report, whose `exit_code` is that of the command. An engine that fails is
    replaced; EngineError means that none is left.
    """
    config = config_of(options)
    with finish_on_interrupt(StopSwitch(config.stop_after, stop)) as switch:
        return run_with(config, inputs, out=out, stop=switch, progress=progress_of(progress))


def progress_of(show: ShowProgress | None) -> Progress:
    """What calls `show`, or logs how far the run is."""
    return ProgressLog() if show is None else ProgressCallback(show)


def run_with(
    config: Config,
    inputs: Inputs,
    *,
    out: str | os.PathLike[str],
    stop: StopSwitch,
    progress: Progress | None,
    session: Session | None = None,
) -> Report:
    """`run` for a Config, with a switch that stops it, new for this run, and a Progress to report to. session: to read
    with, in place of one for this run alone."""
    output = output_at(out, config.work_dir)
    require_usable(config)
    with closing(output):
        output.prepare(overwrite=config.overwrite)
        earlier = output.path if journal_path(output.path).exists() else output.table
        found = find_inputs(config, inputs, earlier)
        found = replace(found, documents=without_output(found.documents, output.own().__contains__))
        begun_in = None if config.overwrite else metadata_of_rows(output.path, output.table, output.items)
        with nullcontext(session) if session else closing(Session(config, begun_in=begun_in)) as reading:
            return read_into_table(reading, config, found, output, stop, progress)


def config_of(options: Options) -> Config:
    """The Config of keyword arguments; `recipe` may be one of them. Raises UsageError."""
    recipe = options.pop("recipe", None)
    return make_config(options, None if recipe is None else os.fspath(recipe))


def find_inputs(config: Config, inputs: Inputs, out: Path | None = None) -> Found:
    """What the inputs hold for this shard. out: as in `documents_asked_for`. Raises NoInputError, UsageError,
    OutputError."""
    given: Any = inputs
    is_one = not isinstance(given, Iterable) or isinstance(given, str | bytes | os.PathLike) or _is_named(given)
    asked = [_as_input(each) for each in ([given] if is_one else given)]
    try:
        found = documents_asked_for(asked, config, out)
    except (NoInputError, UsageError) as error:
        raise type(error)(f"{error}{_hint(given, asked, out)}") from error
    here = os.getcwd()
    if not os.path.isdir(here):  # a folder above is closed to this user: only relative paths lead here
        return found
    return replace(found, documents=found.documents.below(os.path.join(here, "")))


def _hint(given: Any, asked: Sequence[str | Document], out: Path | None) -> str:
    """What else to say of INPUTs of which nothing was found. asked: the INPUTs one by one."""
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], str):
        return "; if a pair is a name and its document, the content must be bytes"
    with suppress(OSError):  # the current folder is gone
        known = {*earlier.input_roots, *earlier.containers} if out and (earlier := metadata_of_rows(out)) else set()
        absent = [each for each in asked if isinstance(each, str) and not os.path.isfile(each)]
        if not known.isdisjoint([*absent, *map(os.path.abspath, absent)]):
            return "; rows of the table came from there, and are kept: is it mounted?"
    return ""


def _as_input(given: Any) -> str | Document:
    """A path, or the document in memory. Raises UsageError."""
    if isinstance(given, str):
        return given
    if isinstance(given, os.PathLike):
        path = os.fspath(given)
        return f"./{path}" if path == "-" or path.startswith("@") else path  # a Path is no list
    if _is_named(given):
        return hold(*given)
    raise UsageError(
        "an input is a path, or a pair of a name and a document in memory (bytes, a binary file or a PIL image), "
        f'as in ("page", image), not {type(given).__name__}'
    )


def _is_named(given: Any) -> bool:
    """Whether what was given is a document in memory: a pair of a name and a content. A tuple of two paths is not."""
    is_pair = isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], str)
    return is_pair and not isinstance(given[1], str | os.PathLike | tuple)
