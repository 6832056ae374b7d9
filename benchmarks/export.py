"""Time and memory needed to export a table of many rows.

    python -m benchmarks.export --rows 200000 --format md

Each row has the size of a dense page: 14 blocks with 5,300 letters, stored in the blocks and again in the Markdown, of
documents with 20 pages. None of the documents exists, and there are no figures. Memory is the peak of the command's own
process; its worker, which would look at the documents, is idle.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from batchocr.data import PageResult
from batchocr.output import parquet
from batchocr.output.schema import RunFacts
from benchmarks.journal import DISTINCT_PAGES, DOCUMENT_PAGES, make_page, source_of
from benchmarks.record import Record, benchmark_parser

_FACTS = RunFacts("0", "benchmark", "f" * 64, "a" * 64, {"dpi": "200"})
_LOOK_INTERVAL_S = 0.1


def make_rows(rows: int) -> Iterator[PageResult]:
    dice = random.Random(rows)
    pages = [make_page(dice) for _ in range(DISTINCT_PAGES)]
    for number in range(rows):
        document, page_index = divmod(number, DOCUMENT_PAGES)
        doc_id = f"{document:064x}"
        yield replace(dice.choice(pages), source=source_of(document), page_index=page_index, doc_id=doc_id)


def peak_of(command: list[str]) -> tuple[float, float]:
    """Run the command; returns how long it took, in s, and the peak of its memory in MB."""
    started_s = time.perf_counter()
    peak_kb = 0
    with subprocess.Popen(command) as running:
        while running.poll() is None:
            status = Path(f"/proc/{running.pid}/status").read_text()
            peak_kb = max(
                [peak_kb, *(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))]
            )
            time.sleep(_LOOK_INTERVAL_S)
    if running.returncode:
        raise SystemExit(f"the export ended with {running.returncode}")
    return time.perf_counter() - started_s, peak_kb / 1000


def main(arguments: list[str] | None = None) -> None:
    parser = benchmark_parser(__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--format", default="md")
    given = parser.parse_args(arguments)
    rows = 400 if given.smoke else given.rows // DOCUMENT_PAGES * DOCUMENT_PAGES
    record = Record("export", given)
    with tempfile.TemporaryDirectory() as folder:
        table, to = Path(folder) / "t.parquet", Path(folder) / "out"
        parquet.write(table, make_rows(rows), _FACTS)
        command = [*(sys.executable, "-m", "batchocr", "export", str(table)), "--to", str(to), "--format", given.format]
        for what in ("all_new", "nothing_new"):
            seconds, peak_mb = peak_of(command)
            record.add({"what": what, "rows": rows, "s": seconds, "pages/s": rows / seconds, "peak MB": peak_mb})
            record.figure(f"{what}.pages_per_second", rows / seconds)
            record.figure(f"{what}.peak_mb", peak_mb)


if __name__ == "__main__":
    main()
