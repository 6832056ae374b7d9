"""How long the review page takes to make and to load, and how much memory a choice from a large table takes.

    python -m benchmarks.view

200 pages of the sample documents, with as much text as they have, are written as one file and opened in Chromium, until
the list is there and the first page's picture is drawn. Then 100 pages are chosen from a table of 200,000 rows.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pymupdf

from batchocr.data import Block, PageResult
from batchocr.pages.input.render import open_document
from batchocr.tables import parquet
from batchocr.tables.schema import RunFacts
from tests.support.browser import chromium, opened

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = ("article.pdf", "two-columns.pdf")
FACTS = RunFacts("0.1.0", "a model", "c" * 64, "a" * 64, {"dpi": "200"})
PARAGRAPH = "A sundial has one moving part, and that part is the sky. Nothing in it can be wound, lent or dropped. " * 4
FORMULA = r"\[ \tan \theta = \sin \varphi \cdot \tan \left( \frac{360^\circ}{24} t \right) \tag{1} \]"
TABLE = "<table>" + "<tr><td>February</td><td>−14</td><td>mending the cold frames</td></tr>" * 8 + "</table>"


def make_document(path: Path, num_pages: int) -> None:
    with pymupdf.open() as made:
        while len(made) < num_pages:
            for name in DOCUMENTS:
                with pymupdf.open(ROOT / "sample_data" / "documents" / name) as document:
                    made.insert_pdf(document)
        made.select(range(num_pages))
        made.save(path)


def page_of(path: Path) -> PageResult:
    """A row for the first page of the document."""
    document = open_document(str(path), password=None, dpi=200)
    page = document.render(0)
    contents = [("title", "How a Sundial Keeps Its Appointments")] + [("text", PARAGRAPH)] * 9
    contents += [("equation", FORMULA), ("table", TABLE), ("image", None), ("page_number", "17")]
    blocks = [
        Block(type, (0.1, 0.06 * number, 0.9, 0.06 * number + 0.05), 0, content, confidence=0.99)
        for number, (type, content) in enumerate(contents)
    ]
    doc_id = hashlib.sha256(path.read_bytes()).hexdigest()
    width, height = page.image.size
    count = document.page_count
    return PageResult(path.name, 0, "ok", doc_id, count, width, height, page.dpi, markdown="text", blocks=tuple(blocks))


def rows(first: PageResult, number: int) -> Iterator[PageResult]:
    """Rows of the document's pages, over and over. Their confidence differs, so that there are worst ones."""
    count = first.page_count or 1
    for index in range(number):
        doubt = Block("text", (0.1, 0.9, 0.9, 0.95), 0, PARAGRAPH, confidence=0.5 + (index * 7919 % 1000) / 2000)
        yield replace(first, page_index=index % count, blocks=(*first.blocks, doubt), markdown=PARAGRAPH * 9)


def view(table: Path, out: Path, *options: str) -> tuple[float, int, int]:
    """Run the command; returns its seconds, and the peak resident bytes of its process and of its worker."""
    command = [sys.executable, "-m", "batchocr", "view", str(table), "--out", str(out), "--input", str(table.parent)]
    began_s = time.monotonic()
    process = subprocess.Popen([*command, *options], env={**os.environ, "PYTHONPATH": str(ROOT)})
    main = worker = 0
    while process.poll() is None:
        with suppress(psutil.Error):
            family = psutil.Process(process.pid)
            main = max(main, family.memory_info().rss)
            worker = max(worker, *(child.memory_info().rss for child in family.children(recursive=True)), 0)
        time.sleep(0.02)
    if process.returncode:
        sys.exit(f"the command ended with {process.returncode}")
    return time.monotonic() - began_s, main, worker


def load(path: Path) -> tuple[float, float]:
    """Seconds until the list is there and the first page is drawn, and until the next page is, after a key."""
    with chromium() as browser, opened(browser, path.with_name("empty.html")) as watched:
        page = watched.page
        began_s = time.monotonic()
        page.goto(path.as_uri())
        page.evaluate("document.querySelector('#sheet img').decode()")
        loaded_s = time.monotonic() - began_s
        assert page.locator("#list li").count() == 200
        began_s = time.monotonic()
        page.keyboard.press("j")
        page.evaluate("document.querySelector('#sheet img').decode()")
        return loaded_s, time.monotonic() - began_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000, help="rows of the large table")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_document(folder / "book.pdf", 200)
        (folder / "empty.html").write_text("<!doctype html>")
        first = page_of(folder / "book.pdf")
        small, large, out = folder / "small.parquet", folder / "large.parquet", folder / "review.html"
        parquet.write(small, rows(first, 200), FACTS)
        seconds, main_bytes, worker_bytes = view(small, out, "--sample", "200")
        print(f"200 pages: {seconds:.1f} s, {out.stat().st_size / 1e6:.1f} MB; peak {main_bytes / 1e6:.0f} MB,")
        print(f"    its worker {worker_bytes / 1e6:.0f} MB")
        loaded_s, next_s = load(out)
        print(f"    loaded in {loaded_s:.2f} s, the next page in {next_s:.2f} s")
        parquet.write(large, rows(first, arguments.rows), FACTS)
        seconds, main_bytes, worker_bytes = view(large, out, "--sample", "100")
        print(f"100 of {arguments.rows:,} rows ({large.stat().st_size / 1e6:.0f} MB): {seconds:.1f} s;")
        print(f"    peak {main_bytes / 1e6:.0f} MB, its worker {worker_bytes / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
