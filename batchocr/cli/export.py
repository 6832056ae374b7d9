"""`batchocr export`: what is asked for, how far it is, and what came of it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from batchocr.cli import options
from batchocr.cli.console import configure_logging, counting_bar, print_out
from batchocr.cli.signals import clear_up_on_signals
from batchocr.config import RUN, Option, make_config
from batchocr.data import counted
from batchocr.documents.export.formats import FORMATS, FormatOptions, format_named
from batchocr.documents.export.names import Names
from batchocr.errors import UsageError
from batchocr.machine import usable_cores

if TYPE_CHECKING:
    from batchocr.documents.export.export import Exported
    from batchocr.tables.opened import StoredRows

logger = logging.getLogger(__name__)

_ADVICE = {
    "not_found": "say with --input where the documents are",
    "changed": "the documents are not those any more that were read",
    "encrypted": "set BATCHOCR_PASSWORD",
    "timeout": "raise --page-timeout",
}
"""What to do about missing figures, by what is wrong with their file."""

_MOST_WORKERS = 8
"""How many workers draw at most if nothing else is said: one process assembles and writes what they draw."""

_PAGE_NAMES = "{stem}-page-{page}.md"
_HIDDEN_LINES = "%s not added to PDFs that have invisible text of their own there (see --force-text)"


@options.takes_options(
    *("password", "workers", "page_timeout", *options.OF_TABLES),
    workers=Option(RUN, "Processes that draw pages and cut figures.", "N", default="one for each core, at most 8"),
)
@clear_up_on_signals()
def export(
    table: options.SavedTable,
    to: Annotated[str, options.flag("--to", metavar="DIR", help="The folder to write into.")],
    flags: options.Flags,
    formats: Annotated[
        str,
        options.flag(
            "--format",
            metavar="NAMES",
            default="md",
            help=f"{'; '.join(f'{name}: {what}' for name, what in FORMATS.items())}. Several are separated by commas.",
        ),
    ] = "md",
    roots: options.Roots = None,
    page_breaks: Annotated[bool, options.flag("--page-breaks", help="Mark where pages end.")] = False,
    max_chars: Annotated[
        int, options.flag("--max-chars", metavar="N", least=1, default="2000", help="The longest text of a chunk.")
    ] = 2000,
    language: Annotated[
        str,
        options.flag("--language", metavar="TAG", help="The language of the text for pdf, hocr and alto, as in en-GB."),
    ] = "",
    force_text: Annotated[
        bool, options.flag("--force-text", help="For pdf: also where a page has text of its own.")
    ] = False,
    page_names: Annotated[
        str,
        options.flag("--page-names", metavar="NAME", default=_PAGE_NAMES, help="For pages: the name of each file."),
    ] = _PAGE_NAMES,
    partial: options.Partial = False,
    as_json: options.AsJson = False,
    quiet: options.QuietCheck = False,
) -> None:
    """Write a file, or a folder, for each document of a TABLE, its pages put together: under DIR, by the path of its
    source. Figures are cut out of the documents. Run it again to write only what is new; a file in DIR that an export
    did not write is never replaced. Exits with 3 if a figure or a document is missing, with 6 if the table cannot be
    read or nothing can be written.

    Examples:
    batchocr export results.parquet --to texts
    batchocr export results.parquet --to texts --format html,pdf
    batchocr export results.parquet --to texts --input ./scans
    """
    configure_logging("json" if as_json else "text", logging.WARNING if quiet else logging.INFO)
    from batchocr.documents.export.export import Export
    from batchocr.documents.export.folder import ExportFolder
    from batchocr.documents.export.pages import as_page_names
    from batchocr.processes.source_files import SourceFiles
    from batchocr.tables.opened import open_rows

    folder_path = options.as_local_path("--to", to)
    options.require_roots(roots or [])
    opened = open_rows(table, partial=partial)
    named = _formats_named(formats)
    tag, page_names = options.as_language(language), as_page_names(page_names)
    format_options = FormatOptions(page_breaks, max_chars, tag, force_text, page_names)
    config = make_config({**opened.metadata.naming, **flags})
    names, num_rows = _names_in(opened)
    roots = opened.input_roots if roots is None else roots
    bar = counting_bar(total=num_rows, what="exporting", unit="pages")
    workers = config.workers or min(_MOST_WORKERS, usable_cores())
    with bar, ExportFolder(folder_path) as folder, SourceFiles(roots, config, workers=workers) as sources:
        done = Export(opened, folder, named, format_options, sources, on_document=bar.update).run(names)
    if as_json:
        print_out(done.to_json())
    _tell(done, folder_path, named)
    raise typer.Exit(done.exit_code)


def _formats_named(names: str) -> list[str]:
    """The formats in a list separated by commas. Raises UsageError, also if one lacks its libraries."""
    formats = list(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
    if not formats or not set(formats).issubset(FORMATS):
        raise UsageError(f"--format {names!r}: one or more of {', '.join(FORMATS)}")
    for name in formats:
        format_named(name)
    return formats


def _names_in(table: StoredRows) -> tuple[Names, int]:
    """The names of the table's documents, and how many rows it has."""
    num_rows = count()
    names = Names(row.source for row, _ in zip(table.rows(), num_rows, strict=False))
    return names, next(num_rows)


def _tell(done: Exported, to: Path, formats: Sequence[str]) -> None:
    """Say what is not as it should be, and where the files are."""
    if done.missing_figures:
        reasons = [
            f"{number:,} {kind}{f' ({_ADVICE[kind]})' if kind in _ADVICE else ''}"
            for kind, number in done.missing_figures.items()
        ]
        logger.warning(
            "%s could not be cut out, with a mark in place of each: %s",
            counted(sum(done.missing_figures.values()), "figure"),
            ", ".join(reasons),
        )
    for number, noun, said in (
        (done.unclear_blocks, "block", "the lines of %s could not be told apart: each is one box with all its text"),
        (done.signed, "document", "%s signed, which a change would end: each PDF is a copy without text of ours"),
        (done.hidden_lines, "line", _HIDDEN_LINES),
        (done.without_pages, "document", "%s without a page that could be read"),
        (done.without_text, "document", "%s without text: no row in the dataset"),
        (done.refused, "document", "%s not exported in full: see above"),
    ):
        if number:
            logger.warning(said, counted(number, noun))
    if done.vanished:
        what = counted(done.vanished, "document")
        logger.info("%s exported before not in the table any more: the files were left", what)
    logger.info(
        "%s of %s in %s (%s): %s written, %s as before",
        counted(done.documents, "document"),
        counted(done.pages, "page"),
        to,
        ", ".join(formats),
        f"{done.written:,}",
        f"{done.up_to_date:,}",
    )
