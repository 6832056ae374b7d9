"""The documents to read, and the pages that a table, an audit or the marks of a review page name: `--only`."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from batchocr.config import Config
from batchocr.data import Document, valid_text
from batchocr.errors import UsageError
from batchocr.pages.input.sources import Found, PageList, find_documents
from batchocr.processes.messages import Setup
from batchocr.tables.derived import file_rows, page_index_of
from batchocr.tables.known_members import known_within

_SAY_WHICH: Final = ("findings", "mark")
"""Columns of an audit and of marks, which also list pages that are sound."""


def documents_asked_for(inputs: Sequence[str | Document], config: Config, out: Path | None = None) -> Found:
    """The documents that the INPUTs name, as far as the options ask for them. out: a table that says what is in
    archives that have not changed. Raises NoInputError, UsageError, OutputError."""
    return find_documents(
        inputs,
        stdin=sys.stdin,
        null=config.null,
        follow_symlinks=config.follow_symlinks,
        shard=config.shard,
        sample=config.sample_documents,
        only=None if config.only is None else read_page_list(Path(config.only)),
        setup=Setup.of(config),
        known=partial(known_within, out, config) if out else None,
    )


def read_page_list(path: Path) -> PageList:
    """The pages in the rows of a file: of an audit those with findings, of marks those that are marked bad. A row
    without a page stands for all of its document. Raises UsageError, OutputError."""
    pages: defaultdict[str, set[int] | None] = defaultdict(set)
    for number, row in enumerate(file_rows(path, ("source", "page_index", *_SAY_WHICH)), start=1):
        source = row.get("source")
        if not isinstance(source, str) or "page_index" not in row:
            raise UsageError(f"--only {path}, row {number}: it lacks source or page_index, which say what it is of")
        try:
            page_index = page_index_of(row)
        except ValueError as error:
            raise UsageError(f"--only {path}, row {number}: {error}") from error
        if row.get("findings") == [] or row.get("mark", "bad") != "bad":
            continue
        source = valid_text(source)
        known = pages[source]
        if page_index is None or known is None:
            pages[source] = None
        else:
            known.add(page_index)
    if not pages:
        raise UsageError(f"--only {path}: it names no page to read")
    return {source: known if known is None else frozenset(known) for source, known in pages.items()}
