"""What the driver of a cluster costs for many documents: until it is known what to read, for each item, and at the end.

    python -m benchmarks.speed.scale_out --documents 100000 1000000 10000000

The documents are made up, of one page each, and listed as those of a store; no file is opened. Each step runs in a
process of its own: `listing` alone; `first`, the plan of a run that has read nothing; `next`, that of one over a table
with 99 of 100 documents; `end`, what is to be written of items that hold all of them, up to the parts, without writing.
`peak_mb` is of the whole process, with imports and listing; `cpu_s` is without them. `items` has actors of Ray return
each item at once, as many as there are for a million documents.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from batchocr.config import Config
from batchocr.data import Document, Status
from batchocr.job.output_rows import OutputRows
from batchocr.job.row_plan import RowPlan
from batchocr.job.stop import StopSwitch
from batchocr.job.unread import find_unread, take_as_read
from batchocr.machine import return_freed_memory
from batchocr.pages.input.sources import Found
from batchocr.ray.cluster import PAGES_PER_TASK, Cluster
from batchocr.ray.driver import Driver
from batchocr.ray.items import Items
from batchocr.ray.reader import ItemRead, Loaded, Reader
from batchocr.storage.listing import Documents
from batchocr.tables.known import KNOWN_SCHEMA, KnownRows, Overlay
from batchocr.tables.parts import divided
from batchocr.tables.schema import RunMetadata
from batchocr.tables.target import Target
from benchmarks import ROOT

_ROWS_PER_PART = 16384
_MTIME_NS = 1_700_000_000_000_000_000
_AT_ONCE = 8192


def made_up(count: int) -> Iterator[Document]:
    """Documents as a store lists them."""
    for number in range(count):
        name = f"{number // 1000:06}/document-{number:09}.pdf"
        yield Document(f"s3://bucket/in/{name}", name, size=50_000 + number % 1000, mtime_ns=_MTIME_NS + number)


def rows_of(first: int, stop: int) -> Iterator[pa.Table]:
    """What a run looks at in the rows of some of them."""
    for start in range(first, stop, _AT_ONCE):
        numbers = range(start, min(stop, start + _AT_ONCE))
        columns = {
            "source": [f"{number // 1000:06}/document-{number:09}.pdf" for number in numbers],
            "status": ["ok"] * len(numbers),
            "doc_id": [f"{number:064x}" for number in numbers],
            "error_kind": [None] * len(numbers),
            "page_index": [0] * len(numbers),
            "page_count": [1] * len(numbers),
            "attempts": [1] * len(numbers),
            "file_bytes": [50_000 + number % 1000 for number in numbers],
            "file_mtime_ns": [_MTIME_NS + number for number in numbers],
            "ink_outside": [0.01] * len(numbers),
            "text_layer_agreement": [0.98] * len(numbers),
            "blocks": [[]] * len(numbers),
        }
        yield pa.table(columns, KNOWN_SCHEMA)


def _journal(known: KnownRows, num_before: int) -> Any:
    return SimpleNamespace(known=Overlay(known), num_before=num_before)


def _plan(documents: Documents, journal: Any) -> int:
    plan = RowPlan(documents, None, journal, limit=None)
    new, sizes, some = find_unread(plan, Config())
    items = Items(PAGES_PER_TASK)
    return len([*items.of(new, sizes), *items.of_some(some)])


def _end(documents: Documents, known: KnownRows) -> int:
    journal = _journal(known, 0)
    plan = RowPlan(documents, None, journal, limit=None, retry_failed=False)
    take_as_read(plan, journal)
    assert plan.is_complete
    rows = OutputRows(plan, journal, Found(documents, {}), prune=False)
    earlier = SimpleNamespace(columns=known)
    return len([sum(1 for _ in of_part) for _, of_part in divided(rows, earlier, _ROWS_PER_PART)])


def measured(step: str, count: int) -> dict[str, float]:
    """What a step costs, in this process."""
    documents = Documents(made_up(count))
    begun: Callable[[], int]
    if step == "next":
        known = KnownRows(rows_of(0, count - count // 100))
        begun = lambda: _plan(documents, _journal(known, known.num_rows))  # noqa: E731
    elif step == "end":
        known = KnownRows((), *(rows_of(at, min(count, at + PAGES_PER_TASK)) for at in range(0, count, PAGES_PER_TASK)))
        begun = lambda: _end(documents, known)  # noqa: E731
    elif step == "first":
        begun = lambda: _plan(documents, None)  # noqa: E731
    else:
        begun = lambda: len(documents)  # noqa: E731
    return_freed_memory()  # as the driver does
    start_s = time.process_time()
    made = begun()
    cpu_s = time.process_time() - start_s
    return {"cpu_s": cpu_s, "made": made, "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3}


class AtOnce(Reader):
    """Has read an item as soon as it is asked to."""

    def load(self) -> Loaded:
        return Loaded("here", RunMetadata("0.1.0", "none", "0", "0", {}), {})

    def read(self, documents: Sequence[Document]) -> ItemRead:
        return ItemRead(rows=Counter[Status](ok=len(documents)))


def of_items(count: int) -> dict[str, float]:
    """What items of so many documents cost the driver, Ray included."""
    import batchocr.ray.driver

    batchocr.ray.driver.Reader = AtOnce  # type: ignore[misc,assignment]
    reads: list[ItemRead] = []
    driver = Driver(
        Config(workers=1),
        Cluster(actors=2),
        Target("/nowhere", 1),
        (),
        metadata=None,
        on_ready=lambda _: None,
        on_read=reads.append,
    )
    documents = Documents(made_up(count))
    items = driver.items.of(documents, documents.versions()[0])
    driver.read(items[:2], StopSwitch(), lambda: None)  # the actors are ready then
    start_s, begun_s = time.process_time(), time.monotonic()
    driver.read(items[2:], StopSwitch(), lambda: None)
    cpu_s, seconds = time.process_time() - start_s, time.monotonic() - begun_s
    driver.close()
    return {"items": len(items), "cpu_ms_an_item": 1e3 * cpu_s / len(items), "items_per_s": len(items) / seconds}


def main() -> None:
    """Measure each step for each number of documents."""
    if sys.argv[1:2] == ["--one"]:
        step, count = sys.argv[2], int(sys.argv[3])
        print(json.dumps(of_items(count) if step == "items" else measured(step, count)))
        return
    from benchmarks.record import Record, benchmark_parser  # which load torch

    parser = benchmark_parser(__doc__)
    parser.add_argument("--documents", type=int, nargs="+", default=[100_000])
    arguments = parser.parse_args()
    record = Record(Path(__file__).stem, arguments)
    counts = [2000] if arguments.smoke else arguments.documents
    asked = [(step, count) for count in counts for step in ("listing", "first", "next", "end")]
    for step, count in [*asked, ("items", min(1_000_000, max(counts)))]:
        command = [sys.executable, "-m", "benchmarks.speed.scale_out", "--one", step, str(count)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        record.add({"documents": count, "step": step, **json.loads(done.stdout.splitlines()[-1])})


if __name__ == "__main__":
    main()
