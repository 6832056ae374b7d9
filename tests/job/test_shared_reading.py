"""What several pages have in common is asked once, within a run and across runs, and no table is other than without."""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3
import subprocess
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from PIL import Image, PngImagePlugin

import batchocr
from batchocr import PageResult, Report
from batchocr.api import find_inputs
from batchocr.config import Config
from batchocr.data import Completion, Request
from batchocr.engine.engine import Engine
from batchocr.job import run
from batchocr.job.ordered import read_in_order
from batchocr.job.output_job import read_into_table
from batchocr.job.session import Session
from batchocr.job.stats.report import SavedReport
from batchocr.job.stop import StopSwitch
from batchocr.planning.checkpoint_files import fingerprints
from batchocr.processes.answer_cache import NAME
from batchocr.processes.pixels import digest_of
from batchocr.processes.pool import WorkerPool
from batchocr.tables.output import Output
from tests.support import worker_entry
from tests.support.running import command, draw_pdf, eventually, make_quick_model, read_rows, texts

pytestmark = pytest.mark.slow

OPTIONS = {"dpi": 72, "workers": 2, "pages_in_flight": 4, "dtype": "float32", "max_degraded_rate": 1}
NUM_PAGES = 14


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fourteen pages, of which five differ: three of a file, one more, and an empty one."""
    folder = tmp_path_factory.mktemp("documents")
    draw_pdf(folder / "a.pdf", "One", "Two", "Three")
    shutil.copy(folder / "a.pdf", folder / "b copy of a.pdf")
    draw_pdf(folder / "c.pdf", "Two", "Four", "", "")
    draw_pdf(folder / "d.pdf", "", "One")
    (folder / "e copy of d.pdf").write_bytes((folder / "d.pdf").read_bytes())
    return folder


NAMES = ["a.pdf", "b copy of a.pdf", "c.pdf", "d.pdf", "e copy of d.pdf"]
NUM_READ = NUM_PAGES - 3 - 2
"""Without the pages of the two copies."""


def read(documents: Path, model: Path, out: Path, *, reads_all: bool = False, **options: object) -> Report:
    with closing(Session(Config(model=str(model), **(OPTIONS | options)), reads_all=reads_all)) as session:
        found = find_inputs(session.config, str(documents))
        return read_into_table(session, session.config, found, Output(out), StopSwitch(), None)


@pytest.fixture(scope="module")
def alone(documents: Path, model: Path, tmp_path_factory: pytest.TempPathFactory) -> list[PageResult]:
    """The rows of a run that reads and asks everything."""
    out = tmp_path_factory.mktemp("alone") / "out.parquet"
    report = read(documents, model, out, reads_all=True)
    assert (report.pages_read, report.saved) == (NUM_PAGES, SavedReport(0, 0, 0, 0, 0))
    return read_rows(out)


def num_asked(rows: list[PageResult]) -> int:
    """How many questions pages ask, of which none is a copy: about the layout, and about each block that was read."""
    pages = [row for row in rows if "copy" not in row.source]
    return sum(1 + sum(block.confidence is not None for block in row.blocks) for row in pages)


def different(rows: list[PageResult]) -> list[PageResult]:
    """The first of the pages that look the same."""
    places = {("a.pdf", 0), ("a.pdf", 1), ("a.pdf", 2), ("c.pdf", 1), ("c.pdf", 2)}
    return [row for row in rows if (row.source, row.page_index) in places]


def test_the_table_is_that_of_a_run_that_reads_everything(
    documents: Path, model: Path, tmp_path: Path, alone: list[PageResult]
) -> None:
    report = read(documents, model, tmp_path / "out.parquet")
    rows = read_rows(tmp_path / "out.parquet")
    assert texts(rows) == texts(alone)
    attempts = {source: {row.attempts for row in rows if row.source == source} for source in NAMES}
    assert attempts["c.pdf"] == {1}
    for copies in (NAMES[:2], NAMES[3:]):  # whichever was opened first
        assert sorted(sorted(attempts[source]) for source in copies) == [[0], [1]]
    asked = report.stages["vit"].items
    assert report.saved == SavedReport(num_asked(alone), num_asked(alone) - asked, 0, 2, 5)
    assert 5 < asked <= num_asked(different(alone))
    assert (report.pages_read, report.items.ok + report.items.degraded) == (NUM_READ, NUM_PAGES)


def test_rows_for_a_loop_share_their_questions(documents: Path, model: Path, alone: list[PageResult]) -> None:
    with closing(Session(Config(model=str(model), **OPTIONS))) as session:
        rows = list(read_in_order(session.lent, session.config, find_inputs(session.config, str(documents))))
    assert texts(rows) == texts(alone)
    assert {row.attempts for row in rows} == {1}


def paint(path: Path, left: int, right: int, **options: object) -> None:
    """An image for the scripted workers, which ask about the whole and about each half."""
    image = Image.new("RGB", (40, 30), (0, 0, left))
    image.paste((0, 0, right), (20, 0, 40, 30))
    image.save(path, **options)


def paint_all(folder: Path) -> None:
    note = PngImagePlugin.PngInfo()
    note.add_text("title", "other bytes, the same page")
    folder.mkdir()
    paint(folder / "a.png", 1, 2)
    shutil.copy(folder / "a.png", folder / "b.png")
    paint(folder / "c.png", 1, 2, pnginfo=note)
    paint(folder / "d blank.png", 7, 7)
    paint(folder / "e blank.png", 7, 7, pnginfo=note)
    paint(folder / "f logo.png", 9, 3)
    paint(folder / "g logo.png", 9, 4)


ASKED_BY_HAND = 3 + 0 + 0 + 2 + 0 + 3 + 2
"""a: whole, left, right. b, c: nothing new. d: whole, one half. e: nothing new. f: all three. g: whole, right."""


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "WorkerPool", partial(WorkerPool, command=worker_entry.COMMAND))


@pytest.mark.long
@pytest.mark.usefixtures("scripted")
def test_the_questions_that_reach_an_engine_are_those_counted_by_hand(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paint_all(tmp_path / "images")
    submit, asked = Engine.submit, list[Request]()

    def note(engine: Engine, request_id: int, request: Request) -> Completion | None:
        asked.extend([request] if request_id else [])  # the first warms it up
        return submit(engine, request_id, request)

    monkeypatch.setattr(Engine, "submit", note)
    everything = read(tmp_path / "images", model, tmp_path / "all.parquet", reads_all=True)
    assert (everything.pages_read, len(asked)) == (7, 7 * 3)
    assert len(set(map(digest_of, asked))) == ASKED_BY_HAND
    asked.clear()
    report = read(tmp_path / "images", model, tmp_path / "out.parquet")
    assert len(asked) == ASKED_BY_HAND
    assert report.saved == SavedReport(6 * 3, 6 * 3 - ASKED_BY_HAND, 0, documents=1, pages=1)
    assert texts(read_rows(tmp_path / "out.parquet")) == texts(read_rows(tmp_path / "all.parquet"))
    asked.clear()
    cache = {"cache": str(tmp_path / "cache")}
    read(tmp_path / "images", model, tmp_path / "cached.parquet", **cache)
    assert len(asked) == ASKED_BY_HAND
    report = read(tmp_path / "images", model, tmp_path / "again.parquet", **cache)
    assert len(asked) == ASKED_BY_HAND, "nothing more"
    assert report.saved == SavedReport(6 * 3, 6 * 3 - ASKED_BY_HAND, ASKED_BY_HAND, documents=1, pages=1)
    assert texts(read_rows(tmp_path / "again.parquet")) == texts(read_rows(tmp_path / "all.parquet"))
    assert (report.output_tokens_per_second, report.per_page.image_tokens, report.per_page.patches) == (0, 0, 0)


@pytest.mark.long
def test_another_model_another_limit_and_another_size_have_answers_of_their_own(
    documents: Path, model: Path, tmp_path: Path
) -> None:
    document, cache = documents / "d.pdf", {"cache": str(tmp_path / "cache")}
    read(document, model, tmp_path / "1.parquet", **cache)
    other = make_quick_model(tmp_path / "other")
    path = other / "preprocessor_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"max_pixels": 30_000}))
    assert read(document, other, tmp_path / "2.parquet", **cache).saved.from_cache == 0
    assert read(document, model, tmp_path / "3.parquet", dpi=80, **cache).saved.from_cache == 0
    report = read(document, model, tmp_path / "4.parquet", max_new_tokens=7, **cache)
    assert report.saved.from_cache == 2, "layouts have a limit of their own"


def test_a_table_and_a_cache_are_continued_that_have_the_older_form_of_the_models_fingerprint(
    documents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_quick_model(tmp_path / "model")
    (model / "configuration.json").write_text("{}")
    _, older = fingerprints(model)
    inputs, out, options = tmp_path / "in", tmp_path / "table.parquet", OPTIONS | {"cache": str(tmp_path / "cache")}
    inputs.mkdir()
    shutil.copy(documents / "d.pdf", inputs)
    with monkeypatch.context() as patch:
        patch.setattr("batchocr.job.session.fingerprints", lambda folder, begun=None: (older, older))
        batchocr.run(inputs, out=out, model=model, **options)
    shutil.copy(documents / "c.pdf", inputs)
    assert batchocr.run(inputs, out=out, model=model, **options).pages_read == 4
    assert batchocr.open_table(out).metadata.model_fingerprint == older
    report = batchocr.run(inputs, out=tmp_path / "again.parquet", model=model, **options)
    assert report.saved.from_cache == report.saved.questions - report.saved.from_run > 0
    assert texts(read_rows(tmp_path / "again.parquet")) == texts(read_rows(out))


_KILLED_WHILE_IT_WRITES = """
import os, signal
from pathlib import Path
from batchocr.processes import answer_cache
from tests.support.running import eventually, num_rows

