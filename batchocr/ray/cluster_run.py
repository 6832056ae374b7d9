"""One run on a cluster from start to finish: its plan, its parts, its report."""

from __future__ import annotations

import logging
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Unpack

from batchocr.api import Inputs, ShowProgress, config_of, find_inputs, progress_of
from batchocr.config import Config, flag_of
from batchocr.data import counted, valid_text
from batchocr.errors import ExitCode, NoInputError, OutputMismatchError, UsageError
from batchocr.job.progress import Progress, event
from batchocr.job.session import require_usable, settings_without_model
from batchocr.job.stats.ledger import ExitReason
from batchocr.job.stats.report import Items, facts_of, require_place
from batchocr.job.stop import StopSwitch, finish_on_interrupt
from batchocr.machine import own_version
from batchocr.options import Options
from batchocr.pages.input.sources import Found
from batchocr.ray.cluster import PAGES_PER_TASK, Cluster, joined, load_ray
from batchocr.ray.driver import Driver
from batchocr.ray.folder import OutputFolder
from batchocr.ray.items import ClusterPlan, plan_items
from batchocr.ray.report import ClusterReport, Parts, name_bottleneck
from batchocr.storage.uris import is_uri
from batchocr.tables.atomic import atomic_file
from batchocr.tables.files import CLUSTER_REPORT_NAME, without_output
from batchocr.tables.schema import RunMetadata, fingerprint_of_settings, require_same_settings

logger = logging.getLogger(__name__)

_OF_ONE_MACHINE = ("limit", "only", "resume", "max_doubtful_rate")
"""Options that need what only a run on one machine has: an order in which pages end, single pages, a journal, and what
all rows say."""

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
    pages_per_task: about how many pages an actor reads at a time, and reads again if it is lost. actors: how many,
    instead of one for each GPU, or for each node if there are none. The others are those of `batchocr.run`.

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
    started_s = time.perf_counter()
    folder = OutputFolder(out)
    config = _for_actors(config)
    load_ray()
    found = find_inputs(config, inputs)
    if any(document.held is not None for document in found.documents):
        raise UsageError("documents in memory cannot be read on a cluster: put them where all machines see them")
    found = replace(found, documents=without_output(found.documents, folder.is_own))
    earlier = _plan_to_continue(folder, found, config)
    folder.try_to_put(afresh=config.overwrite)
    if not is_uri(place := config.report or f"{folder}/{CLUSTER_REPORT_NAME}"):
        require_place(Path(place))
    items = plan_items(found, config, earlier, cluster.pages_per_task)
    if not items:
        raise NoInputError(f"no document has any of the pages --pages {config.pages} asks for")
    planned_s = time.perf_counter()
    what = f"{counted(len(found.documents), 'document')} into {folder}, in {counted(len(items), 'item')}"
    fields = {"out": str(folder), "documents": len(found.documents), "skipped_files": dict(found.skipped)}
    fields |= {"model": config.model, "version": own_version()}
    logger.info("reading %s", what, extra=event("run_started", **fields))
    driver = Driver(config, found, folder, items, earlier, actors=cluster.actors)
    driver.run(joined(cluster.address), stop, progress)
    stop.phase = "finishing"
    report = _report_of(driver, config, found, len(items), stop, began_s=(started_s, planned_s))
    report = replace(report, table=valid_text(str(folder)))
    if report.exit_code == ExitCode.DONE:
        driver.accept_newest()
    if config.report:
        with atomic_file(Path(config.report)) as file:
            file.write(report.to_json().encode() + b"\n")
    else:
        folder.put_text(f"{report.to_json()}\n", CLUSTER_REPORT_NAME)
    is_no_use = not report.parts.read and (driver.first_ready_s is not None or joined(cluster.address) is None)
    if is_no_use and report.exit_reason == "stopped" and stop.reason == "stop_after":
        raise UsageError(
            "--stop-after was over before the first item was finished, and would be the next time: starting up took "
            f"{report.start_up_seconds:.0f} s, and reading {report.work_seconds:.0f}; give the run more time"
        )
    return report


