"""`batchocr run` on real documents, compared with its engine alone on requests of the same sizes.

    python -m benchmarks.speed.end_to_end --copies 50
    python -m benchmarks.speed.end_to_end ./documents

The model has MinerU2.5's shape and random weights, so its answers are forced: from the pages' text layer
(`text_layer.py`) they get the length and the text of a good model's answers, so that layouts are parsed and blocks cut
and post-processed as in a real run. Then the engine is sent requests of the same sizes and output lengths from memory.
The target: the work outside the engine costs at most 15 %. Expected on an H200: with 40 copies 60 s.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from batchocr.api import find_inputs
from batchocr.config import Config, for_call
from batchocr.engine.engine import Engine
from batchocr.job.output_job import read_into_table
from batchocr.job.session import Session
from batchocr.job.stats.report import Report
from batchocr.job.stats.report_table import format_table
from batchocr.job.stop import StopSwitch
from batchocr.processes.meter import Meter
from batchocr.tables.output import Output
from benchmarks import ROOT
from benchmarks.loading import load, note_kernels
from benchmarks.options import add_engine_options, engine_options, peak_tflops
from benchmarks.record import Record, benchmark_parser
from benchmarks.replay import replay
from benchmarks.speed.forced_engine import write_foreseen
from benchmarks.text_layer import PageAnswers, read_answers
from benchmarks.trace import Trace
from benchmarks.true_shape import checkpoint

READABLE = ("article.pdf", "two-columns.pdf", "scanned-letter.png", "fax.tiff")
_WARM_UP_PAGES = 8


def run(session: Session, inputs: Sequence[str], *, limit: int | None = None) -> Report:
    """Do what `batchocr run` does once its model is loaded, and discard the table."""
    config = for_call(session.config, {"limit": limit})
    with tempfile.TemporaryDirectory() as folder:
        found, out = find_inputs(config, inputs), Path(folder) / "results.parquet"
        return read_into_table(session, config, found, Output(out), StopSwitch(), None)


def copied(inputs: Sequence[str], copies: int, folder: Path) -> list[str]:
    """Copy each document `copies` times. Returns the inputs to read."""
    for path in map(Path, inputs):
        for index in range(copies):
            shutil.copy(path, folder / f"{path.stem}-{index}{path.suffix}")
    return [str(folder)]


def measure(given: argparse.Namespace, folder: Path, inputs: list[str], record: Record) -> None:
    """Measure the whole run, then the engine alone, which is here in the benchmark's process."""
    pages: list[PageAnswers] = list(read_answers(given.documents))
    options = {name: value for name, value in engine_options(given).items() if value is not None}
    config = Config(
        model=str(folder), device=given.device, workers=given.workers, pages_in_flight=given.pages_in_flight, **options
    )
    report, session = measure_run(config, inputs, pages)
    model = load(Path(config.model), config.device, config.dtype, config.vit_dtype)
    note_kernels(record, model)
    engine = Engine(model, session.device_plan.limits)
    trace = Trace(tuple(page.asks for page in pages))
    few, all_pages = (trace.repeated(number) for number in (min(len(pages), _WARM_UP_PAGES), report.pages_read))
    replay(engine, model, few, pages_in_flight=session.device_plan.pages_in_flight, meter=Meter())
    alone = replay(engine, model, all_pages, pages_in_flight=session.device_plan.pages_in_flight, meter=Meter())
    record.add({"what": "batchocr run", "pages/s": report.pages_per_second, "pages": report.pages_read})
    record.add({"what": "engine alone"} | alone.rates(model.architecture, peak_tflops(record.device.type)))
    record.note("bottleneck", report.bottleneck)
    record.note("device_idle_share", report.device.idle_share)
    record.note("workers", report.workers)
    record.figure("pages_per_second", report.pages_per_second)
    record.figure("engine_pages_per_second", alone.pages_per_second)
    record.figure("share_of_engine", report.pages_per_second / alone.pages_per_second)
    print(format_table(report))


def measure_run(config: Config, inputs: Sequence[str], pages: Sequence[PageAnswers]) -> tuple[Report, Session]:
    """The report of a whole run, with the answers of these pages, and the session it was made with, which is closed."""
    with tempfile.TemporaryDirectory() as folder:
        answers = Path(folder) / "answers.json"
        write_foreseen(answers, {key: answer for page in pages for key, answer in page.foreseen.items()})
        command = (sys.executable, "-m", "benchmarks.speed.forced_engine", str(answers))
        session = Session(config, engine_command=command, reads_all=True)
        try:
            run(session, inputs, limit=_WARM_UP_PAGES)
            report = run(session, inputs)
        finally:
            session.close()
    if not report.pages_read == report.items.ok == report.items.found:
        raise RuntimeError(f"not every page was read: {report.items}, {report.errors}")
    return report, session


def main(arguments: list[str] | None = None) -> None:
    parser = benchmark_parser(__doc__)
    add_engine_options(parser)
    parser.add_argument("--pages-in-flight", type=int)
    parser.add_argument("documents", nargs="*", help="files or folders; those of sample_data if not given")
    parser.add_argument("--copies", type=int, default=1, help="read each file so many times")
    parser.add_argument("--workers", type=int)
    given = parser.parse_args(arguments)
    if not given.documents:
        names = READABLE[:1] if given.smoke else READABLE
        given.documents = [str(ROOT / "sample_data" / "documents" / name) for name in names]
    if given.smoke:
        given.copies = 1
    record = Record("end_to_end", given)
    with checkpoint(given.checkpoint, smoke=given.smoke) as folder, tempfile.TemporaryDirectory() as copies:
        inputs = copied(given.documents, given.copies, Path(copies)) if given.copies > 1 else given.documents
        measure(given, folder, inputs, record)


if __name__ == "__main__":
    main()
