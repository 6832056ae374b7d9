"""`batchocr merge`: the parts of a table into one."""

from __future__ import annotations

import logging
from typing import Annotated

from batchocr.cli import options
from batchocr.cli.console import configure_logging, counting_bar
from batchocr.cli.signals import clear_up_on_signals
from batchocr.config import RUN, Option, make_config
from batchocr.data import counted, valid_text
from batchocr.storage.temporary import new_folder
from batchocr.storage.uris import is_uri
from batchocr.tables.atomic import remove_leftovers, require_writable
from batchocr.tables.files import files_of, report_path, table_file

logger = logging.getLogger(__name__)


@options.takes_options(
    *("overwrite", "null", "follow_symlinks", "rows_per_part"),
    overwrite=Option(RUN, "Replace a table that is there already.", default="off"),
)
@clear_up_on_signals()
def merge(
    parts: Annotated[list[str], options.argument("PART...", "Tables, folders of tables, or globs.")],
    out: options.MergedOut,
    flags: options.Flags,
    prefer: Annotated[
        list[str] | None,
        options.flag(
            "--prefer",
            metavar="TABLE",
            help="A table whose rows take the place of the PARTs' rows of the same pages, unless they failed; it may "
            "have been made with other settings.",
        ),
    ] = None,
    inputs: Annotated[
        list[str] | None,
        options.flag(
            "--input",
            metavar="INPUT",
            default="the order of a folder",
            help="An INPUT of the run: rows take the order in which its documents stand there. May be given more than "
            "once, in the order of the run.",
        ),
    ] = None,
    quiet: options.QuietCheck = False,
) -> None:
    """Make one table of the tables of several shards, row for row what a single run would have written; a run into it
    continues it. Refuses parts that were made with other settings, or that have the same page twice.

    Examples:
    batchocr merge 'part-*.parquet' -o results.parquet
    batchocr merge results.parquet --prefer again.parquet -o better.parquet
    """
    configure_logging("text", logging.WARNING if quiet else logging.INFO)
    from batchocr.job.stats.report import require_place
    from batchocr.tables import merge as merging
    from batchocr.tables.opened import open_rows
    from batchocr.tables.page_list import documents_asked_for
    from batchocr.tables.remote_output import OutputPlace
    from batchocr.tables.selection import missing_shards
    from batchocr.tables.table import writer_for

    config = make_config(flags)
    place = OutputPlace(out, new_folder() if is_uri(out) else None)
    place.require_free(overwrite=config.overwrite)
    path = place.path
    merging.require_finished([*parts, *(prefer or [])])
    of_parts = open_rows(parts, ours=True).parts
    preferred = open_rows(prefer, ours=True).parts if prefer else ()
    merging.require_free(path, [*of_parts, *preferred], overwrite=config.overwrite)
    require_writable(table_file(path))
    if config.overwrite:
        require_place(report_path(path))
    remove_leftovers(files_of(path, report_path(path)))
    places = None
    if inputs:
        documents = documents_asked_for(inputs, config).documents
        places = {valid_text(document.source): number for number, document in enumerate(documents)}
    merged = merging.merged_rows(of_parts, places, preferred)
    rows = counting_bar(merged, what="merging", unit="rows")
    metadata = merging.merged_metadata(of_parts, preferred)
    if missing := missing_shards(metadata.selection):
        logger.warning("no part is of shard %s: %s lacks their documents, and says so; merge them, too", missing, out)
    writer_for(path, config.rows_per_part)(path, rows, metadata)
    if config.overwrite:
        report_path(path).unlink(missing_ok=True)  # of the run whose table was replaced
    place.publish()
    logger.info("the table, of %s, is %s", counted(len(of_parts), "part"), out)
