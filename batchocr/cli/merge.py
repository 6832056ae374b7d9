"""`batchocr merge`: the parts of a table into one."""

from __future__ import annotations

import logging
from contextlib import closing
from typing import Annotated

from batchocr.cli import options
from batchocr.cli.console import configure_logging, counting_bar
from batchocr.cli.signals import clear_up_on_signals
from batchocr.config import RUN, Option, make_config
from batchocr.data import counted, valid_text
from batchocr.storage.temporary import new_folder
from batchocr.storage.uris import is_uri
from batchocr.tables.files import report_path

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
    from batchocr.tables.remote_output import output_at
    from batchocr.tables.selection import missing_shards

    config = make_config(flags)
    output = output_at(out, new_folder() if is_uri(out) else None)
    with closing(output):
        output.prepare(overwrite=config.overwrite)
        merging.require_finished([*parts, *(prefer or [])])
        of_parts = open_rows(parts, ours=True).parts
        preferred = open_rows(prefer, ours=True).parts if prefer else ()
        with output.locked():
            merging.require_free(output, [*of_parts, *preferred], overwrite=config.overwrite)
            require_place(report_path(output.path))
            places = None
            if inputs:
                documents = documents_asked_for(inputs, config).documents
                places = {valid_text(document.source): number for number, document in enumerate(documents)}
            metadata = merging.merged_metadata(of_parts, preferred)
            with merging.merged(output.path, of_parts, places, preferred) as merged:
                if missing := missing_shards(metadata.selection):
                    logger.warning(
                        "no part is of shard %s: %s lacks their documents, and says so; merge them, too", missing, out
                    )
                rows = counting_bar(merged.groups(), what="merging", unit="row groups")
                output.commit(rows, metadata, rows_per_part=config.rows_per_part, earlier=merged)
            output.put_report(None)
    logger.info("the table, of %s, is %s", counted(len(of_parts), "part"), out)
