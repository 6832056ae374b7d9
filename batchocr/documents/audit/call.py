"""`batchocr.audit`: an audit from Python."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from batchocr.config import Config
from batchocr.documents.audit.audit import AuditReport, audit_table
from batchocr.documents.audit.sample import choice_of
from batchocr.tables.opened import TableNames, open_rows


def audit(
    table: TableNames,
    *,
    out: str | os.PathLike[str],
    sample: int | None = None,
    worst: int | None = None,
    whole: bool = False,
    seed: int = 0,
    roots: Sequence[str] = (),
    partial: bool = False,
    workers: int | None = None,
    password: str | None = None,
    page_timeout: float = 600.0,
) -> AuditReport:
    """Have a second reader check pages of a table, write what it does not confirm to `out`, and return what that says
    of the whole table. The arguments are the flags of `batchocr audit`; whole: all pages. Raises UsageError,
    OutputError."""
    choice = choice_of(sample, worst, seed, whole=whole)
    config = Config(workers=workers, password=password, page_timeout=page_timeout)
    return audit_table(open_rows(table, partial=partial), Path(out), choice, roots=roots, config=config)
