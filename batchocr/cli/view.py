"""`batchocr view`: which pages are asked for, how far it is, and what came of it."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from batchocr.cli import options
from batchocr.cli.console import configure_logging, counting_bar, print_out, printable
from batchocr.cli.signals import clear_up_on_signals
from batchocr.config import INPUT, RUN, Option, make_config
from batchocr.data import counted
from batchocr.documents.review.choose import MAX_PAGES, ChosenPage, PageKey, Sort, choose
from batchocr.errors import ExitCode, UsageError
from batchocr.option_values import parse_page_spec
from batchocr.tables.atomic import remove_leftovers, require_writable

if TYPE_CHECKING:
    from batchocr.documents.findings import AuditFinding
    from batchocr.documents.review.review import Written
    from batchocr.tables.opened import StoredRows

logger = logging.getLogger(__name__)

_DEFAULT_SAMPLE = 100
_WHICH = {"worst": "the worst", "order": "the first", "random": "taken at random", "audit": "those that weigh most"}


@options.takes_options(
    *("pages", "password", "page_timeout", *options.OF_TABLES),
    pages=Option(INPUT, "Show these pages of each document, as in 1-10,15,r3-r1.", "PAGES", default="some of all"),
    page_timeout=Option(RUN, "Time limit for drawing a page.", "SECONDS"),
)
@clear_up_on_signals()
def view(
    table: options.SavedTable,
    flags: options.Flags,
    roots: options.Roots = None,
    out: Annotated[
        str, options.flag("--out", "-o", metavar="PATH", default="review.html", help="The HTML file to write.")
    ] = "review.html",
    sample: Annotated[
        int | None,
        options.flag(
            "--sample",
            panel=INPUT,
            metavar="N",
            least=1,
            most=MAX_PAGES,
            default="100",
            help="How many pages to show, 200 at most.",
        ),
    ] = None,
    sort: Annotated[
        Literal["worst", "order", "random"],
        options.flag(
            "--sort",
            panel=INPUT,
            metavar="worst|order|random",
            default="worst",
            help="Which to take, and show first.",
        ),
    ] = "worst",
    audit_path: Annotated[
        Path | None,
        options.flag(
            "--audit",
            panel=INPUT,
            metavar="PATH",
            help="Show only the pages of this audit, what weighs most first, with what it found.",
        ),
    ] = None,
    partial: options.Partial = False,
    as_json: options.AsJson = False,
    quiet: options.QuietCheck = False,
) -> None:
    """Write one HTML file to look through: pages with numbered boxes, and beside them what was read, with formulas and
    tables drawn. It loads nothing and can be mailed. Marks that are given in it stay in the browser, and can be saved
    as JSON Lines. Exits with 3 if pages are without their picture, as their files are missing or have changed.

    Examples:
    batchocr view results.parquet
    batchocr view results.parquet --input ./scans --pages 1-3 -o first.html
    batchocr view results.parquet --audit audit.parquet
    """
    configure_logging("json" if as_json else "text", logging.WARNING if quiet else logging.INFO)
    from batchocr.documents.review.review import require_replaceable, write_review
    from batchocr.processes.source_files import SourceFiles
    from batchocr.tables.opened import open_rows

    options.refuse_both("--sample", sample is not None, "--pages", "pages" in flags)
    path = options.as_local_path("--out", out)
    options.require_roots(roots or [])
    opened = open_rows(table, partial=partial)
    config = make_config({**opened.metadata.naming, **flags})
    require_writable(path)
    require_replaceable(path)
    remove_leftovers([path])
    choice, findings = _chosen(opened, sort, sample, config.pages, audit_path)
    bar = counting_bar(total=len(choice.rows), what="drawing", unit="pages")
    with bar, SourceFiles(roots or opened.input_roots, config) as source_files:
        written = write_review(path, choice, opened, source_files, findings=findings, step=bar.update)
    _tell(path, choice, written, as_json=as_json, quiet=quiet)
    raise typer.Exit(ExitCode.TOO_MANY_FAILURES if written.missing else ExitCode.DONE)


def _chosen(
    table: StoredRows, sort: Sort, sample: int | None, page_spec: str | None, audit: Path | None
) -> tuple[ChosenPage, dict[PageKey, Sequence[AuditFinding]]]:
    """The rows to be shown, and what the audit found on them; with an audit they come in its order. Raises UsageError,
    OutputError."""
    from batchocr.documents.audit.audit_table import read_pages

    pages = parse_page_spec(page_spec) if page_spec else None
    audited = {page.key: page for page in read_pages(audit)} if audit else {}
    weights = {key: page.weight for key, page in audited.items()} if audit else None
    limit = sample or (MAX_PAGES if pages else _DEFAULT_SAMPLE)
    choice = choose(table.rows(), "audit" if audit else sort, limit, pages, weights=weights)
    if weights and pages is None and (changed := len(weights) - choice.num_wanted):
        logger.warning(
            "not shown, as the table now says something else of it or has it no more: %s of the audit",
            counted(changed, "page"),
        )
    if choice.statuses and not choice.rows:
        raise UsageError("the table has none of these pages")
    return choice, {key: page.findings for key, page in audited.items()}


def _tell(out: Path, choice: ChosenPage, written: Written, *, as_json: bool, quiet: bool) -> None:
    num_rows = sum(choice.statuses.values())
    if as_json:
        told = {"path": str(out), "size_bytes": written.size_bytes, "pages": written.pages}
        told |= {"documents_without_pages": written.documents, "rows": num_rows, "rows_asked_for": choice.num_wanted}
        print_out(json.dumps(told | {"without_picture": written.missing}, indent=2))
        return
    if not num_rows:
        logger.warning("the table has no row: there is nothing to look at")
    if written.missing:
        logger.warning(
            "no picture of %d of %s, as files are missing or have changed, or cannot be drawn: the pages say why; "
            "--input says where the documents are, --password opens them",
            written.missing,
            counted(written.pages, "page"),
        )
    what = counted(written.pages, "page")
    if written.documents:
        what += f" and {counted(written.documents, 'document')} without one"
    if len(choice.rows) < choice.num_wanted:
        what += f", {_WHICH[choice.sort]} of {choice.num_wanted:,} rows"
    if not quiet:
        print_out(printable(f"{out}: {what}, {written.size_bytes / 1e6:.1f} MB"))
