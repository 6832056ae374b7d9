"""A bit flipped in a journal or a table: it is refused, or no row is another than before."""

from __future__ import annotations

import os
import random
import resource
import signal
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from batchocr.data import Block, PageResult
from batchocr.errors import OutputError
from batchocr.output import parquet
from batchocr.output.files import journal_path
from batchocr.output.journal import Journal, JournalEntry
from batchocr.output.schema import RunFacts
from benchmarks.attack.tally import Tally

NUM_ROWS = 60
_DOCUMENT_PAGES = 3
_LETTERS = "etaoin shrdlu cmfwyp vbgkqj xz, ETAOIN. SHRDLU 0123456789 "
_DEADLINE_S = 20
_MEMORY_BYTES = 4 << 30
_FACTS = RunFacts("0", "benchmark", "f" * 64, "a" * 64, {})

Read = Callable[[Path], list[PageResult]]


def journal(dice: random.Random, count: int, tally: Tally, folder: Path | None) -> None:
    """The journal of a run that was killed, opened by the run that continues it. folder: unused."""
    with tempfile.TemporaryDirectory() as temporary:
        out = Path(temporary) / "table.parquet"
        with Journal.open(out, _FACTS, resume=True, overwrite=False) as made:
            for row in _rows():
                made.append(JournalEntry(row, size=1_000_000, mtime_ns=1_700_000_000_000_000_000))
            made.keep()
        _flip(journal_path(out), lambda path: _rows_of_journal(out), dice, count, tally)


def table(dice: random.Random, count: int, tally: Tally, folder: Path | None) -> None:
    """A Parquet table, read by `verify` and by a run that reads more into it. folder: unused."""
    with tempfile.TemporaryDirectory() as temporary:
        out = Path(temporary) / "table.parquet"
        parquet.write(out, _rows(), _FACTS)
        _flip(out, _rows_of_table, dice, count, tally)


def _rows() -> list[PageResult]:
    """Dense pages of random letters, of documents with three pages."""
    dice, rows = random.Random(NUM_ROWS), []
    for number in range(NUM_ROWS):
        document, page_index = divmod(number, _DOCUMENT_PAGES)
        texts = ["".join(dice.choices(_LETTERS, k=380)) for _ in range(14)]
        blocks = tuple(Block("text", (0.1, 0.2, 0.9, 1.0), 0, text) for text in texts)
        page = PageResult(f"{document}.pdf", page_index, "ok", f"{document:064x}", _DOCUMENT_PAGES, 1700, 2200, 200.0)
        rows.append(replace(page, markdown="\n\n".join(texts), blocks=blocks, image_tokens=4500))
    return rows


def _rows_of_journal(out: Path) -> list[PageResult]:
    with Journal.open(out, _FACTS, resume=True, overwrite=False) as opened:
        rows = [opened.read(source, row.page_index) for source in opened.sources() for row in opened.rows(source)]
        opened.keep()
        return rows


def _rows_of_table(path: Path) -> list[PageResult]:
    if parquet.read_facts(path) is None:
        raise OutputError("not a table of ours")
    return list(parquet.read_rows(path))


def _flip(path: Path, read: Read, dice: random.Random, count: int, tally: Tally) -> None:
    sound = path.read_bytes()
    rows = read(path)
    path.write_bytes(sound)
    for _ in range(count):
        place, bit = dice.randrange(len(sound)), 1 << dice.randrange(8)
        flipped = sound[:place] + bytes([sound[place] ^ bit]) + sound[place + 1 :]
        path.write_bytes(flipped)
        outcome = _in_a_child(lambda: _outcome(read, path, rows))
        tally.add(outcome)
        if outcome not in ("refused", "without effect", "rows are read again"):
            tally.fault(outcome, flipped, path.suffix)


def _outcome(read: Read, path: Path, rows: list[PageResult]) -> str:
    try:
        found = read(path)
    except OutputError:
        return "refused"
    if found == rows:
        return "without effect"
    return "rows are read again" if all(row in rows for row in found) else "silently another row"


def _in_a_child(work: Callable[[], str]) -> str:
    """What it returns in a process of its own, which a damaged file may crash, hang or fill."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what it says of each flip
            signal.alarm(_DEADLINE_S)
            resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY_BYTES, _MEMORY_BYTES))
            os.write(writing, work().encode())
        except Exception as error:  # noqa: BLE001 (what escapes is what is looked for)
            os.write(writing, f"an error escaped: {type(error).__name__}".encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        said = pipe.read().decode()
    status = os.waitpid(child, 0)[1]
    return said or f"ended with status {os.waitstatus_to_exitcode(status)}"
