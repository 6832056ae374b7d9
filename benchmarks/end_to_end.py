"""`batchocr run` on real documents, compared with its engine alone on requests of the same sizes.

    python -m benchmarks.end_to_end --copies 50
    python -m benchmarks.end_to_end ./documents

The model has MinerU2.5's shape and random weights, so its answers are forced: from the pages' text layer
(`text_layer.py`) they get the length and the text of a good model's answers, so that layouts are parsed and blocks cut
and post-processed as in a real run. Then the engine is sent requests of the same sizes and output lengths from memory.
The target: the work outside the engine costs at most 15 %.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from batchocr.api import find_inputs
from batchocr.config import Config
from batchocr.data import Completion, Request
from batchocr.engine.engine import Engine
from batchocr.engine.limits import EngineLimits
from batchocr.job.output_job import read_into_table
from batchocr.job.session import Session
from batchocr.job.stop import StopSwitch
from batchocr.model.checkpoint import Model
from batchocr.stats.meter import Meter
from batchocr.stats.report import Report
from batchocr.stats.report_table import format_table
from benchmarks.loading import load, note_kernels
from benchmarks.options import add_engine_options, engine_options, peak_tflops
from benchmarks.record import ROOT, Record, benchmark_parser
from benchmarks.replay import replay
from benchmarks.text_layer import Answer, PageAnswers, pixels_key, read_answers
from benchmarks.trace import Trace
from benchmarks.true_shape import checkpoint

READABLE = ("article.pdf", "two-columns.pdf", "scanned-letter.png", "fax.tiff")
_WARM_UP_PAGES = 8


class ForcedEngine(Engine):
    """Answers a request whose pixels it knows with the text set for it, after as many tokens as that text takes.

    num_unknown: requests that it did not know and passed on unchanged.
    """

    def __init__(self, model: Model, limits: EngineLimits, answers: Mapping[bytes, Answer]) -> None:
        super().__init__(model, limits)
        self._answers = answers
        self._texts: dict[int, str] = {}
        self.num_unknown = 0

    def submit(self, request_id: int, request: Request) -> Completion | None:
        answer = self._answers.get(pixels_key(request.pixels))
        if answer is None:
            self.num_unknown += 1
            return super().submit(request_id, request)
        self._texts[request_id] = answer.text
        sampling = replace(request.sampling, max_new_tokens=answer.ask.output_tokens, loop_check="never")
        return super().submit(request_id, replace(request, sampling=sampling))

    def step(self, meter: Meter) -> list[tuple[int, Completion]]:
        return [
            (request_id, replace(completion, text=self._texts.pop(request_id, ""), finish_reason="stop"))
            for request_id, completion in super().step(meter)
        ]


class ForcedSession(Session):
    """The product's session with a forced engine."""

    def __init__(self, config: Config, answers: Mapping[bytes, Answer]) -> None:
        super().__init__(config)
        self.model = load(Path(config.model), config.device, config.dtype, config.vit_dtype)
        self.forced = ForcedEngine(self.model, self.limits, answers)

    def load(self) -> Engine:
        return self.forced


def run(session: Session, inputs: Sequence[str]) -> Report:
    """Do what `batchocr run` does once its model is loaded, and discard the table."""
    with tempfile.TemporaryDirectory() as folder:
        found = find_inputs(session.config, inputs)
        out = Path(folder) / "results.parquet"
        return read_into_table(
            session, session.config, found, out, StopSwitch(None), None, started_s=time.perf_counter()
        )


def copied(inputs: Sequence[str], copies: int, folder: Path) -> list[str]:
    """Copy each document `copies` times, so that each copy is read anew. Returns the inputs to read."""
    for path in map(Path, inputs):
        for index in range(copies):
            shutil.copy(path, folder / f"{path.stem}-{index}{path.suffix}")
    return [str(folder)]


def measure(given: argparse.Namespace, folder: Path, inputs: list[str], record: Record) -> None:
    """Measure the whole run, then the engine alone."""
    pages: list[PageAnswers] = list(read_answers(given.documents))
    answers = {answer.key: answer for page in pages for answer in (page.layout, *page.blocks)}
    options = {name: value for name, value in engine_options(given).items() if value is not None}
    config = Config(
        model=str(folder), device=given.device, workers=given.workers, pages_in_flight=given.pages_in_flight, **options
    )
    session = ForcedSession(config, answers)
    note_kernels(record, session.model)
    trace = Trace("the run's own requests", tuple(page.asks for page in pages))
    few = trace.repeated(min(len(pages), _WARM_UP_PAGES))
    replay(session.forced, session.model, few, pages_in_flight=session.pages_in_flight, meter=Meter())
    session.forced.num_unknown = 0
    report = run(session, inputs)
    if session.forced.num_unknown or report.items.ok != report.items.found:
        raise RuntimeError(f"{session.forced.num_unknown} requests were not foreseen; {report.items}, {report.errors}")
    trace = trace.repeated(report.pages_read)
    alone = replay(session.forced, session.model, trace, pages_in_flight=session.pages_in_flight, meter=Meter())
    peak = peak_tflops(record.device.type)
    record.add({"what": "batchocr run", "pages/s": report.pages_per_second, "pages": report.pages_read})
    record.add({"what": "engine alone"} | alone.rates(session.model.architecture, peak))
    record.note("bottleneck", report.bottleneck)
    record.note("device_idle_share", report.device.idle_share)
    record.note("workers", report.workers)
    record.figure("pages_per_second", report.pages_per_second)
    record.figure("engine_pages_per_second", alone.pages_per_second)
    record.figure("share_of_engine", report.pages_per_second / alone.pages_per_second)
    print(format_table(report))


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
    record = Record("end_to_end", given)
    with checkpoint(given.checkpoint, smoke=given.smoke) as folder, tempfile.TemporaryDirectory() as copies:
        inputs = copied(given.documents, given.copies, Path(copies)) if given.copies > 1 else given.documents
        measure(given, folder, inputs, record)


if __name__ == "__main__":
    main()
