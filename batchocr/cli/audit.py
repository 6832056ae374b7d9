"""`batchocr audit`: which pages are asked for, how far it is, and what came of it."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from batchocr.cli.console import print_out
from batchocr.config import Config
from batchocr.data import counted
from batchocr.documents.audit.audit import AuditReport, audit_table
from batchocr.documents.audit.interval import Interval
from batchocr.documents.audit.sample import Choice
from batchocr.errors import ExitCode, UsageError
from batchocr.tables.opened import StoredRows

logger = logging.getLogger(__name__)

_LEFT_OUT = {
    "formula": "formulas",
    "figure": "figures",
    "script": "blocks in a script that the second reader does not know",
    "unread": "lines that it could not read",
    "long": "blocks that are too long",
}


@dataclass(frozen=True, slots=True)
class Limits:
    """The shares of characters, from 0 to 1, that may be omitted, and that may be invented or different; None: any."""

    omitted: float | None
    different: float | None


def audit_and_tell(
    table: StoredRows,
    out: Path,
    choice: Choice,
    limits: Limits,
    *,
    roots: Sequence[str],
    config: Config,
    as_json: bool,
) -> ExitCode:
    """Audit, say what came of it, and return the exit code. Raises UsageError, OutputError."""
    if out.suffix.lower() != ".parquet":
        raise UsageError(f"--out {out}: an audit is a Parquet file, and its name ends in .parquet")
    with tqdm(
        unit=" pages", file=sys.stderr, leave=False, disable=as_json or not sys.stderr.isatty(), desc="auditing"
    ) as bar:

        def on_page(total: int) -> None:
            bar.total = total
            bar.update()

        report = audit_table(table, out, choice, roots=roots, config=config, on_page=on_page)
    exceeded = _exceeded(report, limits)
    exit_code = ExitCode.TOO_MANY_FAILURES if exceeded or report.num_unreadable else ExitCode.DONE
    print_out(json.dumps(_as_json(report, exit_code), indent=2) if as_json else "\n".join(_as_text(report)))
    for line in exceeded:
        logger.warning("%s", line)
    if report.num_unreadable:
        logger.warning(
            "%s could not be drawn again: %s says why; --input says where the documents are",
            counted(report.num_unreadable, "page"),
            out,
        )
    return exit_code


def _exceeded(report: AuditReport, limits: Limits) -> list[str]:
    shares = {
        "--max-omitted": (limits.omitted, report.omitted.estimate, "omitted"),
        "--max-different": (
            limits.different,
            report.invented.estimate + report.different.estimate,
            "invented or different",
        ),
    }
    return [
        f"{share:.2%} of the characters are {what}, more than {flag} {limit:g} allows"
        for flag, (limit, share, what) in shares.items()
        if limit is not None and share > limit
    ]


def _as_text(report: AuditReport) -> Iterator[str]:
    yield (
        f"compared   {counted(report.num_compared, 'page')} of {report.num_readable:,} that were read, "
        f"{report.characters:,} letters and figures; {report.flagged:,} with findings"
    )
    if report.num_empty:
        yield f"empty      {counted(report.num_empty, 'page')} without text for either reader: they do not count"
    if report.num_compared:
        for name, interval in (
            ("omitted", report.omitted),
            ("invented", report.invented),
            ("different", report.different),
        ):
            yield f"{name:10} {_percent(interval, report)} of the characters"
        yield f"{'pages':10} {_percent(report.pages_with_omissions, report)} of the pages lost text"
    if report.left_out:
        said = (f"{number:,} {_LEFT_OUT[name]}" for name, number in report.left_out.most_common())
        yield f"left out   {', '.join(said)}"


def _percent(interval: Interval, report: AuditReport) -> str:
    """The estimate, with its interval if the pages were drawn at random."""
    if not report.is_sample:
        return f"{interval.estimate:.2%}, on these pages,"
    return f"{interval.estimate:.2%} ({interval.low:.2%}–{interval.high:.2%})"


def _as_json(report: AuditReport, exit_code: ExitCode) -> dict[str, object]:
    def ends(interval: Interval) -> dict[str, float | None]:
        low, high = (interval.low, interval.high) if report.is_sample else (None, None)
        return {"estimate": interval.estimate, "low": low, "high": high}

    return {
        "pages_read": report.num_readable,
        "pages_compared": report.num_compared,
        "pages_empty": report.num_empty,
        "pages_unreadable": report.num_unreadable,
        "pages_with_findings": report.flagged,
        "characters": report.characters,
        "omitted": ends(report.omitted),
        "invented": ends(report.invented),
        "different": ends(report.different),
        "pages_with_omissions": ends(report.pages_with_omissions),
        "left_out": dict(report.left_out),
        "exit_code": int(exit_code),
    }
