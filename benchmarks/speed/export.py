"""Documents a second that `export` writes with different numbers of workers, in turn.

    python -m benchmarks.speed.export --documents 2000 --workers 1 2

The documents are PDFs of two pages with a figure on the second, and their rows are made up. Each export goes into a new
folder, and all must hold the same bytes. CPU seconds are of the command and its workers together.
"""

from __future__ import annotations

import hashlib
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pymupdf
from PIL import Image

from batchocr.data import Block, PageResult
from batchocr.pages.input.folders import EXPORT_RECORD
from batchocr.pages.input.render import open_document
from batchocr.tables.schema import RunMetadata
from benchmarks.record import Record, benchmark_parser
from tests.support.tables import put_table

DPI = 200
_PAGE = (595, 842)
_FIGURE = (100, 300, 500, 600)
_METADATA = RunMetadata("0.1.0", "made up", "f" * 64, "a" * 64, {"dpi": str(DPI)})


def draw(path: Path, number: int) -> None:
    """Write a document of two pages with a figure that is noise."""
    noise = Image.effect_noise((160, 120), 50 + number % 50).convert("RGB")
    with pymupdf.open() as document:
        for page_number in (1, 2):
            page = document.new_page(width=_PAGE[0], height=_PAGE[1])
            for line in range(14):
                text = f"Document {number}, page {page_number}, line {line}: the quick brown fox jumps over it."
                page.insert_text((50, 60 + 14 * line), text, fontsize=10)
        page.insert_image(_FIGURE, pixmap=pymupdf.Pixmap(pymupdf.csRGB, *noise.size, noise.tobytes(), False))
        document.save(path)


def rows_of(path: Path, number: int, size: tuple[int, int]) -> Iterator[PageResult]:
    """Rows as a run might have made them."""
    doc_id = hashlib.sha256(path.read_bytes()).hexdigest()
    text = Block("text", (0.08, 0.06, 0.9, 0.3), 0, f"Document {number}. " + "The quick brown fox. " * 40)
    x0, y0, x1, y1 = _FIGURE
    figure = Block("image", (x0 / _PAGE[0], y0 / _PAGE[1], x1 / _PAGE[0], y1 / _PAGE[1]), 0, None)
    for index, blocks in enumerate(((text,), (text, figure))):
        yield PageResult(path.name, index, "ok", doc_id, 2, *size, float(DPI), markdown="", blocks=blocks)


def make_table(folder: Path, documents: int) -> Path:
    """The table of so many documents, which are in `folder/documents`."""
    found = folder / "documents"
    found.mkdir()
    paths = [found / f"{number:05}.pdf" for number in range(documents)]
    for number, path in enumerate(paths):
        draw(path, number)
    document = open_document(str(paths[0]), password=None, dpi=DPI)
    size = document.render(1).image.size
    document.close()
    rows = [row for number, path in enumerate(paths) for row in rows_of(path, number, size)]
    put_table(table := folder / "t.parquet", rows, _METADATA)
    return table


def export(table: Path, to: Path, workers: int) -> dict[str, float]:
    """What an export took."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [sys.executable, "-m", "batchocr", "export", table, "--to", to, "--input", table.parent / "documents"]
    subprocess.run([*map(str, command), "--workers", str(workers), "--quiet"], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"seconds": time.perf_counter() - began, "cpu_seconds": cpu_s}


def digest_of(folder: Path) -> str:
    """Of all files of an export, and their names."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(EXPORT_RECORD))
    digest = hashlib.sha256()
    for path in files:
        digest.update(str(path.relative_to(folder)).encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def main(arguments: list[str] | None = None) -> None:
    parser = benchmark_parser(__doc__)
    parser.add_argument("--documents", type=int, default=2000)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="where documents and exports are made; the temporary folder")
    given = parser.parse_args(arguments)
    documents, rounds = (3, 1) if given.smoke else (given.documents, given.rounds)
    record = Record("export", given)
    folder = Path(tempfile.mkdtemp(prefix="export-", dir=given.folder))
    digests = set()
    try:
        table = make_table(folder, documents)
        for _ in range(rounds):
            for workers in given.workers:
                took = export(table, folder / "out", workers)
                record.add({"workers": workers, "documents_per_second": documents / took["seconds"], **took})
                digests.add(digest_of(folder / "out"))
                shutil.rmtree(folder / "out")
    finally:
        shutil.rmtree(folder)
    assert len(digests) == 1, "the exports differ"


if __name__ == "__main__":
    main()
