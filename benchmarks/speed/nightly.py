"""What a night costs over a table of many rows: nothing new, one document new, one changed, one gone with --prune.

    python -m benchmarks.speed.nightly --rows 10000 100000 1000000

The rows are made up, with the content of a dense page; their documents are small PDFs of two pages on the disk, each
with bytes of its own. Each night runs in a process of its own, workers, engines and a quick model included. `listing`
finds the documents and does nothing else. `cpu_s` is of all processes, with what they import; `parts` and `table` say
how many files of the table were written, and their bytes.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pymupdf

from batchocr.config import Config
from batchocr.data import Block, PageResult
from batchocr.job.session import Session
from batchocr.tables.known import Kept
from batchocr.tables.schema import PAGE_SCHEMA, RunMetadata, to_json, to_row
from benchmarks import QUICK_MODEL, ROOT
from benchmarks.record import Record, benchmark_parser
from tests.support.tables import put_table

_PER_FOLDER = 1000
_BLOCKS = 14
_WORDS = 70
"""In a block: a dense page has about six thousand characters."""

_NIGHT = """
import json, os, sys, time
import batchocr
from batchocr.config import Config
from batchocr.api import find_inputs
begun = time.perf_counter()
folder, out, model, what = sys.argv[1:5]
if what == "listing":
    find_inputs(Config(), folder)
    print(json.dumps({"seconds": time.perf_counter() - begun, "cpu_s": sum(os.times()[:4])}))
else:
    report = batchocr.run(folder, out=out, model=model, device="cpu", workers=1, prune=what == "gone", progress=id,
                          max_page_error_rate=1, max_degraded_rate=1, max_doubtful_rate=1)
    written = dict(line.split(": ") for line in open("/proc/self/io").read().splitlines())["wchar"]
    print(json.dumps({"seconds": time.perf_counter() - begun, "cpu_s": sum(os.times()[:4]),
                      "peak_mb": report.host_memory.peak_main_bytes / 1e6,
                      "written_mb": int(written) / 1e6, "read": report.pages_read, "found": report.items.found}))
"""


def dense_page(number: int) -> PageResult:
    """A page with the text of a dense one."""
    dice = np.random.default_rng(number)
    words = [word for word in (ROOT / "README.md").read_text().split() if word.isalpha()]
    contents = [" ".join(dice.choice(words, _WORDS)) for _ in range(_BLOCKS)]
    blocks = tuple(
        Block(
            "text", (0.1, top / _BLOCKS, 0.9, (top + 0.9) / _BLOCKS), 0, content, False, *dice.random(2).tolist(), 120
        )
        for top, content in enumerate(contents)
    )
    page = PageResult("", number % 2, "ok", page_count=2, markdown="\n\n".join(contents), blocks=blocks)
    return replace(page, ink_outside=0.01, text_layer_agreement=0.98, image_tokens=1500, output_tokens=1700)


@dataclass(frozen=True, slots=True)
class Archive:
    """Documents, and the rows that a run would have made of them."""

    folder: Path
    sources: list[str]
    ids: list[str]
    sizes: list[int]
    times: list[int]

    @classmethod
    def made(cls, folder: Path, documents: int) -> Archive:
        """Write the documents."""
        with pymupdf.open() as pdf:
            for _ in range(2):
                pdf.new_page(width=200, height=200).insert_text((20, 100), "a page")
            content = pdf.tobytes()
        made = cls(folder, [], [], [], [])
        for number in range(documents):
            name = f"{number // _PER_FOLDER:04}/document-{number:07}.pdf"
            if number % _PER_FOLDER == 0:
                (folder / name).parent.mkdir(parents=True)
            data = content + b"%% %d\n" % number
            (folder / name).write_bytes(data)
            file = (folder / name).stat()
            made.sources.append(name)
            made.ids.append(hashlib.sha256(data).hexdigest())
            made.sizes.append(file.st_size)
            made.times.append(file.st_mtime_ns)
        return made


class MadeUp:
    """Stands for an earlier table, of which all rows are kept: they are made as they are asked for."""

    def __init__(self, archive: Archive, kind: str) -> None:
        self.columns = self
        self._archive = archive
        self._kind = kind
        pages = [dense_page(number) for number in range(64)]
        self._arrow = pa.Table.from_pylist([to_row(page) for page in pages], schema=PAGE_SCHEMA)
        self._lines = [
            to_json(replace(page, source="SOURCE", doc_id="DOC", file_bytes=1, file_mtime_ns=2)) for page in pages
        ]

    def begin_of_document(self, row: int) -> int:
        return row + row % 2

    def kept(self, rows: Kept) -> Any:
        return self._as_lines(rows) if self._kind == ".jsonl" else self._as_arrow(rows)

    def _as_arrow(self, rows: Kept) -> pa.Table:
        numbers = np.arange(rows.start, rows.stop)
        table = self._arrow.take(numbers % 64)
        of_files = ("source", self._archive.sources), ("doc_id", self._archive.ids)
        of_files += ("file_bytes", self._archive.sizes), ("file_mtime_ns", self._archive.times)
        for name, values in of_files:
            field = PAGE_SCHEMA.field(name)
            column = pa.array([values[number // 2] for number in numbers], field.type)
            table = table.set_column(PAGE_SCHEMA.get_field_index(name), field, column)
        return table

    def _as_lines(self, rows: Kept) -> Iterator[bytes]:
        archive = self._archive
        for row in range(rows.start, rows.stop):
            document = row // 2
            version = b'"file_bytes":%d,"file_mtime_ns":%d' % (archive.sizes[document], archive.times[document])
            line = self._lines[row % 64].replace(b"SOURCE", archive.sources[document].encode())
            yield (
                line.replace(b'"DOC"', b'"%s"' % archive.ids[document].encode()).replace(
                    b'"file_bytes":1,"file_mtime_ns":2', version
                )
                + b"\n"
            )


def files_of(table: Path) -> set[tuple[int, int, int]]:
    """Of each of a table's files: its inode, its time and its size."""
    files = table.glob("*.parquet") if table.is_dir() else [table]
    return {(file.stat().st_ino, file.stat().st_mtime_ns, file.stat().st_size) for file in files}


