"""`batchocr export`: what is asked for, how far it is, and what came of it."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from itertools import count
from pathlib import Path

from tqdm import tqdm

from batchocr.cli.console import print_out
from batchocr.config import Config
from batchocr.data import counted
from batchocr.documents.export.export import Export, Exported
from batchocr.documents.export.folder import ExportFolder
from batchocr.documents.export.formats import FORMAT_NAMES, FormatOptions, format_named
from batchocr.documents.export.names import Names
from batchocr.errors import ExitCode, UsageError
from batchocr.processes.source_files import SourceFiles
from batchocr.tables.opened import StoredRows

logger = logging.getLogger(__name__)

_ADVICE = {
    "not_found": "say with --input where the documents are",
    "changed": "the documents are not those any more that were read",
    "encrypted": "set BATCHOCR_PASSWORD",
    "timeout": "raise --page-timeout",
}
"""What to do about missing figures, by what is wrong with their file."""


def formats_named(names: str) -> list[str]:
    """The formats in a list separated by commas. Raises UsageError."""
    formats = list(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
    if unknown := [name for name in formats if name not in FORMAT_NAMES]:
        raise UsageError(f"--format {unknown[0]!r}: one or more of {', '.join(FORMAT_NAMES)}")
    if not formats:
        raise UsageError(f"--format names none: one or more of {', '.join(FORMAT_NAMES)}")
    return formats


def export_table(
    table: StoredRows,
    to: Path,
    formats: Sequence[str],
    *,
    roots: Sequence[str] | None,
    options: FormatOptions,
    config: Config,
    as_json: bool,
) -> ExitCode:
    """Export, say what came of it, and return the exit code. roots: None for those of the table's run.

    Raises OutputError, UsageError.
    """
    for name in formats:
        format_named(name)  # one that lacks its libraries says so before anything is written
    names, num_rows = _names_in(table)
    roots = table.input_roots if roots is None else roots
    bar = tqdm(total=num_rows, unit=" pages", file=sys.stderr, leave=False, disable=as_json or not sys.stderr.isatty())
    with bar, ExportFolder(to) as folder, SourceFiles(roots, config) as sources:
        done = Export(table, folder, formats, options, sources, on_document=bar.update).run(names)
    if as_json:
        print_out(done.to_json())
    _tell(done, to, formats)
    return done.exit_code


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
    if done.unclear_blocks:
        what = counted(done.unclear_blocks, "block")
        logger.warning("the lines of %s could not be told apart: each is one box with all its text", what)
    if done.signed:
        what = counted(done.signed, "document")
        logger.warning("%s signed, which a change would end: each PDF is a copy without text of ours", what)
    if done.refused:
        logger.warning("%s not exported in full: see above", counted(done.refused, "document"))
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
