"""`batchocr view`: which pages are asked for, how far it is, and what came of it."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from batchocr.cli.console import print_out, printable
from batchocr.config import Config
from batchocr.data import counted
from batchocr.documents.audit.audit_table import read_pages
from batchocr.documents.review.choose import MAX_PAGES, ChosenPage, Sort, choose
from batchocr.documents.review.review import Written, require_replaceable, write_review
from batchocr.errors import ExitCode, UsageError
from batchocr.option_values import parse_page_spec
from batchocr.processes.source_files import SourceFiles
from batchocr.tables.atomic import remove_leftovers, require_writable
from batchocr.tables.opened import StoredRows

logger = logging.getLogger(__name__)

_DEFAULT_SAMPLE = 100
_WHICH = {"worst": "the worst", "order": "the first", "random": "taken at random", "audit": "those that weigh most"}


def view_table(
    table: StoredRows,
    out: Path,
    *,
    roots: Sequence[str],
    sort: Sort,
    sample: int | None,
    config: Config,
    as_json: bool,
    audit: Path | None = None,
) -> ExitCode:
    """Write the review page, say where it is, and return the exit code. audit: the table of one, whose order is taken.
    Raises OutputError."""
    require_writable(out)
    require_replaceable(out)
    remove_leftovers([out])
    pages = parse_page_spec(config.pages) if config.pages else None
    audited = {page.key: page for page in read_pages(audit)} if audit else {}
    weights = {key: page.weight for key, page in audited.items()} if audit else None
    limit = sample or (MAX_PAGES if pages else _DEFAULT_SAMPLE)
    choice = choose(table.rows(), "audit" if audit else sort, limit, pages, weights=weights)
    findings = {key: page.findings for key, page in audited.items()}
    if weights and pages is None and (changed := len(weights) - choice.num_wanted):
        logger.warning(
            "not shown, as the table now says something else of it or has it no more: %s of the audit",
            counted(changed, "page"),
        )
    if choice.statuses and not choice.rows:
        raise UsageError("the table has none of these pages")
    roots = roots or table.input_roots
    bar = tqdm(
        total=len(choice.rows), unit=" pages", file=sys.stderr, leave=False, disable=as_json or not sys.stderr.isatty()
    )
    with bar, SourceFiles(roots, config) as source_files:
        written = write_review(out, choice, table, source_files, findings=findings, step=bar.update)
    _tell(out, choice, written, as_json=as_json)
    return ExitCode.TOO_MANY_FAILURES if written.missing else ExitCode.DONE


def _tell(out: Path, choice: ChosenPage, written: Written, *, as_json: bool) -> None:
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
            "%d of %d pages have no picture, because their files are missing or have changed, or cannot be drawn: "
            "each says why",
            written.missing,
            written.pages,
        )
    what = counted(written.pages, "page")
    if written.documents:
        what += f" and {counted(written.documents, 'document')} without one"
    if len(choice.rows) < choice.num_wanted:
        what += f", {_WHICH[choice.sort]} of {choice.num_wanted:,} rows"
    print_out(printable(f"{out}: {what}, {written.size_bytes / 1e6:.1f} MB"))
