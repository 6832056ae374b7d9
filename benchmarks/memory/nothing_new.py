"""The peak of the main process in a night with nothing new: what it knows of all rows, and of all documents.

    python -m benchmarks.memory.nothing_new --rows 10000000 --documents 1000000

The rows are short, and the listing is made in memory, as that of a store: nothing but the table is on the disk.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from batchocr.config import Config
from batchocr.data import Document, PageResult
from batchocr.job.output_job import read_into_table
from batchocr.job.session import Session
from batchocr.job.stop import StopSwitch
from batchocr.pages.input.sources import Found
from batchocr.storage.listing import Documents
from batchocr.tables.output import Output
from benchmarks import QUICK_MODEL
from tests.support.tables import put_table

CONFIG = Config(model=str(QUICK_MODEL), device="cpu", dtype="float32", workers=1)
SIZE, MTIME_NS = 100_000, 1_700_000_000_000_000_000


def document(number: int) -> Document:
    name = f"{number // 1000:04}/document-{number:07}.pdf"
    return Document(f"s3://archive/{name}", name, size=SIZE, mtime_ns=MTIME_NS)


def rows(documents: int, pages: int) -> Iterator[PageResult]:
    """What an earlier run would have read of the documents."""
    row = PageResult("", 0, "ok", page_count=pages, markdown="a page", file_bytes=SIZE, file_mtime_ns=MTIME_NS)
    for number in range(documents):
        doc_id = hashlib.sha256(b"%d" % number).hexdigest()
        source = document(number).source
        yield from (replace(row, source=source, page_index=page, doc_id=doc_id) for page in range(pages))


def night(out: Path, documents: int) -> None:
    """Read what is new, which is nothing, and say what that took."""
    found = Found(Documents(map(document, range(documents))), {})
    with closing(Session(CONFIG)) as session:
        report = read_into_table(session, CONFIG, found, Output(out), StopSwitch(), None)
    read = f"{report.rows:,} rows of {documents:,} documents, {report.pages_read:,} pages read"
    print(f"{read}: {report.host_memory.peak_main_bytes / 1e6:,.0f} MB at the peak")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--file", action="store_true", help="the table is one file, not a folder of parts")
    parser.add_argument("--table", type=Path, help=argparse.SUPPRESS)  # in the process that is measured
    given = parser.parse_args()
    if given.table:
        night(given.table, given.documents)
        return
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / ("table.parquet" if given.file else "table")
        if not given.file:
            out.mkdir()
        with closing(Session(CONFIG)) as session:
            metadata = replace(session.metadata, selection={})
        put_table(out, rows(given.documents, given.rows // given.documents), metadata, rows_per_part=16_384)
        subprocess.run([sys.executable, "-m", __spec__.name, *sys.argv[1:], "--table", str(out)], check=True)


if __name__ == "__main__":
    main()
