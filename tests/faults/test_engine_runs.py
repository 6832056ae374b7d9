"""Whole runs with an engine that takes long, or that says nothing more once the run is to stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

import batchocr
import batchocr.engine.backend
from batchocr.api import run_with
from batchocr.config import make_config
from batchocr.data import Completion, PageResult
from batchocr.engine.backend.device import Mark
from batchocr.engine.engine import Engine
from batchocr.errors import UsageError
from batchocr.job.stop import StopSwitch
from batchocr.processes.meter import Meter
from tests.support.late_device import LateDevice, LateMark
from tests.support.running import draw_pdf, read_rows

pytestmark = pytest.mark.slow

Answered: TypeAlias = list[tuple[int, Completion]]
Tamper: TypeAlias = Callable[[int, Answered], Answered]
"""Returns what becomes of a step's answers, or raises. The first argument is the step's number."""

NUM_PAGES = 6


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return draw_pdf(tmp_path_factory.mktemp("input") / "a.pdf", *(f"Page {number}." for number in range(NUM_PAGES)))


def rows_of_a_run(document: Path, model: Path, out: Path, **options: bool) -> list[PageResult]:
    report = batchocr.run(document, out=out, model=model, **options)
    assert report.ledger_adds_up
    rows = read_rows(out)
    assert [row.page_index for row in rows] == list(range(NUM_PAGES))
    return rows


def tamper_with_steps(monkeypatch: pytest.MonkeyPatch, tamper: Tamper) -> None:
    step, numbers = Engine.step, iter(range(10**9))

    def tampered(engine: Engine, meter: Meter) -> Answered:
        return tamper(next(numbers), step(engine, meter))

    monkeypatch.setattr(Engine, "step", tampered)


class SlowDevice(LateDevice):
    """Every slice of a ViT batch takes minutes."""

    vit_slice_flop_per_sequence = 1e3

    def mark(self) -> Mark:
        mark = super().mark()
        assert isinstance(mark, LateMark)
        mark._time_s = time.perf_counter() + 100.0 * len(self.events)
        self.events.append("mark")
        return mark


def test_an_engine_on_a_slow_device_is_not_lost(
    document: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batchocr.engine.backend, "open_device", lambda *_, **__: SlowDevice())
    report = batchocr.run(document, out=tmp_path / "out.parquet", model=model, vit_batch_size=2)
    assert report.items.ok + report.items.degraded == NUM_PAGES
    assert [engine.lost for engine in report.engines] == [0]


@pytest.mark.parametrize("at_a_step", [pytest.param(False, marks=pytest.mark.long), True])
def test_a_run_that_is_stopped_does_not_wait_for_ever_for_what_is_in_flight(
    at_a_step: bool, document: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, stop, let_go = tmp_path / "out.parquet", StopSwitch(), threading.Event()
    config = make_config({"model": str(model), "pages_in_flight": 2})
    answers: Answered = []

    def answer_no_more(_: int, answered: Answered) -> Answered:
        if stop.reason is not None:
            if at_a_step:
                let_go.wait(60)
            return []
        answers.extend(answered)
        if len(answers) > 12:
            stop.request("stop_after")
        return answered

    monkeypatch.setattr("batchocr.job.stop.GRACE_S", 0.5)
    monkeypatch.setattr("tests.support.engine_thread._JOIN_S", 0.5)
    with monkeypatch.context() as tampered:
        tamper_with_steps(tampered, answer_no_more)
        try:
            report = run_with(config, str(document), out=out, stop=stop, progress=None)
        finally:
            let_go.set()
    assert report.exit_reason == "stopped"
    assert 0 < report.items.ok + report.items.degraded < NUM_PAGES
    assert report.items.not_reached == NUM_PAGES - report.items.ok - report.items.degraded
    assert not out.exists()
    rows_of_a_run(document, model, out)


def test_a_run_whose_time_is_over_before_its_first_page_is_finished_says_so_and_how_long_it_read(
    document: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, out, stop = make_config({"model": str(model)}), tmp_path / "out.parquet", StopSwitch()

    def answer_no_page(_: int, answered: Answered) -> Answered:
        if stop.phase == "starting":
            return answered
        stop.request("stop_after")
        return []

    monkeypatch.setattr("batchocr.job.stop.GRACE_S", 0.5)
    tamper_with_steps(monkeypatch, answer_no_page)
    with pytest.raises(UsageError, match=r"no page was finished in the \d+ s after that; give the run more time"):
        run_with(config, str(document), out=out, stop=stop, progress=None)
