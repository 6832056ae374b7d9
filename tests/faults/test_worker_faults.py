"""Whatever happens to a worker, at any stage of a page: every page has its row, and other pages are unharmed."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

import psutil
import pymupdf
import pytest
from PIL import Image

from batchocr.data import Completion, Document, PageResult, Request
from batchocr.job.pipeline import Pipeline
from batchocr.job.row_plan import RowPlan
from batchocr.job.stop import StopSwitch
from batchocr.processes import pool
from batchocr.processes.child import WORKER_COMMAND
from batchocr.processes.counts import Counts
from batchocr.processes.messages import Setup
from batchocr.processes.pixels import SharedBatch
from batchocr.processes.pool import WorkerPool
from batchocr.storage.listing import Documents
from tests.support import worker_entry
from tests.support.running import children, draw_pdf
from tests.support.worker_entry import POINTS, Fault, write_script

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("nothing_left")]

TIMEOUT_S = 1.0
SLACK_S = 60.0
"""For a busy machine, on which workers take a long time to start."""
MIB = 2**20
LAYOUT = "".join(
    f"<|box_start|>{box}<|box_end|><|ref_start|>text<|ref_end|><|rotate_up|>"
    for box in ("050 050 950 400", "050 500 950 950")
)

Rows = dict[tuple[str, int | None], PageResult]


class AnsweringEngine:
    """Takes the place of the engines. Its answers depend on the pixels it is asked about."""

    channels = ()

    def __init__(self) -> None:
        self._answers: list[tuple[int, tuple[Completion, ...]]] = []

    def ask(self, key: int, batch: SharedBatch) -> None:
        answers = (Completion(answer(request), "stop", 1, 1, 0.5, -1.0) for request in batch.requests())
        self._answers.append((key, tuple(answers)))

    def take_answers(self) -> list[tuple[int, tuple[Completion, ...]]]:
        answers, self._answers = self._answers, []
        return answers


def answer(request: Request) -> str:
    if "Layout" in request.prompt:
        return LAYOUT
    return f"{request.prompt.strip()} {zlib.crc32(request.pixels.data):08x}"


def read(
    paths: Sequence[str | Path],
    *,
    workers: int = 2,
    pages_in_flight: int = 6,
    limit: int | None = None,
    memory_bytes: int = 1024 * MIB,
    page_timeout_s: float = TIMEOUT_S,
    command: tuple[str, ...] = worker_entry.COMMAND,
    on_row: Callable[[WorkerPool], None] = lambda workers: None,
) -> Rows:
    """Read documents through the pipeline, with real workers. on_row: called after each row."""
    documents = [Document(str(path), Path(path).name) for path in paths]
    setup = Setup(
        dpi=72, password=None, max_new_tokens=64, penalties=True, memory_bytes=memory_bytes, protocol="mineru"
    )
    rows: list[PageResult] = []
    with WorkerPool(workers, setup, command) as running:
        pipeline = Pipeline(
            RowPlan(Documents(documents), None, None, limit=limit),
            running,
            Counts(),
            lambda: (AnsweringEngine(), pages_in_flight),
            page_timeout_s,
        )
        for _, row in pipeline.results(StopSwitch(), lambda: None):
            rows.append(row)
            on_row(running)
    by_key = {(row.source, row.page_index): row for row in rows}
    assert len(by_key) == len(rows), "a page has two rows"
    return by_key


def scripts(folder: Path, *documents: Sequence[Fault | None]) -> list[str]:
    return [
        write_script(folder / f"{number}.script", *faults, number=number) for number, faults in enumerate(documents)
    ]


def texts(rows: Rows) -> dict[tuple[str, int | None], str | None]:
    return {key: row.markdown for key, row in rows.items() if row.status == "ok"}


# At every stage of a page


AT_FEW_POINTS = ("opening", "later round")
"""For a fault that ends a worker as another one does that is tried at all points: each costs a worker or more."""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    """The rows of a three-page document for each of POINTS, when nothing goes wrong."""
    return read(scripts(tmp_path_factory.mktemp("sound"), *[(None, None, None)] * len(POINTS)))


@pytest.mark.parametrize(
    ("fault", "kind", "attempts", "points"),
    [
        ("segfault", "crashed", 2, AT_FEW_POINTS),
        ("kill", "crashed", 5, AT_FEW_POINTS),
        ("hang", "timeout", 2, AT_FEW_POINTS),
        ("out-of-memory", "out_of_memory", 2, AT_FEW_POINTS),
        ("raise", "internal", 1, POINTS),
    ],
)
def test_a_fault_at_any_point_costs_the_page_that_has_it_and_no_other(
    tmp_path: Path, undisturbed: Rows, fault: str, kind: str, attempts: int, points: Sequence[str]
) -> None:
    started_s = time.monotonic()
    rows = read(scripts(tmp_path, *((None, (point, fault), None) for point in points)))
    seconds = time.monotonic() - started_s

    failed = {(f"{number}.script", None if point == "opening" else 1) for number, point in enumerate(points)}
    assert {key for key, row in rows.items() if row.status == "failed"} == failed
    assert {rows[key].error_kind for key in failed} == {kind}
    # More often for a page that also lost a worker because of another page.
    assert min(rows[key].attempts for key in failed) == attempts
    neighbours = {(f"{number}.script", page) for number in range(1, len(points)) for page in (0, 2)}
    assert texts(rows) == {key: text for key, text in texts(undisturbed).items() if key in neighbours}
    assert seconds < attempts * len(points) * TIMEOUT_S + SLACK_S


def test_pages_that_find_no_memory_are_tried_again_in_a_fresh_worker(tmp_path: Path) -> None:
    paths = scripts(tmp_path, [None, None, ("rendering", "out-of-memory-unless-fresh"), None])
    rows = read(paths, workers=1, pages_in_flight=1)
    assert [(row.status, row.attempts) for row in rows.values()] == [("ok", 1), ("ok", 1), ("ok", 2), ("ok", 1)]


# Documents that are given up


@pytest.mark.parametrize(
    ("fault", "kind"), [("segfault", "crashed"), pytest.param("hang", "timeout", marks=pytest.mark.long)]
)
def test_a_document_that_costs_its_worker_on_every_page_costs_bounded_time(
    tmp_path: Path, fault: str, kind: str
) -> None:
    hostile = [None, None, *[("rendering", fault)] * 200]
    started_s = time.monotonic()
    rows = read(scripts(tmp_path, hostile, [None] * 20))
    seconds = time.monotonic() - started_s

    # Whether its sound pages were finished before it was given up is a matter of timing.
    sound = [rows["0.script", index] for index in range(2)]
    assert all(row.status == "ok" or "not tried: " in (row.error_message or "") for row in sound)
    fatal = [rows["0.script", index] for index in range(2, 202)]
    assert {(row.status, row.error_kind) for row in fatal} == {("failed", kind)}
    given_up = [row for row in fatal if row.error_message and row.error_message.startswith("not tried: ")]
    assert len(given_up) >= 200 - 4 - 6
    assert fatal[-1].attempts == 0
    assert [rows["1.script", index].status for index in range(20)] == ["ok"] * 20
    # Three pages twice each, plus once the pages in flight in each worker.
    assert seconds < 7 * TIMEOUT_S + SLACK_S


def test_a_run_that_has_its_rows_does_not_wait_for_a_document_that_hangs_behind_them(tmp_path: Path) -> None:
    started = time.monotonic()
    rows = read(scripts(tmp_path, [None], [("opening", "hang")]), limit=1, page_timeout_s=2 * SLACK_S)
    assert [row.status for row in rows.values()] == ["ok"]
    assert time.monotonic() - started < SLACK_S


# Workers that grow old


def test_workers_are_renewed_after_their_share_of_pages_and_no_page_is_begun_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "MAX_PAGES", 8)
    pids: set[int] = set()
    at_once: list[int] = []

    def look(workers: WorkerPool) -> None:
        pids.update(worker.pid for worker in workers.workers)
        at_once.append(len(children()))

    rows = read(scripts(tmp_path, [None] * 60), on_row=look)
    assert {(row.status, row.attempts) for row in rows.values()} == {("ok", 1)}
    assert len(texts(rows)) == 60
    assert len(pids) >= 4
    assert max(at_once) <= 3, "more than one worker beside those at work"


# Memory


def test_a_page_that_needs_more_than_a_worker_may_have_fails_and_others_are_read(tmp_path: Path) -> None:
    # It takes 450 MB to decode and reduce.
    Image.new("1", (13_000, 13_000), 1).save(tmp_path / "large.png")
    # It takes 300 MB to decode; short of memory, MuPDF would draw the page without the image.
    Image.new("RGB", (4_000, 4_000), "red").save(tmp_path / "image.jp2")
    with pymupdf.open() as document:
        document.new_page(width=300, height=300).insert_image((0, 0, 300, 300), filename=tmp_path / "image.jp2")
        document.save(tmp_path / "large.pdf")
    letters = draw_pdf(tmp_path / "letters.pdf", *(f"Letter {number}" for number in range(4)))
    paths = [tmp_path / "large.png", tmp_path / "large.pdf", letters]
    rows = read(paths, memory_bytes=256 * MIB, page_timeout_s=60, command=WORKER_COMMAND)
    for source in ("large.png", "large.pdf"):
        assert (rows[source, 0].error_kind, rows[source, 0].attempts) == ("out_of_memory", 2)
    assert [rows["letters.pdf", index].status for index in range(4)] == ["ok"] * 4


# Workers that are killed


def test_a_worker_killed_while_it_starts_is_held_against_no_page(tmp_path: Path) -> None:
    path = draw_pdf(tmp_path / "letters.pdf", *(f"Letter {number}" for number in range(120)))
    killed: set[int] = set()
    rows_so_far = count()

    def kill_one_worker_as_often_as_it_is_started(workers: WorkerPool) -> None:
        starting = [worker for worker in workers.workers if not worker.has_spoken]
        if starting or next(rows_so_far) % 10 == 0:  # if none is starting, soon one is
            victim = (starting or workers.workers)[0]
            if victim.pid not in killed:  # two rows may have come at once
                psutil.Process(victim.pid).kill()
            killed.add(victim.pid)

    kill = kill_one_worker_as_often_as_it_is_started
    rows = read([path], pages_in_flight=2, page_timeout_s=60, command=WORKER_COMMAND, on_row=kill)
    assert len(killed) > 5
    assert {row.status for row in rows.values()} == {"ok"}
