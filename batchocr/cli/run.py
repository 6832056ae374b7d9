"""`batchocr run`: flags to a Config, a report to an exit code."""

from __future__ import annotations

import json
import logging
import sys
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from batchocr.cli import console, options
from batchocr.cli.console import configure_logging, printable_lines, quieten_libraries, write_line
from batchocr.cli.signals import how_to_continue, stop_on_signals
from batchocr.config import Config, make_config
from batchocr.data import counted
from batchocr.errors import ExitCode
from batchocr.job.progress import event
from batchocr.job.stats.report import ENOUGH_ROWS
from batchocr.job.stats.report_table import format_table
from batchocr.job.stop import StopSwitch
from batchocr.pages.input.folders import describe_skipped
from batchocr.tables.files import OWN_FOLDER, is_folder

if TYPE_CHECKING:
    from batchocr.job.stats.report import TableReport

logger = logging.getLogger(__name__)

_MAX_LIST_BYTES: Final = 2000
"""What a list of the report may take in a line of the log."""


@options.takes_options(*options.ALL)
def run(
    inputs: options.Inputs,
    out: options.Out,
    flags: options.Flags,
    recipe: options.Recipe = None,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
    log_format: options.LogFormat = "text",
) -> None:
    """Read every page of the INPUTs into one table, one row per page. Run it again to continue where it was stopped.

    Examples:
    batchocr run ./scans -o results.parquet
    batchocr run 'reports/**/*.pdf' --pages 1-3 -o first-pages.jsonl
    batchocr run ./archive --shard 2/8 --stop-after 3h55m -o part-2.parquet
    find . -name '*.pdf' -print0 | batchocr run -0 - -o results.parquet

    Exit codes:
    0    finished; no more pages failed, or are degraded, than allowed
    1    internal error: a bug, or a device or workers that fail
    2    wrong usage
    3    more pages (of all, or new) failed, or degraded, than allowed, or worse
    4    nothing to read
    5    the model cannot be loaded
    6    the output cannot be written, or belongs to other settings
    75   stopped before the end: run the same command again to continue
    130  interrupted: likewise
    """
    config = config_of_run(flags, recipe, log_format, quiet=quiet, verbose=verbose)
    from batchocr.api import run_with  # takes time that --help and usage errors do not need

    stop = StopSwitch(config.stop_after)
    with stop_on_signals(stop, config):
        finished = run_with(
            config, inputs, out=out, stop=stop, progress=None if quiet else console.progress_on_stderr()
        )
        if log_format == "text" and not quiet and not finished.nothing_to_do:
            write_line(f"\n{printable_lines(format_table(finished, details=verbose))}\n")
        conclude(finished, config, out)
    assert finished.exit_code is not None  # a run that an error ends returns no report
    raise typer.Exit(finished.exit_code)


def config_of_run(
    flags: options.Flags, recipe: str | None, log_format: console.LogFormat, *, quiet: bool, verbose: bool
) -> Config:
    """The Config that a command line asks for; configures the log. Raises UsageError."""
    configure_logging(log_format, logging.WARNING if quiet else logging.DEBUG if verbose else logging.INFO)
    if not verbose:
        quieten_libraries(downloads=quiet or not sys.stderr.isatty())
    config = make_config(flags, recipe)
    options.refuse_both("--quiet", quiet, "--verbose", verbose)
    options.refuse_both("--overwrite", config.overwrite, "--resume", bool(flags.get("resume")))
    return config


def conclude(report: TableReport, config: Config, out: str) -> None:
    """Say what came of a run, and what to do next."""
    items = report.items
    if items.degraded:
        read = counted(items.ok + items.degraded, "page")
        said = f"{items.degraded:,} of {read} came out incomplete (status degraded); the column error_message says why"
        logger.warning("%s", said)
    if report.doubtful:
        pages = counted(report.doubtful, "page")
        logger.info("%s may have been read wrongly or in part (doubtful): `batchocr view` shows the worst first", pages)
    if (turned := report.traits.get("turned")) and config.orientation != "turn":
        pages = f"{counted(turned, 'page')} on a side or upside down, and read as if upright"
        logger.info("%s: --orientation turn reads such pages, into another --out or with --overwrite", pages)
    if report.exit_code == ExitCode.BUG:
        logger.error("a bug in batchocr: not all of %s are accounted for: %s", counted(items.found, "item"), items)
    is_of_parts = out.endswith("/") or is_folder(Path(out))
    usual = f"{out.rstrip('/')}/{OWN_FOLDER}/report.json" if is_of_parts else f"{out}.report.json"
    report_file = config.report or usual
    ended = {"exit_code": report.exit_code, **_shortened(json.loads(report.to_json()))}
    if not report.complete:
        begun = items.ok + items.degraded + items.failed + items.skipped > items.already_done
        kept = f"finished pages are kept, the report is {report_file}"
        said = f"stopped before the end; {kept}: {how_to_continue(config, begun=begun)}"
        logger.info("%s", said, extra=event("run_stopped", **ended))
        return
    for exceeded in report.exceeded:
        logger.warning("%s; the column error_message says why", exceeded)
    if (newest := report.newest) and 0 < newest.failed == newest.found < ENOUGH_ROWS:
        rows = counted(newest.failed, "row")
        logger.warning("nothing of the newest documents was read: %s failed; error_message says why", rows)
    found = items.found
    rows = "the only row is" if found == 1 else f"all {found:,} rows are"
    why = f"nothing new to read and nothing to do, {rows} done: " if report.nothing_to_do else ""
    skipped = f"; {describe_skipped(report.skipped_files)}" if report.nothing_to_do and report.skipped_files else ""
    there = f"the table is {out}, the report {report_file}"
    logger.info("%s%s%s", why, there, skipped, extra=event("run_finished", **ended))


def _shortened(report: dict[str, Any]) -> dict[str, Any]:
    """A report for a line of the log: `report` with the first entries of each list, and how many are `cut` of which."""
    cut: dict[str, int] = {}
    for name, values in report.items():
        if isinstance(values, list):
            ends = accumulate(len(json.dumps(value)) for value in values)
            kept = sum(end <= _MAX_LIST_BYTES for end in ends)
            report[name], cut[name] = values[:kept], len(values) - kept
    return {"report": report, "cut": {name: number for name, number in cut.items() if number}}
