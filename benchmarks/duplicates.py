"""What share of a folder's documents, pages and questions is there more than once, and what finding that out costs.

    python -m benchmarks.duplicates FOLDER [--model DIR]

Documents are the same if their bytes are, pages and questions if a run takes them for the same: the pixels, and what is
asked about them how. Which questions a model would have asked is not known without one: the blocks of a page are those
of its own text, and eight bands of a page that has none (`text_layer.py`). The image area of the questions that remain
says what is left for the model to do. The hash is timed on images of the same sizes, one question after the other.

With a model, the folder is also read by it, in full and as a run does it, one after the other.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from batchocr.api import find_inputs
from batchocr.config import Config
from batchocr.data import Pixels, Request, Sampling
from batchocr.job.output_job import read_into_table
from batchocr.job.session import Session
from batchocr.job.stop import StopSwitch
from batchocr.pages.input.sources import find_documents
from batchocr.processes.pixels import digest_of
from benchmarks.record import ROOT, Record, Row, benchmark_parser
from benchmarks.text_layer import Answer, read_answers
from benchmarks.trace import Ask

SAMPLES = ROOT / "sample_data" / "documents"


def main(arguments: list[str] | None = None) -> None:
    parser = benchmark_parser(__doc__)
    parser.set_defaults(device="cpu")
    parser.add_argument("folder", type=Path, nargs="*", default=[SAMPLES])
    parser.add_argument("--model", type=Path)
    given = parser.parse_args(arguments)
    record, inputs = Record("duplicates", given), [str(path) for path in given.folder]
    measure(record, inputs)
    if given.model is not None:
        for reads_all in (True, False):
            record.add(_figures_of_a_run(inputs, str(given.model), given.device, reads_all=reads_all))


@dataclass(slots=True)
class _Seen:
    """Things of one kind, of which each has a name that only its like have. area: in px, of images."""

    count: int = 0
    area: float = 0.0
    distinct: dict[str, float] = field(default_factory=dict)

    def add(self, name: str, area: float = 0.0) -> None:
        self.count += 1
        self.area += area
        self.distinct.setdefault(name, area)

    @property
    def share_repeated(self) -> float:
        return 1 - len(self.distinct) / self.count if self.count else 0.0

    @property
    def share_of_area_repeated(self) -> float:
        return 1 - sum(self.distinct.values()) / self.area if self.area else 0.0


def measure(record: Record, inputs: Sequence[str]) -> None:
    documents, pages, blocks = _Seen(), _Seen(), _Seen()
    asks: list[Ask] = []
    for document in find_documents(inputs).documents:
        documents.add(hashlib.sha256(Path(document.path).read_bytes()).hexdigest())
        for page in read_answers([document.path]):
            pages.add(page.layout.digest, _area(page.layout))
            asks += [answer.ask for answer in (page.layout, *page.blocks)]
            for answer in page.blocks:
                blocks.add(answer.digest, _area(answer))
    both = _Seen(pages.count + blocks.count, pages.area + blocks.area, pages.distinct | blocks.distinct)
    kinds = {"documents": documents, "pages": pages, "block questions": blocks, "all questions": both}
    for name, seen in kinds.items():
        record.add(
            {
                "what": name,
                "there": seen.count,
                "distinct": len(seen.distinct),
                "repeated %": 100 * seen.share_repeated,
                "of image area %": 100 * seen.share_of_area_repeated,
            }
        )
        record.figure(f"repeated_{name.replace(' ', '_')}", seen.share_repeated)
    _time_hash(record, asks, max(1, pages.count))


def _figures_of_a_run(inputs: Sequence[str], model: str, device: str, *, reads_all: bool) -> Row:
    config = Config(model=model, device=device, max_page_error_rate=1.0)
    with TemporaryDirectory() as folder, closing(Session(config, reads_all=reads_all)) as session:
        found, out = find_inputs(config, inputs), Path(folder) / "out.parquet"
        started_s = time.perf_counter()
        report = read_into_table(session, config, found, out, StopSwitch(), None, started_s=started_s)
    return {
        "run": "all is read" if reads_all else "as usual",
        "pages": report.items.ok + report.items.degraded,
        "questions asked": report.stages["vit"].items,
        "million patches": report.per_page.patches * report.pages_read / 1e6,
        "work s": report.work_seconds,
    }


def _area(answer: Answer) -> float:
    side = answer.ask.resize_to
    return float(side * side if side else answer.ask.height * answer.ask.width)


def _time_hash(record: Record, asks: Sequence[Ask], num_pages: int) -> None:
    largest = max((ask.height * ask.width * 3 for ask in asks), default=0)
    data = memoryview(os.urandom(largest))
    num_bytes, started_s = 0, time.process_time()
    for ask in asks:
        pixels = Pixels(ask.height, ask.width, data[: ask.height * ask.width * 3])
        digest_of(Request(pixels, "", Sampling(1)))
        num_bytes += len(pixels.data)
    seconds = time.process_time() - started_s
    record.note("hash, CPU ms a page", 1000 * seconds / num_pages)
    record.note("hash, MB a page", num_bytes / num_pages / 1e6)
    record.figure("hash_ms_a_page", 1000 * seconds / num_pages)


if __name__ == "__main__":
    main()
