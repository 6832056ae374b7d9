"""What a run on a Ray cluster costs: `python -m benchmarks.speed.scale_out`, on this machine alone, with a quick model.

Reads a book, which is divided, and letters: once with a plain run, then with each number of actors, and compares the
tables.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path

import batchocr.ray
from tests.support.running import draw_pdf, make_quick_model, texts


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=500, help="of the book; a tenth as many letters of one page")
    parser.add_argument("--actors", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--pages-per-task", type=int, default=100)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="b-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        os.environ["RAY_TMPDIR"] = folder
        found = compare_rates(Path(folder), given.pages, given.actors, given.pages_per_task)
        print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
