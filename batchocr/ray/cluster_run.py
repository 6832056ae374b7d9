"""One run on a cluster: what `batchocr run` does with an output, but that actors read, and put what they have read
where the table is made."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Unpack

import numpy as np

from batchocr.api import Inputs, ShowProgress, config_of, find_inputs, progress_of
from batchocr.config import Config, flag_of
from batchocr.data import PageResult, counted
from batchocr.errors import OutputError, UsageError
from batchocr.job.document_run import RowKey
from batchocr.job.output_job import log_start, make_table
from batchocr.job.progress import Progress, RunProgress
from batchocr.job.row_plan import RowPlan
from batchocr.job.session import require_usable, settings_without_model
from batchocr.job.stats.ledger import Ledger
from batchocr.job.stats.report import facts_of, figures_of
from batchocr.job.stop import StopSwitch, finish_on_interrupt
from batchocr.job.unread import find_unread, older_versions, take_as_read
from batchocr.machine import own_version, return_freed_memory
from batchocr.options import Options
from batchocr.pages.input.sources import Found
from batchocr.ray.cluster import PAGES_PER_TASK, Cluster, load_ray
from batchocr.ray.driver import Driver
from batchocr.ray.items import Item, changed_rows
from batchocr.ray.reader import ItemRead
from batchocr.ray.report import ClusterReport, name_bottleneck
from batchocr.storage.uris import is_uri
from batchocr.tables.earlier import metadata_of_rows
from batchocr.tables.files import TABLE_SUFFIXES, journal_path, without_output
from batchocr.tables.journal import Journal
from batchocr.tables.output import Output
from batchocr.tables.parts import PartsTable
from batchocr.tables.remote_output import output_at
from batchocr.tables.schema import RunMetadata, fingerprint_of_settings
from batchocr.tables.target import Target

_OF_MODEL = ("model_fingerprint", "dtype", "layout", "layout_rules")
"""Settings that only an actor knows, once it has loaded the model."""


def run(
    inputs: Inputs,
    *,
    out: str | os.PathLike[str],
    address: str | None = None,
    pages_per_task: int = PAGES_PER_TASK,
    actors: int | None = None,
    stop: StopSwitch | None = None,
    progress: ShowProgress | None = None,
    **options: Unpack[Options],
) -> ClusterReport:
    """Read documents into a folder of parts, with an actor for each GPU of a Ray cluster, and return the report.

    inputs, out: paths that all machines see, or URIs in an object store. address: of the cluster, `auto` for the one
    that this machine is of; None starts Ray on this machine alone, unless the program is connected already.
    pages_per_task: how many pages an actor reads at a time, and reads again if it is lost. actors: how many, instead of
    one for each GPU, or for each node if there are none. The others are those of `batchocr.run`, whose table it is.

    The same call again continues. Raises as `batchocr.run`, and UsageError if Ray is not installed.
    """
    config = config_of(options)
    cluster = Cluster(address, pages_per_task, actors)
    with finish_on_interrupt(StopSwitch(config.stop_after, stop)) as switch:
        return run_with(config, inputs, cluster, out=os.fspath(out), stop=switch, progress=progress_of(progress))


def run_with(
    config: Config, inputs: Inputs, cluster: Cluster, *, out: str, stop: StopSwitch, progress: Progress | None
) -> ClusterReport:
    """`run` for a Config, with a switch that stops it and a Progress to report to.

    Raises NoInputError, UsageError, OutputError, ModelError, EngineError.
    """
    config = _for_actors(config)
    load_ray()
    if out.lower().endswith(TABLE_SUFFIXES):
        raise UsageError(f"--out {out}: a cluster makes a folder of parts: name a folder, or a prefix in a store")
    output = output_at(f"{out.rstrip('/')}/", config.work_dir)
    with closing(output):
        output.prepare(overwrite=config.overwrite)
        found = find_inputs(config, inputs, output.path if journal_path(output.path).exists() else output.table)
        if any(document.held is not None for document in found.documents):
            raise UsageError("documents in memory cannot be read on a cluster: put them where all machines see them")
        found = replace(found, documents=without_output(found.documents, output.own().__contains__))
        begun_in = None if config.overwrite else metadata_of_rows(output.path, output.table, output.items)

        def begun(journal: Journal, documents: Found) -> ClusterRun:
            output.announce()  # now no other run may write here
            return ClusterRun(config, documents, cluster, output, journal, stop)

        return make_table(_metadata(config, begun_in), config, found, output, begun, progress)


def _for_actors(config: Config) -> Config:
    """The options with paths that hold in any working directory: actors have one of their own. Raises UsageError."""
    if config.limit is not None:
        raise UsageError(f"{flag_of('limit')} is of a run on one machine, which knows what comes before a page")
    if os.path.isdir(config.model):
        config = replace(config, model=os.path.abspath(config.model))
    require_usable(config)
    return config if config.cache is None else replace(config, cache=os.path.abspath(config.cache))


def _metadata(config: Config, begun_in: RunMetadata | None) -> RunMetadata:
    """The metadata of this run's rows, which have to fit with those that are there; as good as nothing if there are
    none."""
    if begun_in is None:
        return RunMetadata(own_version(), config.model, "", "", {})
    of_model = {name: value for name, value in begun_in.settings.items() if name in _OF_MODEL}
    protocol = begun_in.settings.get("protocol", "").partition(" ")[0]
    settings = of_model | settings_without_model(config, protocol)
    version, fingerprint = own_version(), fingerprint_of_settings(settings)
    return replace(begun_in, batchocr_version=version, settings=settings, settings_fingerprint=fingerprint)


class ClusterRun:
    """What reads the documents of an output on a cluster."""

    def __init__(
        self, config: Config, found: Found, cluster: Cluster, output: Output, journal: Journal, stop: StopSwitch
    ) -> None:
        return_freed_memory()
        self.stop = stop
        self.plan = RowPlan(found.documents, config.pages, journal, limit=None, retry_failed=config.retry_failed)
        self.ledger = Ledger(len(found.documents), found.skipped, rates=config)
        self._config = config
        self._found = found
        self._output = output
        self._journal = journal
        self._target = Target(
            output.name if is_uri(output.name) else str(output.path.absolute()), output.next_generation
        )
        self._driver = Driver(
            config,
            cluster,
            self._target,
            found.roots,
            metadata=journal.metadata if journal.own.settings_fingerprint else None,
            on_ready=self._begin,
            on_read=self._take,
        )
        self._is_settled = False
        """Whether the plan is that of all rows that the table is to have."""
        self._num_before = self._num_read = self._num_items = 0
        """Rows that earlier runs have read, rows that this one has read, and the items that these were in."""
        self._names: list[str] = []
        """The names of what actors have put and was not taken in."""
        self._bottlenecks: Counter[str] = Counter()
        self._planned_s = 0.0

    def results(self, tick: Callable[[], None]) -> Iterator[tuple[RowKey, PageResult]]:
        """Have everything read; yields nothing, as actors put the rows where the table is made."""
        new, sizes, some = find_unread(self.plan, self._config)
        self._num_before, self._planned_s = self.plan.num_ended, time.monotonic()
        self.stop.phase = "reading"
        items = [*self._driver.items.of(new, sizes), *self._driver.items.of_some(some)]
        if items and self._read(items, tick):
            older = older_versions(self.plan, self._journal)
            # All of each, as there may be fewer pages now.
            items = self._driver.items.of_each(self.plan.documents[index] for index in older)
            if not items or self._read(items, tick):
                if rows := [*changed_rows(older_versions(self.plan, self._journal).values())]:
                    self._names.append(self._target.put_rows(rows, self._journal.metadata))
                    self._take_in()
                take_as_read(self.plan, self._journal)
                self._is_settled = True
        yield from ()

    def _read(self, items: Sequence[Item], tick: Callable[[], None]) -> bool:
        """Have items read; returns whether all were, and the plan is that of what there is then."""
        try:
            are_read = self._driver.read(items, self.stop, tick)
        finally:
            ended_s = time.monotonic()
            ready_s = self._driver.first_ready_s or ended_s
            self.ledger.start_up_s, self.ledger.work_s = ready_s - self._planned_s, ended_s - ready_s
            self._driver.close()  # what follows needs no GPU
        if are_read:
            self._take_in()
        return are_read

    def _take_in(self) -> None:
        self._output.take_in(self._names)
        self._journal.take_in(self._output.items)
        earlier = self._journal.earlier
        taken = earlier.items if isinstance(earlier, PartsTable) else ()
        if lost := {*self._names}.difference(taken):
            raise OutputError(
                f"{counted(len(lost), 'file')} of what actors have put into {self._target.out} cannot be read any "
                f"more, {min(lost)} among them: the same command reads again what was in there"
            )
        self._names = []
        self.plan = RowPlan(self._found.documents, self._config.pages, self._journal, limit=None, retry_failed=False)

    def _begin(self, metadata: RunMetadata) -> None:
        """Begin to write, as the first actor is ready."""
        self._journal.begin(metadata)
        if self._config.overwrite:
            self._output.start_over()
        log_start(self._found, self._output, metadata)

    def _take(self, read: ItemRead) -> None:
        """Count what was read."""
        if read.name:
            self._names.append(read.name)
            self._journal.keep()
        self._num_items, self._num_read = self._num_items + 1, self._num_read + read.rows.total()
        self.ledger.by_status += read.rows
        self.ledger.found += read.rows.total()
        if read.report is not None:
            self.ledger.errors += Counter(read.report.errors)
            self.ledger.pages_read += read.report.pages_read
            self._bottlenecks[read.report.bottleneck] += read.report.pages_read

    def progress(self) -> RunProgress:
        """How far the run is: of a document that nobody has opened, as if it had one page."""
        status, left = self.ledger.by_status, self._driver.num_left
        done = self._num_before + self._num_read
        return RunProgress(
            done, done + left, not left, status["failed"], self.ledger.pages_read, degraded=status["degraded"]
        )

    def close(self) -> None:
        """End all actors."""
        self._driver.close()
        self.stop.phase = "finishing"

    def report(self, error: str | None = None) -> ClusterReport:
        """The report of a run that has ended; to be made once, after `close`. error: what ended it."""
        ledger, plan, driver = self.ledger, self.plan, self._driver
        if self._is_settled:
            ledger.found, ledger.by_status, ledger.errors = 0, Counter(), Counter()
        ledger.add_earlier(*plan.known.table.counts(plan.is_asked))
        ledger.already_done -= int(np.count_nonzero(plan.is_asked[self._journal.num_known :]))
        for index, state in plan.all_given():
            pages = state.rows if self._is_settled else state.done
            rows = [row for row in plan.known.rows(plan.documents[index].source) if row.page_index in (pages or ())]
            ledger.found += len(rows)
            for row in rows:
                ledger.add_done(row.status, row.error_kind)
                ledger.already_done -= row.place >= self._journal.num_known
        ledger.documents_not_opened = driver.num_left
        if error is not None:
            ledger.exit_reason = "failed"
        elif not plan.is_complete:
            ledger.exit_reason = "interrupted" if self.stop.reason == "interrupted" else "stopped"
        actors = tuple(driver.actor_reports)
        return ClusterReport(
            **figures_of(ledger) | {"wall_seconds": time.monotonic() - self.stop.began_s},
            error=error,
            plan_seconds=self._planned_s - self.stop.began_s,
            driver_cpu_seconds=sum(os.times()[:2]),
            items_read=self._num_items,
            items_given_up=driver.num_given_up,
            actors=actors,
            actors_lost=driver.num_lost,
            machines=tuple(driver.machines),
            settings=driver.settings,
            bottleneck=name_bottleneck(self._bottlenecks, actors),
            **facts_of(self._found.inputs, self._config, self.stop.began_s),
        )
