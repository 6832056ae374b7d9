"""Memory and time needed to continue from a journal of many rows, and to build the table from it.

    python -m benchmarks.journal --rows 200000

Each row has the size of a dense page: 14 blocks with 5,300 letters, stored in the blocks and again in the Markdown. The
journal's rows are in order of completion, not of input. Memory is what this process holds beyond what it held before it
opened the journal.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
from pydantic import TypeAdapter

from batchocr.data import Block, Document, PageResult
from batchocr.job.intake import Intake
from batchocr.job.output_job import rows_in_order
from batchocr.machine import peak_resident_bytes, return_freed_memory
from batchocr.storage.checksums import checked_line
from batchocr.tables import parquet
from batchocr.tables.files import journal_path
from batchocr.tables.journal import Journal, JournalEntry
from batchocr.tables.schema import RunFacts, facts_to_json
from benchmarks.record import Record, benchmark_parser

BLOCKS = 14
BLOCK_LETTERS = 380
DOCUMENT_PAGES = 20
DISTINCT_PAGES = 1000
OUT_OF_ORDER = 32
"""A page is finished ahead of at most this many earlier pages."""

_FACTS = RunFacts("0", "benchmark", "f" * 64, "a" * 64, {})
_LETTERS = "etaoin shrdlu cmfwyp vbgkqj xz, ETAOIN. SHRDLU 0123456789 "


def make_page(dice: random.Random) -> PageResult:
    """A dense page of random letters."""
    texts = ["".join(dice.choices(_LETTERS, k=BLOCK_LETTERS)) for _ in range(BLOCKS)]
    blocks = (
        Block("text", (0.1, dice.random(), 0.9, 1.0), 0, text, False, dice.random(), -dice.random(), 106, "stop")
        for text in texts
    )
    return PageResult(
        "", 0, "ok", None, DOCUMENT_PAGES, 1700, 2200, 200.0, None, None, "\n\n".join(texts), tuple(blocks), 4500, 1480
    )


def make_entries(rows: int) -> Iterator[JournalEntry]:
    """Rows of documents with `DOCUMENT_PAGES` pages, in order of completion."""
    dice = random.Random(rows)
    pages = [make_page(dice) for _ in range(DISTINCT_PAGES)]
    for number in sorted(range(rows), key=lambda number: number + dice.uniform(0, OUT_OF_ORDER)):
        document, page_index = divmod(number, DOCUMENT_PAGES)
        result = replace(
            dice.choice(pages), source=source_of(document), page_index=page_index, doc_id=f"{document:064x}"
        )
        yield JournalEntry(result, size=1_000_000 + document, mtime_ns=1_700_000_000_000_000_000 + document)


def source_of(document: int) -> str:
    return f"archive/part-{document // 1000:04}/document-{document:08}.pdf"


def write_journal(out: Path, rows: int) -> None:
    """Write the journal of a run that was killed after reading all pages. No index is built here, so that its memory
    does not affect the measurement."""
    entry_type = TypeAdapter(JournalEntry)
    with journal_path(out).open("wb") as file:
        file.write(checked_line(facts_to_json(_FACTS)))
        file.writelines(checked_line(entry_type.dump_json(entry)) for entry in make_entries(rows))


def make_intake(documents: int, journal: Journal) -> Intake:
    """The intake of a run that has gone through its documents and found every page read already."""
    sources = [source_of(document) for document in range(documents)]
    intake = Intake([Document(source, source) for source in sources], None, journal, limit=None)
    for index in range(documents):
        intake.opened(index, page_count=DOCUMENT_PAGES, doc_id=f"{index:064x}", size=0, mtime_ns=0)
    return intake


def measure(record: Record, out: Path, rows: int) -> None:
    """Open the journal as a resumed run does, and build the table as a run does once everything is read."""
    process = psutil.Process()
    return_freed_memory()
    before_bytes = process.memory_info().rss
    started_s = time.perf_counter()
    with Journal.open(out, _FACTS, resume=True, overwrite=False) as journal:
        opened_s = time.perf_counter()
        index_bytes = process.memory_info().rss - before_bytes
        intake = make_intake(rows // DOCUMENT_PAGES, journal)
        intake_bytes = process.memory_info().rss - before_bytes - index_bytes
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak
        writing_s = time.perf_counter()
        parquet.write(out, rows_in_order(intake, journal), _FACTS)
        written_s = time.perf_counter()
        peak_bytes = (peak_resident_bytes() or 0) - before_bytes
    record.add(
        {
            "rows": rows,
            "journal GB": journal_path(out).stat().st_size / 1e9,
            "table GB": out.stat().st_size / 1e9,
            "open s": opened_s - started_s,
            "index MB": index_bytes / 1e6,
            "intake MB": intake_bytes / 1e6,
            "table s": written_s - writing_s,
            "peak MB": peak_bytes / 1e6,
        }
    )
    record.figure("index_bytes_per_row", index_bytes / rows)
    record.figure("peak_mb", peak_bytes / 1e6)


def main(arguments: list[str] | None = None) -> None:
    parser = benchmark_parser(__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    given = parser.parse_args(arguments)
    rows = 400 if given.smoke else given.rows // DOCUMENT_PAGES * DOCUMENT_PAGES
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "results.parquet"
        write_journal(out, rows)
        measure(Record("journal", given), out, rows)


if __name__ == "__main__":
    main()
