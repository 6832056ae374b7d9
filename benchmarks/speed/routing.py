"""What a page costs the main process of a run, which only routes, by the number of engines.

    python -m benchmarks.speed.routing --engines 1,2,4,8 --pages 300

The engines are processes that answer at once (`instant_engine.py`), with what a good model would say of the pages of
`sample_data/documents`. The workers render and cut these pages, as in a run. The CPU time counts from the first tenth
of the rows to the last, the journal included. The target: one core routes 100 pages/s, so that a page may take 10 ms.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from itertools import cycle, islice
from pathlib import Path

from benchmarks import QUICK_MODEL, ROOT
from benchmarks.foreseen import write_foreseen
from benchmarks.options import numbers
from benchmarks.record import Record, benchmark_parser
from benchmarks.text_layer import read_answers

DOCUMENTS = [ROOT / "sample_data" / "documents" / name for name in ("article.pdf", "two-columns.pdf")]


def main(arguments: list[str] | None = None) -> None:
    parser = benchmark_parser(__doc__)
    parser.set_defaults(device="cpu")
    parser.add_argument("--engines", type=numbers, default=[1, 2, 4, 8])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--pages", type=int, default=300)
    parser.add_argument("--pages-in-flight", type=int, default=64, help="for each engine")
    given = parser.parse_args(arguments)
    if given.smoke:
        given.engines, given.workers, given.pages, given.pages_in_flight = [2], 1, 40, 2
    record = Record("routing", given)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder, given.pages)
        for engines in given.engines:
            figures = run(folder, engines, given.workers, engines * given.pages_in_flight, given.pages // 10)
            cpu_ms = 1000 * (figures["user_s"] + figures["system_s"]) / figures["pages"]
            record.add(
                {
                    "engines": engines,
                    "workers": given.workers,
                    "pages": figures["pages"],
                    "CPU ms a page": cpu_ms,
                    "of it system": 1000 * figures["system_s"] / figures["pages"],
                    "pages/s a core": 1000 / cpu_ms,
                    "pages/s measured": figures["pages"] / figures["seconds"],
                }
            )
            record.figure(f"main_process_ms_a_page_{engines}", cpu_ms)


def prepare(folder: Path, num_pages: int) -> None:
    """Write copies of the documents, of two pages each, and the answers about their pages."""
    pages = list(read_answers(list(map(str, DOCUMENTS))))
    write_foreseen(folder / "answers.json", {key: answer for page in pages for key, answer in page.foreseen.items()})
    (folder / "documents").mkdir()
    for number, source in enumerate(islice(cycle(DOCUMENTS), 2 * num_pages // len(pages))):
        shutil.copy(source, folder / "documents" / f"{number}.pdf")


def run(folder: Path, *numbers: int) -> dict[str, float]:
    """Returns what `routed_run` prints."""
    command = [sys.executable, "-m", "benchmarks.speed.routed_run", str(folder), str(QUICK_MODEL), *map(str, numbers)]
    output = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    figures: dict[str, float] = json.loads(output.splitlines()[-1])
    return figures


if __name__ == "__main__":
    main()
