"""`batchocr audit`: which pages are asked for, how far it is, and what came of it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from batchocr.cli import options
from batchocr.cli.console import configure_logging, counting_bar, print_out
from batchocr.cli.signals import clear_up_on_signals
from batchocr.config import RUN, Option, make_config
from batchocr.data import counted
from batchocr.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from batchocr.documents.audit.audit import AuditReport
    from batchocr.documents.audit.interval import Interval

logger = logging.getLogger(__name__)

_LEFT_OUT = {
    "formula": ("formula", ""),
    "figure": ("figure", ""),
    "figure_line": ("line", " in figures"),
    "script": ("block", " in a script that the second reader does not know"),
    "script_line": ("line", " in blocks of a script that it does not know"),
    "unread": ("line", " that it could not read"),
    "long": ("block", " too long for it"),
}


@options.takes_options(
    *("password", "workers", "page_timeout", *options.OF_TABLES),
    workers=Option(RUN, "Processes that read, with one thread each.", "N", default="one for each core"),
    page_timeout=Option(RUN, "Time limit for opening a document, and for reading a page.", "SECONDS", default="600"),
)
@clear_up_on_signals()
def audit(
    table: options.SavedTable,
    out: Annotated[str, options.flag("--out", "-o", metavar="PATH", help="The Parquet file to write.")],
    flags: options.Flags,
    roots: options.Roots = None,
    sample: Annotated[
        int | None,
        options.flag("--sample", metavar="N", least=1, default="200", help="Audit N pages drawn at random."),
    ] = None,
    audit_all: Annotated[bool, options.flag("--all", help="Audit all pages.")] = False,
    worst: Annotated[
        int | None, options.flag("--worst", metavar="N", least=1, help="Audit the N pages that seem worst.")
    ] = None,
    seed: Annotated[int, options.flag("--seed", metavar="N", default="0", help="Another seed draws other pages.")] = 0,
    max_omitted: Annotated[float | None, options.most_flag("--max-omitted", "the characters is omitted")] = None,
    max_different: Annotated[
        float | None, options.most_flag("--max-different", "the characters is invented or different")
    ] = None,
    partial: options.Partial = False,
    as_json: options.AsJson = False,
    quiet: options.QuietCheck = False,
) -> None:
    """Have a second reader of another family, PP-OCR, read pages of a TABLE on the CPU, and list what it does not
    confirm: text omitted, invented, or different. Prints how much of the whole table that is, with 95 % intervals.
    Needs the extra `audit`. Stopped, it goes on where it was; pages that could not be drawn again are tried again.
    Exits with 3 if more is omitted or different than allowed, or if pages cannot be drawn again.

    Examples:
    batchocr audit results.parquet -o audit.parquet
    batchocr audit results.parquet --worst 50 -o worst.parquet
    batchocr audit results.parquet --max-omitted 0.01 -o audit.parquet
    """
    configure_logging("json" if as_json else "text", logging.WARNING if quiet else logging.INFO)
    from batchocr.documents.audit.audit import audit_table
    from batchocr.documents.audit.sample import choice_of
    from batchocr.tables.opened import open_rows

    path = options.as_local_path("--out", out)
    options.require_roots(roots or [])
    choice = choice_of(sample, worst, seed, whole=audit_all)
    opened = open_rows(table, partial=partial)
    config = make_config({"page_timeout": 600, **opened.metadata.naming, **flags})
    if path.suffix.lower() != ".parquet":
        raise UsageError(f"--out {path}: an audit is a Parquet file, and its name ends in .parquet")
    with counting_bar(unit="pages", what="auditing") as bar:

        def on_page(total: int) -> None:
            bar.total = total
            bar.update()

        report = audit_table(opened, path, choice, roots=roots or [], config=config, on_page=on_page)
    exceeded = _exceeded(report, max_omitted, max_different)
    exit_code = ExitCode.TOO_MANY_FAILURES if exceeded or report.num_unreadable else ExitCode.DONE
    if as_json or not quiet:
        print_out(json.dumps(_as_json(report, exit_code), indent=2) if as_json else "\n".join(_as_text(report)))
    for line in exceeded:
        logger.warning("%s", line)
    if report.num_unreadable:
        logger.warning(
            "%s could not be drawn again: %s says why; --input says where the documents are; the same command tries "
            "them again",
            counted(report.num_unreadable, "page"),
            path,
        )
    raise typer.Exit(exit_code)


def _exceeded(report: AuditReport, max_omitted: float | None, max_different: float | None) -> list[str]:
    different = report.invented.estimate + report.different.estimate
    shares = {
        "--max-omitted": (max_omitted, report.omitted.estimate, "omitted"),
        "--max-different": (max_different, different, "invented or different"),
    }
    given = [flag for flag, (limit, _, _) in shares.items() if limit is not None]
    if given and not report.characters:
        return [f"nothing was compared, which proves nothing: {' and '.join(given)} cannot be met"]
    if given and report.uncompared > report.characters:
        return [
            f"{report.uncompared:,} letters could not be compared, more than the {report.characters:,} that could, "
            f"which proves nothing: {' and '.join(given)} cannot be met"
        ]
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
    if report.num_uncompared:
        yield f"uncompared {counted(report.num_uncompared, 'page')} with text, none of which could be compared"
    if report.num_compared:
        shares = {"omitted": report.omitted, "invented": report.invented, "different": report.different}
        for name, interval in shares.items():
            yield f"{name:10} {_percent(interval, report)} of the characters"
        yield f"{'pages':10} {_percent(report.pages_with_omissions, report)} of the pages lost text"
    if report.left_out:
        told = ((number, *_LEFT_OUT[name]) for name, number in report.left_out.most_common())
        yield f"left out   {', '.join(counted(number, noun) + rest for number, noun, rest in told)}"


def _percent(interval: Interval, report: AuditReport) -> str:
    """The estimate as percent, with its interval if the pages were drawn at random."""
    if not report.is_sample:
        return f"{interval.estimate:.2%}, on these pages,"
    return f"{interval.estimate:.2%} ({interval.low:.2%}–{interval.high:.2%})"


def _as_json(report: AuditReport, exit_code: ExitCode) -> dict[str, object]:
    def ends(interval: Interval) -> dict[str, float | None]:
        low, high = (interval.low, interval.high) if report.is_sample else (None, None)
        return {"estimate": interval.estimate if report.characters else None, "low": low, "high": high}

    return {
        "pages_read": report.num_readable,
        "pages_compared": report.num_compared,
        "pages_empty": report.num_empty,
        "pages_uncompared": report.num_uncompared,
        "pages_unreadable": report.num_unreadable,
        "pages_with_findings": report.flagged,
        "characters": report.characters,
        "characters_uncompared": report.uncompared,
        "omitted": ends(report.omitted),
        "invented": ends(report.invented),
        "different": ends(report.different),
        "pages_with_omissions": ends(report.pages_with_omissions),
        "left_out": dict(report.left_out),
        "exit_code": int(exit_code),
    }
