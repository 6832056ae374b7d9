"""What a run on a Ray cluster costs: `python -m benchmarks.speed.scale_out`, on this machine alone, with a quick model.

Reads a book, which is divided, and letters: once with a plain run, then with each number of actors, and compares the
tables. Then the driver alone: documents counted, and items given to actors that return at once.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections import Counter
from pathlib import Path

import batchocr.ray
from batchocr.config import Config
from batchocr.input.sources import Found, find_documents
from batchocr.job.stop import StopSwitch
from batchocr.output.schema import RunFacts
from batchocr.ray import driver
from batchocr.ray.folder import OutputFolder, PartRows
from batchocr.ray.items import Item
from batchocr.ray.reader import ItemRead, Loaded, Reader
from tests.support.running import draw_pdf, make_quick_model, texts

_FACTS = RunFacts(batchocr.__version__, "none", "0", "0", {"dtype": "float32"})


class InstantReader(Reader):
    """Has no model, and read every item before."""

    def load(self) -> Loaded:
        return Loaded("here", os.getpid(), _FACTS, {})

    def read(self, item: Item, *, again: bool) -> ItemRead:
        return ItemRead(PartRows(Counter(), Counter()), None)


def compare_rates(place: Path, pages: int, actors: list[int], pages_per_task: int) -> dict[str, object]:
    """Pages/s of a plain run and of runs on a cluster, and whether their rows are the same."""
    (place / "in").mkdir()
    model = make_quick_model(place / "model")
    draw_pdf(place / "in" / "book.pdf", *(f"Page {number}" for number in range(pages)))
    for number in range(pages // 10):
        draw_pdf(place / "in" / f"letter-{number}.pdf", f"Dear reader {number}")
    plain = batchocr.run(place / "in", out=place / "plain.parquet", model=model)
    found: dict[str, object] = {
        "plain": {"pages_per_second": plain.pages_per_second, "wall_seconds": plain.wall_seconds}
    }
    rows = texts(batchocr.open_table(place / "plain.parquet").rows())
    for count in actors:
        out = place / f"out-{count}"
        report = batchocr.ray.run(place / "in", out=out, model=model, actors=count, pages_per_task=pages_per_task)
        found[f"{count} actors"] = {
            "pages_per_second": report.pages_per_second,
            "wall_seconds": report.wall_seconds,
            "start_up_seconds": report.start_up_seconds,
            "busy_share": [actor.busy_seconds / actor.ready_seconds for actor in report.actors],
            "parts": report.parts.planned,
            "same_rows": texts(batchocr.open_table(out).rows()) == rows,
        }
    return found


def measure_driver(place: Path, documents: int) -> dict[str, object]:
    """CPU time of the driver for an item that is read at once, and what counting the pages of a document takes."""
    (place / "many").mkdir()
    content = draw_pdf(place / "one.pdf", "one", "two").read_bytes()
    for number in range(documents):
        (place / "many" / f"{number}.pdf").write_bytes(content)
    listed = find_documents([str(place / "many")])
    found, config, folder = Found(listed.documents, {}, listed.roots), Config(), OutputFolder(str(place / "parts"))
    began_s = time.perf_counter()
    items = driver.plan_items(found, config, None, 2)
    planned_s = time.perf_counter()
    driver.Reader = InstantReader  # type: ignore[misc,attr-defined]
    running = driver.Driver(config, found, folder, items, None, actors=2)
    cpu_s = time.process_time()
    running.run(None, StopSwitch(), None)
    ended_s, cpu_s = time.perf_counter(), time.process_time() - cpu_s
    return {
        "documents": documents,
        "seconds_to_plan_a_document": (planned_s - began_s) / documents,
        "items": len(items),
        "driver_cpu_seconds_an_item": cpu_s / len(items),
        "items_per_second": len(items) / (ended_s - (running.first_ready_s or planned_s)),
        "bytes_of_run_json_an_item": (place / "parts" / "run.json").stat().st_size / len(items),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=500, help="of the book; a tenth as many letters of one page")
    parser.add_argument("--actors", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--pages-per-task", type=int, default=100)
    parser.add_argument("--documents", type=int, default=2000, help="for the driver alone, an item each")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="b-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        os.environ["RAY_TMPDIR"] = folder
        place = Path(folder)
        if given.pages:
            found = compare_rates(place, given.pages, given.actors, given.pages_per_task)
            print(json.dumps(found, indent=2), flush=True)
        if given.documents:
            print(json.dumps(measure_driver(place, given.documents), indent=2))


if __name__ == "__main__":
    main()
