"""What a page costs the main process of a run, which only routes, by the number of engines.

    python -m benchmarks.routing --engines 1,2,4,8 --pages 4000
    python -m benchmarks.routing --real-workers --pages 200
    python -m benchmarks.routing --engines 8 --profile
    python -m benchmarks.routing --engines 4 --saving none,run,cache

The engines are processes that answer at once (`instant_engine.py`), with what a good model would say of the pages of
`sample_data/documents`. So do the workers, with recorded pages and few pixels, so that the main process is as busy as
it can be; with --real-workers they render and cut whole pages, as in a run. The CPU time counts from the first tenth of
the rows to the last, the journal included. The target: one core routes 100 pages/s, so that a page may take 10 ms.

No two questions are the same. --saving says whether that is looked for: not at all, in this run, or in a cache on disk
as well, which has none of them and is given all.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from itertools import cycle, islice, product
from pathlib import Path

from benchmarks.foreseen import Foreseen, write_foreseen
from benchmarks.options import numbers
from benchmarks.record import QUICK_MODEL, ROOT, Record, benchmark_parser
from benchmarks.recorded import foreseen_of, record_pages, write_recording
from benchmarks.replaying_worker import PAGES_EACH
from benchmarks.text_layer import PageAnswers, read_answers

DOCUMENTS = [ROOT / "sample_data" / "documents" / name for name in ("article.pdf", "two-columns.pdf")]


def main(arguments: list[str] | None = None) -> None:
    parser = benchmark_parser(__doc__)
    parser.set_defaults(device="cpu")
    parser.add_argument("--engines", type=numbers, default=[1, 2, 4, 8])
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--pages", type=int, default=4000)
    parser.add_argument("--pages-in-flight", type=int, default=64, help="for each engine")
    parser.add_argument("--real-workers", action="store_true")
    parser.add_argument("--saving", type=lambda text: text.split(","), default=["run"])
    parser.add_argument("--profile", action="store_true", help="show where the time goes, which takes longer then")
    given = parser.parse_args(arguments)
    if given.real_workers:
        given.saving = ["none"]  # their documents are copies
    if given.smoke:
        given.engines, given.workers, given.pages, given.pages_in_flight = [2], 1, 40, 2
    with tempfile.TemporaryDirectory() as folder:
        measure(Record("routing", given), given, Path(folder))


def measure(record: Record, given: argparse.Namespace, folder: Path) -> None:
    pages = list(read_answers(list(map(str, DOCUMENTS))))
    documents, options = prepare(given, folder, pages)
    record.note("blocks a page", sum(len(page.blocks) for page in pages) / len(pages))
    for engines, saving in product(given.engines, given.saving):
        figures = run(
            *("--documents", str(documents), "--model", str(QUICK_MODEL), "--engines", str(engines), *options),
            *("--pages-in-flight", str(engines * given.pages_in_flight), "--workers", str(given.workers)),
            *("--warm-up", str(given.pages // 10), "--saving", saving),
            *(["--profile"] if given.profile else []),
        )
        cpu_ms = 1000 * (figures["user_s"] + figures["system_s"]) / figures["pages"]
        record.add(
            {
                "engines": engines,
                "saving": saving,
                "workers": given.workers,
                "pages": figures["pages"],
                "CPU ms a page": cpu_ms,
                "of it system": 1000 * figures["system_s"] / figures["pages"],
                "with start and table": figures["whole_ms"],
                "pages/s a core": 1000 / cpu_ms,
                "pages/s measured": figures["pages"] / figures["seconds"],
                "of a core": (figures["user_s"] + figures["system_s"]) / figures["seconds"],
            }
        )
        suffix = "" if saving == given.saving[0] else f"_{saving}"
        record.figure(f"main_process_ms_a_page_{engines}{suffix}", cpu_ms)


def prepare(given: argparse.Namespace, folder: Path, pages: list[PageAnswers]) -> tuple[Path, list[str]]:
    """A folder of documents with this many pages, and the options that say how they are answered."""
    documents, answers, recording = folder / "documents", folder / "answers.json", folder / "recording.json"
    documents.mkdir()
    known: Mapping[bytes, Foreseen] = {key: answer for page in pages for key, answer in page.foreseen.items()}
    if given.real_workers:
        for number, source in enumerate(islice(cycle(DOCUMENTS), 2 * given.pages // len(pages))):
            shutil.copy(source, documents / f"{number}{source.suffix}")
        write_foreseen(answers, known)
        return documents, ["--answers", str(answers)]
    for number in range(given.pages // PAGES_EACH):
        (documents / f"{number}.pdf").write_text(f"{number}")
    recorded = record_pages(list(map(str, DOCUMENTS)), known)
    write_recording(recording, recorded)
    write_foreseen(answers, foreseen_of(recorded))
    return documents, ["--answers", str(answers), "--recording", str(recording)]


def run(*options: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.routed_run", *options]
    output = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    figures: dict[str, float] = json.loads(output.splitlines()[-1])
    return figures


if __name__ == "__main__":
    main()
