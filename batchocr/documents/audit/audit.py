"""The audit of a table: its pages are drawn again, read by the second reader, and compared, in as many processes as
there should be."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import closing
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Final

from batchocr.config import Config
from batchocr.data import Failure, PageResult
from batchocr.documents.audit.audit_table import AuditedPage, AuditJournal, Settings
from batchocr.documents.audit.compare import compare_page
from batchocr.documents.audit.interval import Interval, share_interval
from batchocr.documents.audit.lines import lines_of
from batchocr.documents.audit.sample import Choice, Drawn, choice_of, draw
from batchocr.documents.findings import FindingKind
from batchocr.documents.review.choose import text_hash
from batchocr.machine import own_version, usable_cores
from batchocr.pages.protocol.second_reader import require_second_reader
from batchocr.processes.messages import Failed, Finished, ReadPage, Setup
from batchocr.processes.pool import WorkerPool
from batchocr.processes.source_files import SourceFiles, draw_again
from batchocr.processes.worker import Loss
from batchocr.tables.atomic import remove_leftovers, require_writable
from batchocr.tables.opened import StoredRows, TableNames, open_rows

_REVISION: Final = "3"
"""The revision of the audit, which goes up when the same lines would give other findings or counts."""

Keep = Callable[[AuditedPage], None]


@dataclass(frozen=True, slots=True)
class AuditReport:
    """What an audit says of a table. Shares are of characters, if nothing else is said."""

    num_readable: int
    """The pages of the table that were read: the pages to be audited were chosen among them."""
    is_sample: bool
    """Whether the pages were chosen at random, so that the intervals are of the whole table."""
    num_compared: int
    num_empty: int
    """Pages without text for either reader. They tell nothing: two readers that find nothing do not agree on
    anything."""
    num_uncompared: int
    """Pages with text, none of which could be compared."""
    num_unreadable: int
    flagged: int
    """Pages with a finding."""
    characters: int
    """The characters of the pages that were compared."""
    uncompared: int
    """Characters that could not be compared, of all pages."""
    omitted: Interval
    """The share that the page has and the table has not."""
    invented: Interval
    """The share that the table has and the page has not, as far as the second reader can see."""
    different: Interval
    """The share in other words and figures."""
    pages_with_omissions: Interval
    """The share of pages that lost text."""
    left_out: Counter[str]
    """What could not be compared, and how often."""

    @classmethod
    def of(cls, pages: Sequence[AuditedPage], num_readable: int, *, is_sample: bool) -> AuditReport:
        outcomes = Counter(page.outcome for page in pages)
        compared = [page for page in pages if page.outcome == "compared"]
        # of the table's pages as many have text, in proportion, as of those that were drawn
        num_with_text = round(num_readable * (len(pages) - outcomes["empty"]) / max(1, len(pages)))
        return cls(
            num_readable,
            is_sample,
            num_compared=len(compared),
            num_empty=outcomes["empty"],
            num_uncompared=outcomes["uncompared"],
            num_unreadable=outcomes["unreadable"],
            flagged=sum(bool(page.findings) for page in compared),
            characters=sum(page.characters for page in compared),
            uncompared=sum(page.uncompared for page in pages),
            omitted=share_interval(((page.omitted, page.characters) for page in compared), num_with_text),
            invented=share_interval(((page.invented, page.characters) for page in compared), num_with_text),
            different=share_interval(((page.different, page.characters) for page in compared), num_with_text),
            pages_with_omissions=share_interval(((page.omitted > 0, 1) for page in compared), num_with_text),
            left_out=Counter(name for page in pages for name in page.left_out),
        )


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


def audit_table(
    table: StoredRows,
    out: Path,
    choice: Choice,
    *,
    roots: Sequence[str],
    config: Config,
    on_page: Callable[[int], object] = lambda total: None,
) -> AuditReport:
    """Audit pages of a table into `out`, or go on with it where it was stopped; pages that were unreadable are tried
    again. config: password, page_timeout, workers. on_page: called with how many pages there are to do, for each that
    is done. Raises UsageError, OutputError."""
    reader = require_second_reader()
    require_writable(out)
    drawn = draw(table.rows(), choice)
    settings = _settings(drawn, choice, reader)
    with closing(AuditJournal(out, settings)) as journal:
        remove_leftovers([out])
        done = {position for position, page in journal.pages.items() if page.outcome != "unreadable"}
        waiting = set(drawn.positions).difference(done)

        def keep(page: AuditedPage) -> None:
            journal.append(page)
            on_page(len(waiting))

        if waiting:
            _audit(table, waiting, keep, roots, config)
        pages = journal.finish()
    return AuditReport.of(pages, drawn.num_readable, is_sample=choice.how != "worst")


def _settings(drawn: Drawn, choice: Choice, reader: str) -> Settings:
    chosen = {"how": choice.how, "number": str(choice.number), "seed": str(choice.seed)}
    return {"table": drawn.fingerprint} | chosen | {"reader": reader, "batchocr": own_version(), "revision": _REVISION}


def _audit(table: StoredRows, waiting: Set[int], keep: Keep, roots: Sequence[str], config: Config) -> None:
    """Audit the rows in these positions, and keep what is found. What a lost worker had is read once more."""
    setup = replace(Setup.of(config), protocol="lines", text_layer="off", orientation="off")
    sent: dict[int, tuple[PageResult, ReadPage]] = {}
    lost: list[ReadPage] = []
    with (
        SourceFiles(roots or table.input_roots, config) as files,
        WorkerPool(config.workers or usable_cores(), setup) as pool,
    ):
        for _, ended in pool.map(_tasks(table, waiting, files, sent, keep), config.page_timeout):
            if isinstance(ended, Loss):
                lost += [sent[position][1] for position in ended.task_ids]
            else:
                keep(_compared(ended.task_id, sent.pop(ended.task_id)[0], ended))
        for _, ended in pool.map(lost, config.page_timeout):
            for position in ended.task_ids if isinstance(ended, Loss) else [ended.task_id]:
                keep(_compared(position, sent.pop(position)[0], ended))


def _tasks(
    table: StoredRows,
    waiting: Set[int],
    files: SourceFiles,
    sent: dict[int, tuple[PageResult, ReadPage]],
    keep: Keep,
) -> Iterator[ReadPage]:
    """Yield a task for each page, which is in `sent` with its row until it is done. For pages that cannot be drawn,
    keep that they are unreadable."""
    find = lru_cache(maxsize=1)(files.find)
    for position, row in enumerate(table.rows()):
        if position not in waiting:
            continue
        file = find(row.source, row.doc_id)
        if isinstance(file, Failure):
            keep(_unreadable(position, row, file.message))
        else:
            sent[position] = row, draw_again(position, file, row)
            yield sent[position][1]


def _compared(position: int, row: PageResult, ended: object) -> AuditedPage:
    """What becomes of a page once its worker is done with it."""
    if isinstance(ended, Failed | Loss):
        return _unreadable(position, row, ended.failure.message)
    if not isinstance(ended, Finished) or (ended.reading.width, ended.reading.height) != (row.width, row.height):
        return _unreadable(position, row, "the page is not drawn as it was when it was read")
    lines = lines_of(ended.reading.blocks)
    found = compare_page(row.blocks, lines)
    has_text = any(line.text for line in lines) or any(block.content for block in row.blocks)

    def characters(*kinds: FindingKind) -> int:
        return sum(finding.characters for finding in found.findings if finding.kind in kinds)

    return AuditedPage(
        position,
        row.source,
        row.page_index or 0,
        row.doc_id,
        text_hash(row),
        outcome="compared" if found.characters else "uncompared" if has_text else "empty",
        characters=found.characters,
        uncompared=found.uncompared,
        omitted=characters("omitted"),
        invented=characters("invented"),
        different=characters("number", "different"),
        weight=sum(finding.weight for finding in found.findings),
        left_out=found.left_out,
        findings=found.findings,
    )


def _unreadable(position: int, row: PageResult, message: str) -> AuditedPage:
    return AuditedPage(position, row.source, row.page_index or 0, row.doc_id, text_hash(row), "unreadable", message)
