"""`batchocr ray`: flags to a run on a cluster, its report to an exit code."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Sequence

import typer

from batchocr.cli import options
from batchocr.cli.console import LogFormat, configure_logging, printable_lines, quieten_libraries, write_line
from batchocr.cli.run import progress_for
from batchocr.cli.signals import how_to_continue, stop_on_signals
from batchocr.config import make_config
from batchocr.errors import UsageError
from batchocr.job.progress import event
from batchocr.job.stop import StopSwitch
from batchocr.ray import ClusterReport, run_with
from batchocr.ray.cluster import Cluster

logger = logging.getLogger(__name__)


def run_on_cluster(
    inputs: Sequence[str],
    out: str,
    flags: options.Flags,
    *,
    address: str | None,
    pages_per_task: str,
    actors: str | None,
    recipe: str | None,
    quiet: bool,
    verbose: bool,
    log_format: LogFormat,
) -> None:
    """Read the INPUTs and end with the exit code. Raises the errors of `batchocr.ray.run`."""
    configure_logging(log_format, logging.WARNING if quiet else logging.DEBUG if verbose else logging.INFO)
    if not verbose:
        quieten_libraries(downloads=quiet or not sys.stderr.isatty())
    config = make_config(flags, recipe)
    options.refuse_contradictions(flags, config, quiet=quiet, verbose=verbose)
    num_actors = None if actors is None else _number("--actors", actors)
    cluster = Cluster(address, _number("--pages-per-task", pages_per_task), num_actors)
    stop = StopSwitch(config.stop_after)
    with stop_on_signals(stop, config):
        report = run_with(config, inputs, cluster, out=out, stop=stop, progress=progress_for(quiet, log_format))
        if log_format == "text" and not quiet and not report.nothing_to_do:
            write_line(f"\n{printable_lines(report.to_text())}\n")
        _conclude(report, out, how_to_continue(config))
    raise typer.Exit(report.exit_code)


def _number(flag: str, text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise UsageError(f"{flag} {text!r}: should be a valid integer") from error


def _conclude(report: ClusterReport, out: str, to_continue: str) -> None:
    """Say where the results are and what to do next."""
    ended = {"exit_code": report.exit_code, "report": json.loads(report.to_json())}
    items = report.items
    if not report.complete:
        parts = f"{report.parts.already_done + report.parts.read:,} of {report.parts.planned:,} parts are"
        logger.info("stopped before the end; %s there: %s", parts, to_continue, extra=event("run_stopped", **ended))
        return
    for exceeded in report.gate_counts.exceeded(report):
        logger.warning("%s; the columns error_kind and error_message say why", exceeded)
    why = "nothing to do: " if report.nothing_to_do else ""
    logger.info("%sall %d rows are in %s", why, items.found, out, extra=event("run_finished", **ended))
