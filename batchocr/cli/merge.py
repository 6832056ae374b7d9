"""`batchocr merge`: the parts of a table into one."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence

from tqdm import tqdm

from batchocr.config import Config
from batchocr.data import valid_text
from batchocr.pages.input.sources import find_documents
from batchocr.storage.temporary import new_folder
from batchocr.storage.uris import is_uri
from batchocr.tables.atomic import remove_leftovers, require_writable
from batchocr.tables.files import files_of, report_path
from batchocr.tables.merge import merged_metadata, merged_rows, require_finished, require_free
from batchocr.tables.opened import open_rows
from batchocr.tables.remote_output import OutputPlace
from batchocr.tables.table import table_for

logger = logging.getLogger(__name__)


def merge_tables(
    tables: Sequence[str],
    out: str | os.PathLike[str],
    inputs: Sequence[str],
    config: Config,
    prefer: Sequence[str] = (),
) -> None:
    """Write the rows of the tables, and what made them, to `out`. inputs: whose order the rows take; if there is none,
    that of a folder. prefer: tables whose rows take the place of others'. Raises OutputError, OutputMismatchError,
    UsageError, NoInputError."""
    place = OutputPlace(out, new_folder() if is_uri(os.fspath(out)) else None)
    place.require_free(overwrite=config.overwrite)
    path = place.path
    require_finished([*tables, *prefer])
    parts = open_rows(tables, ours=True).parts
    preferred = open_rows(prefer, ours=True).parts if prefer else ()
    require_free(path, [*parts, *preferred], overwrite=config.overwrite)
    require_writable(path)
    remove_leftovers(files_of(path, report_path(path)))
    places = None
    if inputs:
        found = find_documents(inputs, stdin=sys.stdin, null=config.null, follow_symlinks=config.follow_symlinks)
        places = {valid_text(document.source): place for place, document in enumerate(found.documents)}
    rows = tqdm(merged_rows(parts, places, preferred), desc="merging", unit=" rows", disable=None, leave=False)
    table_for(path).write(path, rows, merged_metadata(parts, preferred))
    if config.overwrite:
        report_path(path).unlink(missing_ok=True)  # of the run whose table was replaced
    place.publish()
    logger.info("the table, of %d part%s, is %s", len(parts), "s" * (len(parts) != 1), out)
