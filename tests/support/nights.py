"""Nights over an archive, in every form that a table has: a command is disturbed, and the same command ends its work.

`Archive` makes the documents and the tables of the day before; `night` lays one of them out, and `Night.check_…` say
what is wrong with what they find. What is right is what the same command leaves that nobody has disturbed.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import zipfile
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as fs

import batchocr
from batchocr.data import PageResult
from batchocr.errors import BatchOcrError
from tests.support import dying
from tests.support.dying import Command, Ended
from tests.support.object_store import SECRET, Environ, ObjectStore, answering
from tests.support.running import command, draw_pdf, said_by, texts

CHANGING = ("DELETE", "POST", "PUT")
"""The methods of requests that change an object."""
BUCKET = "nights"
NAMES = ("table.parquet", "table.jsonl", "table/")
FORMS = (*NAMES, *(f"s3://{BUCKET}/{name}" for name in NAMES))
COLUMNS = ["source", "page_index", "doc_id"]
PACKED = "g.zip"
ROWS_PER_PART = 4
_RUN = {"dpi": 72, "workers": 1, "max_new_tokens": 8, "max_degraded_rate": 1, "max_page_error_rate": 1}
_MAY_BE_SAID = re.compile(r"at work|is writing|was writing")
"""Of a run that was killed, and could not say that it ended."""

Rows = list[PageResult]


@dataclass(frozen=True)
class Order:
    """A command that writes a table."""

    name: str
    flags: tuple[str, ...] = ()
    is_begun: bool = True
    """Whether the table of the day before is there."""

    @property
    def continues(self) -> bool:
        """Whether the same command has nothing to do afterwards."""
        return self.name == "run" and "--overwrite" not in self.flags

    def __str__(self) -> str:
        return " ".join([self.name, *self.flags, "over a table" if self.is_begun else "over nothing"])


FIRST_RUN = Order("run", is_begun=False)
NIGHT = Order("run")
PRUNING = Order("run", ("--prune",))
ANEW = Order("run", ("--overwrite",))
FIRST_MERGE = Order("merge", is_begun=False)
MERGE = Order("merge", ("--overwrite",))
ORDERS = (FIRST_RUN, NIGHT, PRUNING, ANEW, FIRST_MERGE, MERGE)


@dataclass(frozen=True)
class Undisturbed:
    """What an order leaves, and says."""

    before: Rows | None
    """Those of the day before; None if there was no table."""
    after: Rows
    end: Ended
    num_requests: int
    """To a store, of those that change an object."""


class Machine:
    """From where commands run: with a work folder, and credentials for the store, of its own."""

    def __init__(self, work: Path, store: ObjectStore | None, counted: Container[str]) -> None:
        """counted: the methods of requests that count."""
        self.work, self._counted = work, counted
        self.work.mkdir(parents=True, exist_ok=True)
        self.more = {"AWS_ACCESS_KEY_ID": work.name} if store else {}
        """The variables of its commands."""
        self.num_requests = 0
        self._before = store.fault if store else None
        self._last_request = 0
        self._act: Callable[[], bool] = lambda: True

    @contextmanager
    def when_it_comes_to(self, request: int, act: Callable[[], bool]) -> Iterator[None]:
        """Inside, something happens at this one of its requests. act: does it, and returns whether the store then does
        what it was asked to."""
        self._last_request, self._act = self.num_requests + request, act
        yield
        self._last_request = 0

    def fault(self, environ: Environ, start: Any) -> Iterable[bytes] | None:
        """What the store asks of each request."""
        assert self._before is not None
        if f"Credential={self.work.name}/" not in environ.get("HTTP_AUTHORIZATION", ""):
            return self._before(environ, start)
        if environ["REQUEST_METHOD"] not in self._counted:
            return None
        self.num_requests += 1
        if self.num_requests != self._last_request:
            return None
        length = environ.get("CONTENT_LENGTH") or (-1 if environ.get("wsgi.input_terminated") else 0)
        environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(int(length)))
        return None if self._act() else answering("503 Slow Down", "SlowDown")(environ, start)


class Archive:
    """Documents, as they are tonight, and the tables of the day before.

    Tonight one document is new, one gone, two are damaged, and a ZIP holds another. No model is needed to read these.
    """

    def __init__(self, folder: Path, model: Path, store: ObjectStore | None) -> None:
        """store: that of this process, if tables are to be there."""
        self.documents, self._model, self.store = folder / "in", model, store
        self._folder, self._first = folder, folder / "first"
        self._objects: dict[str, bytes] = {}
        for documents in (self.documents, folder / "more"):
            documents.mkdir()
        for name in "bcdfhk":
            draw_pdf(self.documents / f"{name}.pdf", f"{name} one", f"{name} two")
        for name in "xyz":
            draw_pdf(folder / "more" / f"{name}.pdf", f"{name} one", f"{name} two")
        _pack(folder / PACKED, [folder / "more" / "x.pdf"])
        self._first.mkdir()
        self._run([folder / "in", folder / PACKED], self._first / NAMES[0])
        self._run([folder / "more"], folder / "more.parquet")
        for form in FORMS[1 : None if store else len(NAMES)]:
            self._merged(form)
        if store:
            self._objects = {key: store.get(BUCKET, key) for key in store.keys(BUCKET)}
        (self.documents / "k.pdf").unlink()
        for name in "df":
            _damage(self.documents / f"{name}.pdf")
        (self.documents / "a.png").write_bytes(b"no image")
        _pack(folder / PACKED, [self.documents / "f.pdf"])
        self._expected = cache(self._undisturbed)

    def _run(self, documents: Sequence[Path], out: Path) -> None:
        batchocr.run(documents, out=out, model=self._model, **_RUN)  # type: ignore[arg-type]

    def _merged(self, form: str) -> None:
        if self.store and form.startswith("s3://"):
            self.store.put(BUCKET, {})
        out = form if form.startswith("s3://") else f"{self._first}/{form}"
        code, _, said = said_by("merge", self._first / NAMES[0], "--out", out, "--rows-per-part", str(ROWS_PER_PART))
        assert code == 0, said

    def night(self, form: str, order: Order, *, reading: bool = False) -> Night:
        """The night to come, with the table of the day before in its place. reading: whether there is a new document
        with a page, too."""
        expected = self._expected(form, order, reading)
        night = self._laid_out(form, order, reading)
        night.expected = expected
        return night

    def _laid_out(self, form: str, order: Order, reading: bool) -> Night:
        (self.documents / "a.pdf").unlink(missing_ok=True)
        if reading:
            shutil.copy2(self._folder / "more" / "x.pdf", self.documents / "a.pdf")
        shutil.rmtree(self._folder / "night", ignore_errors=True)
        (self._folder / "night").mkdir()
        if self.store and form.startswith("s3://"):
            for key in self.store.keys(BUCKET):
                self.store.delete(BUCKET, key)
            self.store.put(BUCKET, self._objects if order.is_begun else {})
            out = form
        else:
            out = f"{self._folder}/night/{form}"
            if order.is_begun:
                shutil.copytree(self._first, self._folder / "night", dirs_exist_ok=True)
        return Night(self, form, order, out, self._folder / "night")

    def arguments(self, order: Order, out: str, work: Path) -> list[str | Path]:
        """Those of the command."""
        if order.name == "merge":
            return [self._folder / "more.parquet", "--out", out, f"--rows-per-part={ROWS_PER_PART}", *order.flags]
        usual = [f"--{name.replace('_', '-')}={value}" for name, value in _RUN.items()]
        where: list[str | Path] = ["--out", out, "--work-dir", work, f"--rows-per-part={ROWS_PER_PART}"]
        return [self.documents, self._folder / PACKED, "--model", self._model, *where, *usual, *order.flags]

    def _undisturbed(self, form: str, order: Order, reading: bool) -> Undisturbed:
        night = self._laid_out(form, order, reading)
        before = night.rows()
        with night.machine("undisturbed") as machine:
            end = night.start(machine).ended()
        after = night.rows()
        assert end.code in (0, 3) and isinstance(after, list), end.said
        return Undisturbed(before if isinstance(before, list) else None, after, end, machine.num_requests)


def _pack(archive: Path, documents: Sequence[Path]) -> None:
    """Make a ZIP in which they have names that say nothing of them."""
    with zipfile.ZipFile(archive, "w") as packed:
        for number, document in enumerate(documents):
            packed.write(document, f"{number}.pdf")


def _damage(pdf: Path) -> None:
    """Keep the beginning of the file."""
    pdf.write_bytes(pdf.read_bytes()[:300])


@dataclass
class Night:
    """One order over the table of the day before."""

    _archive: Archive
    form: str
    order: Order
    out: str
    folder: Path
    """Holds the output, unless that is in a store, and what the machines have."""
    ends: list[Ended] = field(default_factory=list)
    """How the commands have ended."""
    expected: Undisturbed = field(init=False)

    @property
    def in_store(self) -> bool:
        return self.form.startswith("s3://")

    @contextmanager
    def machine(self, name: str, counted: Container[str] = CHANGING) -> Iterator[Machine]:
        """A machine that has not been at work tonight, unless it has this name. The one called `test` is that of this
        process. counted: the methods of requests that count; by default, of those that change an object."""
        store = self._archive.store if self.in_store else None
        machine = Machine(self.folder / "machines" / name, store, counted)
        with store.failing(machine.fault) if store else nullcontext():
            yield machine

    def start(self, machine: Machine, *, step: int = 0) -> Command:
        """The command at work. step: that at which it is killed; 0 for none."""
        log = machine.work.with_name(f"{machine.work.name}.{os.urandom(4).hex()}.steps")
        below = machine.work if self.in_store else self.folder
        given = self._archive.arguments(self.order, self.out, machine.work)
        return Command(
            command(*given, name=self.order.name, before=dying.before(below, step, log)), log, more=machine.more
        )

    def run(
        self,
        machine: Machine,
        *,
        step: int = 0,
        request: int = 0,
        is_done: bool = False,
        within_s: float | None = None,
    ) -> Ended:
        """Run the command to its end, or until it comes to this step or request, or so much time has passed. is_done:
        whether that request is answered, though nobody hears it."""
        at_work: list[Command] = []

        def kill() -> bool:
            at_work[0].kill()
            return is_done

        with machine.when_it_comes_to(request, kill):
            at_work.append(self.start(machine, step=step))
            if within_s is not None:
                at_work[0].kill_within(within_s)
            self.ends.append(at_work[0].ended())
        return self.ends[-1]

    def export(self, folder: Path) -> Command:
        """An export of the table into this folder, at work."""
        return Command(command(self.out, "--to", folder, name="export"), folder.with_suffix(".steps"))

    def check_export(self, export: Ended, folder: Path) -> Iterator[str]:
        """What is wrong with an export: nothing, if it has written the documents of before or of after."""
        expected = [self.expected.after, *([] if self.expected.before is None else [self.expected.before])]
        numbers = {len({row.source for row in rows}) for rows in expected}
        if export.code not in (0, 3):
            if self.expected.before is not None or "Traceback" in export.said:
                yield f"an export is refused: {export.code}, {export.said}"
        elif (number := len(list(folder.rglob("*.md")))) not in numbers:
            yield f"an export is not of one table: {number} documents, and not {numbers}; {export.said}"

    def rows(self) -> Rows | str:
        """The table as it is now, or with what words it is refused."""
        try:
            rows = batchocr.open_table(self.out).rows()
            return texts(sorted(rows, key=lambda row: (row.source, row.page_index or 0)))
        except BatchOcrError as error:
            return str(error)

    def check_ours(self, found: Rows | str | None = None) -> Iterator[str]:
        """What is wrong with the table between two commands: nothing, if it is that of before, or that of after. found:
        what `rows` has found; by default, what it finds now."""
        found, expected = self.rows() if found is None else found, self.expected
        if isinstance(found, str):
            if expected.before is not None:
                yield f"the table is refused: {found}"
        elif found not in (expected.before, expected.after):
            yield f"neither the table of before nor that of after: {_summed_up(found)}"

    def check_theirs(self) -> Iterator[str]:
        """What is wrong for other programs, which read whatever lies there: nothing, if no document is twice in it."""
        for name, rows in read_by_others(self.out).items():
            documents = {source: {doc_id for other, _, doc_id in rows if other == source} for source, *_ in rows}
            if double := [source for source, doc_ids in documents.items() if len(doc_ids) > 1]:
                yield f"two versions of a document for {name}: {double}"
            if double := [key for key, number in Counter(rows).items() if number > 1]:
                yield f"a page twice for {name}: {double}"

    def check_end(self, *, is_third: bool = True) -> Iterator[str]:
        """What is wrong after the last command, and after one more that has nothing to do."""
        expected, last = self.expected, self.ends[-1]
        told = [line for end in self.ends for line in _worse(end)]
        completed = [line for end in self.ends if not end.is_killed for line in _worse(end)]
        if last.code not in self._codes():
            yield f"exit code {last.code}: {last.said[-1000:]}"
        if (found := self.rows()) != expected.after:
            yield f"another table than an undisturbed command's: {_summed_up(found)}"
        if set(told) != set(_worse(expected.end)) or len(completed) > 1:
            yield f"worse pages are told of {len(told)} times, {len(completed)} of them at an end: {told}"
        usual = {_without_numbers(line) for line in expected.end.warnings}
        for line in last.warnings:
            if _without_numbers(line) not in usual and not _MAY_BE_SAID.search(line) and line not in told:
                yield f"a warning that an undisturbed command does not give: {line}"
        if is_third and self.order.continues:
            with self.machine("third") as machine:
                third = self.run(machine)
            if third.code != 0 or "nothing to do" not in third.said or _worse(third):
                yield f"one more command has something to do: {third.code}, {third.said[-1000:]}"
            if self.rows() != expected.after:
                yield "one more command has changed the table"

    def _codes(self) -> set[int]:
        """With which the last command may end: that one was killed before may have done all, or told it."""
        nothing_to_do = {0} if self.order.name == "run" and len(self.ends) > 1 else set()
        exists_already = {6} if self.order is FIRST_MERGE and len(self.ends) > 1 else set()
        return {self.expected.end.code} | nothing_to_do | exists_already


def spread(number: int, total: int) -> Sequence[int]:
    """So many of the steps 1 to `total`, evenly; all if there are not so many."""
    number = min(number, total)
    return [1 + (2 * index + 1) * total // (2 * number) for index in range(number)]


def read_by_others(out: str) -> dict[str, Sequence[tuple[Any, ...]]]:
    """The source, page and doc_id of each row that other programs find in what lies at `out`, by program; not those of
    a program that has refused it."""
    found: dict[str, Sequence[tuple[Any, ...]]] = {}
    if out.endswith(".jsonl"):
        return found
    where, store = (out.removeprefix("s3://"), _store()) if out.startswith("s3://") else (out, None)
    with suppress(OSError, pa.ArrowException):
        table = ds.dataset(where, filesystem=store, format="parquet").to_table(COLUMNS)
        found["pyarrow"] = list(zip(*(table[name].to_pylist() for name in COLUMNS), strict=True))
    with suppress(duckdb.Error), duckdb.connect() as connection:
        files = f"{out}*.parquet" if out.endswith("/") else out
        if store is None:
            found["DuckDB"] = connection.sql(f"select {', '.join(COLUMNS)} from '{files}'").fetchall()
    return found


def _store() -> fs.FileSystem:
    return fs.S3FileSystem(
        access_key="test", secret_key=SECRET, region="us-east-1", endpoint_override=os.environ["AWS_ENDPOINT_URL"]
    )


def _summed_up(rows: Rows | str) -> str:
    """The rows in a line, to see what they lack."""
    if isinstance(rows, str):
        return rows
    return " ".join(
        f"{row.source}:{row.page_index}:{row.status}{'' if row.doc_id is None else ':' + row.doc_id[:4]}"
        for row in rows
    )


def _worse(end: Ended) -> list[str]:
    """What it said of pages that came out worse."""
    return [line for line in end.warnings if "came out worse" in line]


def _without_numbers(line: str) -> str:
    """A warning, as it is said of other numbers of rows, too."""
    return re.sub(r"\d[\d,.]*", "N", re.sub(r"\b(row|page|document)s\b", r"\1", line))
