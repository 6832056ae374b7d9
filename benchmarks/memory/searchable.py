"""Time, size and memory of a long scan that is exported as a PDF to be searched.

    python -m benchmarks.memory.searchable [--pages 500] [--formats pdf]

The pages are those of the sample documents as JPEG, at 200 dpi, in one PDF; the rows are of their own text, as in
benchmarks.accuracy.word_boxes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pymupdf

from batchocr.config import Config
from batchocr.data import Block, PageResult
from batchocr.documents.export.export import Export
from batchocr.documents.export.folder import ExportFolder
from batchocr.documents.export.formats import FormatOptions
from batchocr.documents.export.names import Names
from batchocr.machine import peak_resident_bytes
from batchocr.processes.source_files import SourceFiles
from batchocr.tables.opened import open_rows
from batchocr.tables.schema import RunMetadata
from batchocr.tables.table import table_for
from benchmarks.accuracy.word_boxes import truth_of

DPI = 200
SAMPLES = ("article.pdf", "two-columns.pdf")


def long_scan(path: Path, num_pages: int) -> list[tuple[Block, ...]]:
    """A PDF of so many pages, each with an image of its own; returns their blocks."""
    pictures, blocks = [], []
    for name in SAMPLES:
        with pymupdf.open(Path("sample_data/documents") / name) as sample:
            for page in sample:
                pictures.append(page.get_pixmap(dpi=DPI).tobytes("jpeg", jpg_quality=80))
                blocks.append(tuple(block for _, block, _ in truth_of(page)))
    with pymupdf.open() as document:
        for number in range(num_pages):
            page = document.new_page(width=595, height=842)
            page.insert_image(page.rect, stream=pictures[number % len(pictures)] + number.to_bytes(4))
        document.save(path)
    return [blocks[number % len(blocks)] for number in range(num_pages)]


def write_rows(path: Path, pdf: Path, blocks: list[tuple[Block, ...]]) -> None:
    doc_id = hashlib.sha256(pdf.read_bytes()).hexdigest()
    with pymupdf.open(pdf) as document:
        size = document[0].get_pixmap(dpi=DPI)
    rows = [
        PageResult(
            *(pdf.name, index, "ok", doc_id, len(blocks), size.width, size.height, float(DPI)),
            markdown="",
            blocks=of_page,
        )
        for index, of_page in enumerate(blocks)
    ]
    table_for(path).write(path, rows, RunMetadata("0", "none", "f" * 64, "a" * 64, {"dpi": str(DPI)}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=500)
    parser.add_argument("--formats", default="pdf")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pdf = folder / "scan.pdf"
        write_rows(folder / "t.parquet", pdf, long_scan(pdf, options.pages))
        table = open_rows(str(folder / "t.parquet"), partial=False)
        config = replace(Config(model="none"), dpi=DPI)
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak of making the scan
        before, started, cpu = peak_resident_bytes() or 0, time.perf_counter(), time.process_time()
        with ExportFolder(folder / "out") as out, SourceFiles([name], config) as sources:
            done = Export(table, out, options.formats.split(","), FormatOptions(), sources).run(Names(table.sources()))
            seconds = time.perf_counter() - started
            worker = peak_resident_bytes(sources._pool.workers[0].pid)
            worker_cpu = sum(psutil.Process(sources._pool.workers[0].pid).cpu_times()[:2])
        made = sum(file.stat().st_size for file in (folder / "out").glob("scan.*"))
        found = {
            "pages": options.pages,
            "refused": done.refused,
            "ms_per_page": round(1000 * seconds / options.pages),
            "cpu_ms_per_page": round(1000 * (time.process_time() - cpu) / options.pages),
            "worker_cpu_ms_per_page": round(1000 * worker_cpu / options.pages),
            "original_mb": round(pdf.stat().st_size / 1e6, 1),
            "added_kb_per_page": round((made - pdf.stat().st_size) / 1e3 / options.pages, 1),
            "peak_main_mb": round((peak_resident_bytes() or 0) / 1e6),
            "peak_main_before_mb": round(before / 1e6),
            "peak_worker_mb": round((worker or 0) / 1e6),
        }
        print(json.dumps(found))


if __name__ == "__main__":
    main()