def _for_actors(config: Config) -> Config:
    """The options with paths that hold in any working directory: actors have one of their own. Raises UsageError."""
    for name in _OF_ONE_MACHINE:
        if getattr(config, name) != getattr(Config(), name):
            raise UsageError(f"{flag_of(name)} is of a run on one machine")
    if os.path.isdir(config.model):
        config = replace(config, model=os.path.abspath(config.model))
    require_usable(config)
    return config if config.cache is None else replace(config, cache=os.path.abspath(config.cache))


def _plan_to_continue(folder: OutputFolder, found: Found, config: Config) -> ClusterPlan | None:
    """The plan of the run that this one continues; None if there is none. Raises OutputError, and OutputMismatchError
    if it was of other documents or options."""
    folder.require_of_cluster()
    earlier = None if config.overwrite else folder.plan()
    if earlier is not None:
        _require_same_input(folder, earlier, found, config)
        if earlier.metadata is not None:
            _require_same_options(folder, earlier.metadata, config)
    return earlier


def _require_same_options(folder: OutputFolder, metadata: RunMetadata, config: Config) -> None:
    """Refuse options that make other rows, though there be none to read. Raises OutputMismatchError."""
    of_model = {name: value for name, value in metadata.settings.items() if name in _OF_MODEL}
    settings = of_model | settings_without_model(config)
    here = replace(metadata, settings=settings, settings_fingerprint=fingerprint_of_settings(settings))
    require_same_settings(str(folder), metadata, here)


def _require_same_input(folder: OutputFolder, earlier: ClusterPlan, found: Found, config: Config) -> None:
    """Refuse to remove parts unasked: those of documents that are not in the input, and of other pages. Raises
    OutputMismatchError."""
    known = {document.source for item in earlier.items for document in item.documents}
    gone = known.difference(document.source for document in found.documents)
    if known and gone == known:
        raise OutputMismatchError(
            f"{folder} holds {len(known)} other documents, {min(known)!r} among them, and none of this input: choose "
            "another --out"
        )
    if config.prune:
        return
    if gone:
        raise OutputMismatchError(
            f"{folder} has the rows of {counted(len(gone), 'document')} that this input lacks, {min(gone)!r} among "
            "them: is everything mounted? --prune removes the rows"
        )
    if known and earlier.pages != config.pages:
        raise OutputMismatchError(
            f"{folder} was read with --pages {earlier.pages or 'of all'}: give the same, choose another --out, or let "
            "--prune remove those rows"
        )


def _report_of(
    driver: Driver, config: Config, found: Found, num_parts: int, stop: StopSwitch, *, began_s: tuple[float, float]
) -> ClusterReport:
    """The report of a run that has ended. began_s: when it began, and when its items were known."""
    (started_s, planned_s), ended_s = began_s, time.perf_counter()
    ready_s = driver.first_ready_s or ended_s
    tally, actors = driver.tally, tuple(driver.actor_reports)
    all_read = tally.parts_before + tally.parts_read == num_parts
    reason: ExitReason = "finished" if all_read else "interrupted" if stop.reason == "interrupted" else "stopped"
    return ClusterReport(
        pages_per_second=tally.pages_read / (ended_s - ready_s) if ended_s > ready_s else 0.0,
        exit_reason=reason,
        pages_read=tally.pages_read,
        documents=len(found.documents),
        skipped_files=dict(found.skipped),
        items=tally.items(finished=all_read),
        newest=None if tally.newest is None else Items.of(tally.of_newest, found=tally.of_newest.total()),
        errors=dict(tally.errors.most_common()),
        parts=Parts(num_parts, tally.parts_before, tally.parts_read, tally.lost_twice),
        wall_seconds=ended_s - started_s,
        plan_seconds=planned_s - started_s,
        start_up_seconds=ready_s - planned_s,
        work_seconds=ended_s - ready_s,
        driver_cpu_seconds=sum(os.times()[:2]),
        actors=actors,
        actors_lost=tally.actors_lost,
        machines=tuple(driver.machines),
        settings=driver.settings,
        max_page_error_rate=config.max_page_error_rate,
        max_degraded_rate=config.max_degraded_rate,
        bottleneck=name_bottleneck(tally, actors),
        rows=tally.done,
        **facts_of(found.inputs, config, stop.began_s),
    )
