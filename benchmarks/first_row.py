"""When the first rows of one long PDF are there, and at which rate it is read, by the number of pages in flight.

    python -m benchmarks.first_row --pages 16 --in-flight 14 4 3 --rounds 2

The PDF repeats pages of `sample_data/documents`. The numbers are tried in turn, round by round, as the rate of a
machine drifts. The time runs from the moment the model is loaded.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
import pymupdf

from batchocr.api import run_with
from batchocr.config import Config
from batchocr.job.progress import RunProgress
from batchocr.job.stop import StopSwitch
from benchmarks.memory import is_engine
from benchmarks.record import ROOT, machine_facts
from benchmarks.wide_checkpoint import make_wide_checkpoint

DOCUMENTS = ROOT / "sample_data" / "documents"
MODELS = {
    "sample": ROOT / "sample_data" / "model",
    "quick": ROOT / "tests" / "support" / "quick_model" / "checkpoint",
}
DENSE = ("article.pdf", "two-columns.pdf")
SPARSE = ("scanned-letter.png",)


class Stopwatch:
    """A Progress that notes when each number of rows was reached, since it was first shown something: in seconds, and
    in seconds of the CPU time of this process and its engine, which other work on the machine disturbs less."""

    def __init__(self) -> None:
        self.rows: list[tuple[float, float]] = []
        self._began: tuple[float, float] | None = None

    def show(self, state: RunProgress) -> None:
        if self._began is not None and state.done == len(self.rows):
            return
        now = (time.perf_counter(), time.process_time() + engine_cpu_s())
        self._began = self._began or now
        passed = (now[0] - self._began[0], now[1] - self._began[1])
        self.rows += [passed] * (state.done - len(self.rows))

    def close(self) -> None:
        pass


def engine_cpu_s() -> float:
    engines = [child for child in psutil.Process().children() if is_engine(child)]
    return sum(engine.cpu_times().user + engine.cpu_times().system for engine in engines)


def make_pdf(path: Path, num_pages: int, names: Sequence[str]) -> Path:
    """Write a PDF that repeats the pages of these documents."""
    with pymupdf.open() as long, pymupdf.open() as once:
        for name in names:
            with pymupdf.open(DOCUMENTS / name) as document:
                pdf = document if document.is_pdf else pymupdf.open("pdf", document.convert_to_pdf())
                once.insert_pdf(pdf)
        for number in range(num_pages):
            page = number % once.page_count
            long.insert_pdf(once, from_page=page, to_page=page)
        long.save(path)
    return path


def measure(pdf: Path, model: Path, in_flight: int, out: Path) -> dict[str, float]:
    """Read the PDF once."""
    stopwatch = Stopwatch()
    config = Config(model=str(model), device="cpu", pages_in_flight=in_flight)
    report = run_with(config, pdf, out=out, stop=StopSwitch(None), progress=stopwatch)
    (first_s, first_cpu_s), (half_s, _), (_, all_cpu_s) = (
        stopwatch.rows[index] for index in (0, len(stopwatch.rows) // 2 - 1, -1)
    )
    return {
        "in_flight": in_flight,
        "pages": report.pages_read,
        "first_row_s": round(first_s, 1),
        "half_of_the_rows_s": round(half_s, 1),
        "pages_per_second": round(report.pages_per_second, 3),
        "decode_steps": report.stages["decode"].batches,
        "device_waits": round(report.device.starved_share, 3),
        "first_row_cpu_s": round(first_cpu_s, 1),
        "cpu_s_a_page": round(all_cpu_s / report.pages_read, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", choices=[*MODELS, "wide"], default="sample")
    parser.add_argument("--pages", type=int, default=16)
    parser.add_argument("--sparse", action="store_true", help="pages of few blocks")
    parser.add_argument("--in-flight", type=int, nargs="+", default=[14, 4])
    parser.add_argument("--rounds", type=int, default=2)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        temporary = Path(folder)
        pdf = make_pdf(temporary / "long.pdf", given.pages, SPARSE if given.sparse else DENSE)
        wide = given.checkpoint == "wide"
        model = make_wide_checkpoint(MODELS["quick"], temporary / "wide") if wide else MODELS[given.checkpoint]
        for round in range(given.rounds):
            for in_flight in given.in_flight:
                row = measure(pdf, model, in_flight, temporary / f"{round}-{in_flight}.jsonl")
                print(json.dumps(row), flush=True)
        import torch

        print(json.dumps(machine_facts(torch.device("cpu"))))


if __name__ == "__main__":
    main()
