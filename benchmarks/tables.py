"""Memory and time of `batchocr merge` and `batchocr compare` on tables of many rows.

    python -m benchmarks.tables --rows 200000

Rows as in `benchmarks.journal`: dense pages, in documents of 20. Two shards, one as Parquet and one as JSON Lines, are
merged; the merged table is compared with itself, and with one in the opposite order in which every twentieth page has
another text. Each command is a process of its own; its memory is the most that was resident in it.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from batchocr.data import PageResult
from batchocr.machine import peak_resident_bytes
from batchocr.pages.input.sources import in_shard
from batchocr.tables.schema import RunFacts
from batchocr.tables.table import table_for
from benchmarks.journal import DISTINCT_PAGES, DOCUMENT_PAGES, make_page, source_of
from benchmarks.record import ROOT, Record, benchmark_parser

CHANGED_EVERY = 20
SHARDS = 2

_LOOK_INTERVAL_S = 0.02

_FACTS = RunFacts("0", "benchmark", "f" * 64, "a" * 64, {})


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables in a folder: the shards, where they are merged, and the one in the opposite order."""

    folder: Path

    @property
    def shards(self) -> list[Path]:
        return [self.folder / "part-1.parquet", self.folder / "part-2.jsonl"]

    @property
    def merged(self) -> Path:
        return self.folder / "merged.parquet"

    @property
    def reversed(self) -> Path:
        return self.folder / "reversed.jsonl"

    def write(self, documents: int) -> None:
        """Write all but the merged one."""
        for index, shard in enumerate(self.shards, start=1):
            chosen = (number for number in range(documents) if in_shard(source_of(number), index, SHARDS))
            table_for(shard).write(shard, make_rows(chosen), _FACTS)
        backwards = make_rows(reversed(range(documents)))
        table_for(self.reversed).write(self.reversed, map(changed, backwards), _FACTS)


def make_rows(documents: Iterable[int]) -> Iterator[PageResult]:
    """The rows of these documents: always the same for the same document."""
    dice = random.Random(1)
    pages = [make_page(dice) for _ in range(DISTINCT_PAGES)]
    for number in documents:
        for page_index in range(DOCUMENT_PAGES):
            page = pages[(number * DOCUMENT_PAGES + page_index) % DISTINCT_PAGES]
            yield replace(page, source=source_of(number), page_index=page_index, doc_id=f"{number:064x}")


def changed(row: PageResult) -> PageResult:
    """The row, with every tenth letter lost if it is one of those that changed."""
    if row.page_index != CHANGED_EVERY // 2 or row.markdown is None:
        return row
    kept = (letter for place, letter in enumerate(row.markdown) if place % 10)
    return replace(row, markdown="".join(kept))


def measure(arguments: Sequence[str]) -> tuple[float, float]:
    """Run the command; returns its seconds and the most MB that it held."""
    started_s = time.perf_counter()
    peak_bytes = 0
    # Not the kernel's own count for children that have ended: it begins with what this process held.
    with subprocess.Popen(
        [sys.executable, "-m", "batchocr", *arguments], cwd=ROOT, stdout=subprocess.DEVNULL
    ) as process:
        while process.poll() is None:
            peak_bytes = max(peak_bytes, peak_resident_bytes(process.pid) or 0)
            time.sleep(_LOOK_INTERVAL_S)
    if process.returncode not in (0, 3):
        raise SystemExit(f"{' '.join(arguments)} ended with {process.returncode}")
    return time.perf_counter() - started_s, peak_bytes / 1e6


def commands(tables: Tables) -> dict[str, list[str]]:
    """What is measured, by name."""
    merged, other = str(tables.merged), str(tables.reversed)
    return {
        "merge": ["merge", *map(str, tables.shards), "--out", merged],
        "compare, one order": ["compare", merged, merged, "--json"],
        "compare, opposite orders": ["compare", merged, other, "--json"],
    }


def main(arguments: list[str] | None = None) -> None:
    parser = benchmark_parser(__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    given = parser.parse_args(arguments)
    rows = 400 if given.smoke else given.rows // DOCUMENT_PAGES * DOCUMENT_PAGES
    record = Record("tables", given)
    with tempfile.TemporaryDirectory() as folder:
        tables = Tables(Path(folder))
        tables.write(rows // DOCUMENT_PAGES)
        for name, command in commands(tables).items():
            seconds, peak_mb = measure(command)
            record.add({"command": name, "rows": rows, "s": seconds, "rows/s": rows / seconds, "peak MB": peak_mb})
            record.figure(f"{name.replace(', ', '_').replace(' ', '_')}_peak_mb", peak_mb)


if __name__ == "__main__":
    main()