beside, opened, begun = Path(BESIDE), answer_cache._open, []

def trace(sql):
    begun.extend([sql] if sql == "BEGIN IMMEDIATE" else [])
    if sql == "BEGIN IMMEDIATE" and len(begun) == 3:
        eventually(lambda: num_rows(beside) > 0)
    if sql == "COMMIT" and len(begun) == 3:
        os.kill(os.getpid(), signal.SIGKILL)

def open_traced(*arguments):
    db = opened(*arguments)
    db.set_trace_callback(trace)
    return db

answer_cache._WRITE_INTERVAL_S, answer_cache._open = 0.0, open_traced
"""
"""The command that follows writes answers as they come, and is killed when it has done so twice and is about to a third
time. Until then it waits for a row of the table BESIDE."""


@pytest.mark.long
def test_of_two_runs_on_one_cache_one_is_killed_while_it_writes_and_neither_table_is_another(
    documents: Path, model: Path, tmp_path: Path, alone: list[PageResult]
) -> None:
    cache = tmp_path / "cache"
    flags = [
        f"--{name.replace('_', '-')}={value}" for name, value in (OPTIONS | {"model": model, "cache": cache}).items()
    ]
    before = _KILLED_WHILE_IT_WRITES.replace("BESIDE", repr(str(tmp_path / "other.parquet")))
    killed = command(documents, "--out", tmp_path / "killed.parquet", *flags, before=before)
    other = command(documents, "--out", tmp_path / "other.parquet", *flags)
    runs = [subprocess.Popen(killed, stderr=subprocess.PIPE, text=True)]
    eventually((cache / NAME).exists)
    runs.append(subprocess.Popen(other, stderr=subprocess.PIPE, text=True))
    said = [run.communicate(timeout=120)[1] for run in runs]
    assert [run.returncode for run in runs] == [-signal.SIGKILL, 0], said
    assert "without the cache" not in said[1]
    assert texts(read_rows(tmp_path / "other.parquet")) == texts(alone)
    assert not (tmp_path / "killed.parquet").exists()
    report = read(documents, model, tmp_path / "killed.parquet", cache=str(cache))
    assert texts(read_rows(tmp_path / "killed.parquet")) == texts(alone)
    assert report.stages["vit"].items == 0, "the other run has put all answers into the cache"
    with closing(sqlite3.connect(cache / NAME)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


@pytest.mark.long
def test_an_engine_that_fails_while_pages_wait_for_one_another_changes_no_row(
    documents: Path, model: Path, tmp_path: Path, alone: list[PageResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    step, numbers = Engine.step, iter(range(10**9))

    def fail_at_times(engine: Engine, meter: object) -> object:
        if next(numbers) in (5, 25, 60):
            raise RuntimeError("a kernel was not happy")
        return step(engine, meter)  # type: ignore[arg-type]

    monkeypatch.setattr(Engine, "step", fail_at_times)
    read(documents, model, tmp_path / "out.parquet")
    assert texts(read_rows(tmp_path / "out.parquet")) == texts(alone)
