"""Time and memory needed to export a table of many rows.

    python -m benchmarks.export --rows 200000 --format md

Each row has the size of a dense page: 14 blocks with 5,300 letters, stored in the blocks and again in the Markdown, of
documents with 20 pages. None of the documents exists, and there are no figures. Memory is the peak of the command's own
process; its worker, which would look at the documents, is idle.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from batchocr.data import PageResult
from batchocr.tables import parquet
from batchocr.tables.schema import RunFacts
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


@dataclass(frozen=True, slots=True)
class Took:
    """What a command took: time on the clock and of the CPU in s, its workers' included; its own peak memory in MB."""

    seconds: float
    cpu_seconds: float
    peak_mb: float


def took(command: list[str]) -> Took:
    """Run the command to its end."""
    started_s = time.perf_counter()
    running = subprocess.Popen(command)
    peak_kb = 0
    while (ended := os.wait4(running.pid, os.WNOHANG))[0] == 0:
        with suppress(ProcessLookupError):
            lines = Path(f"/proc/{running.pid}/status").read_text().splitlines()
            peak_kb = max([peak_kb, *(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))])
        time.sleep(_LOOK_INTERVAL_S)
    _, status, usage = ended
    running.returncode = os.waitstatus_to_exitcode(status)  # or Popen would wait for it
    if running.returncode:
        raise SystemExit(f"the export ended with {running.returncode}")
    return Took(time.perf_counter() - started_s, usage.ru_utime + usage.ru_stime, peak_kb / 1000)


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
            cost = took(command)
            record.add(
                {
                    "what": what,
                    "rows": rows,
                    "s": cost.seconds,
                    "CPU s": cost.cpu_seconds,
                    "pages/s a core": rows / cost.cpu_seconds,
                    "peak MB": cost.peak_mb,
                }
            )
            record.figure(f"{what}.pages_per_second_a_core", rows / cost.cpu_seconds)
            record.figure(f"{what}.peak_mb", cost.peak_mb)


if __name__ == "__main__":
    main()