def night(archive: Archive, out: Path, what: str) -> dict[str, float]:
    """What the run of a night took."""
    before = files_of(out)
    command = [sys.executable, "-c", _NIGHT, archive.folder, out, QUICK_MODEL, what]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=archive.folder.parent)
    figures: dict[str, float] = json.loads(done.stdout)
    written = files_of(out) - before
    return figures | {"parts": len(written), "table": sum(size for *_, size in written)}


def metadata_of(folder: Path) -> RunMetadata:
    """Of a run over the folder with the quick model."""
    with closing(Session(Config(model=str(QUICK_MODEL), device="cpu", dtype="float32", workers=1))) as session:
        roots = (str(folder), str(folder.parent))
        return replace(session.metadata, input_roots=roots, selection={})


def make_table(archive: Archive, out: Path) -> None:
    """Write the table of a finished run. A folder of parts is made of a file, as a user would."""
    file = out if out.suffix else out.with_suffix(".parquet")
    rows = Kept(0, 2 * len(archive.sources))
    put_table(file, [rows], metadata_of(archive.folder), earlier=MadeUp(archive, file.suffix))
    if file != out:
        merge = [sys.executable, "-m", "batchocr", "merge", file, "--out", f"{out}/", "--overwrite", "-q"]
        subprocess.run(merge, check=True, cwd=ROOT)
        file.unlink()


def measure(record: Record, archive: Archive, out: Path) -> None:
    """Four nights, one after the other."""
    make_table(archive, out)
    rows = 2 * len(archive.sources)
    first = archive.folder / archive.sources[0]
    new = first.with_name("document-a.pdf")
    for what in ("listing", "nothing", "new", "changed", "gone", "nothing"):
        if what == "new":
            new.write_bytes(first.read_bytes() + b"% new\n")
        elif what == "changed":
            new.write_bytes(first.read_bytes() + b"% changed\n")
        elif what == "gone":
            new.unlink()
        figures = night(archive, out, what)
        record.add({"rows": rows, "table": out.suffix or "folder", "night": what, **figures})
        print(rows, out.suffix or "folder", what, figures, flush=True)


def main(arguments: list[str] | None = None) -> None:
    parser = benchmark_parser(__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--formats", nargs="+", default=[".parquet", "", ".jsonl"], help="'' is a folder")
    given = parser.parse_args(arguments)
    record = Record("nightly", given)
    for rows in [100] if given.smoke else [100, *given.rows]:
        folder = Path(tempfile.mkdtemp(prefix="nightly-"))
        try:
            archive = Archive.made(folder / "documents", rows // 2)
            for kind in given.formats:
                measure(record, archive, folder / f"table{kind}")
        finally:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
