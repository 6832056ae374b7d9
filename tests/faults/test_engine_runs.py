"""Whole runs with an engine that fails midway: every page has its row, which says what became of it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import pytest
import torch

import batchocr
import batchocr.engine.backend
from batchocr.api import run_with
from batchocr.config import make_config
from batchocr.data import Completion, PageResult
from batchocr.engine.backend.device import Mark
from batchocr.engine.engine import Engine
from batchocr.errors import EngineError
from batchocr.job.stop import StopSwitch
from batchocr.processes.meter import Meter
from batchocr.tables.files import report_path
from tests.support.late_device import LateDevice, LateMark
from tests.support.running import draw_pdf, num_rows, read_rows, texts

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


@pytest.mark.parametrize(
    "error",
    [RuntimeError("a kernel was not happy"), pytest.param(torch.OutOfMemoryError("no memory"), marks=pytest.mark.long)],
)
def test_an_engine_that_fails_once_changes_no_row(
    error: Exception, document: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    undisturbed = rows_of_a_run(document, model, tmp_path / "undisturbed.parquet")

    def fail(number: int, answered: Answered) -> Answered:
        if number == 20:
            raise error
        return answered

    tamper_with_steps(monkeypatch, fail)
    assert texts(rows_of_a_run(document, model, tmp_path / "out.parquet")) == texts(undisturbed)


class SlowDevice(LateDevice):
    """Every slice of a ViT batch takes minutes."""

    vit_flop_a_row = 1e3

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


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\x00\udcff\x1b[2J",
        "<|box_start|>999 999 000 000<|box_end|><|ref_start|>text<|ref_end|><|rotate_up|>",
        "<|box_start|>000 000 999 999<|box_end|><|ref_start|>table<|ref_end|><|rotate_left|>\n" * 50,
        "<fcel>" * 2000 + "\\frac{" * 500,
    ],
)
def test_an_engine_that_answers_nonsense_leaves_a_row_for_every_page(
    text: str, document: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tamper_with_steps(monkeypatch, lambda _, answered: [(key, replace(answer, text=text)) for key, answer in answered])
    rows = rows_of_a_run(document, model, tmp_path / "out.parquet")
    assert {row.status for row in rows} <= {"ok", "degraded"}


def test_answers_that_go_in_circles_make_a_page_degraded(
    document: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def loop(_: int, answered: Answered) -> Answered:
        return [(key, replace(answer, finish_reason="repetition")) for key, answer in answered]

    tamper_with_steps(monkeypatch, loop)
    rows = rows_of_a_run(document, model, tmp_path / "out.parquet")
    assert {row.status for row in rows} == {"degraded"}
    assert all("looped" in (row.error_message or "") for row in rows)


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
            stop.request("terminated")
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


def test_a_run_whose_engines_all_fail_ends_with_their_error_and_the_next_goes_on(
    document: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, num_answered = tmp_path / "out.parquet", 0

    def fail_later(_: int, answered: Answered) -> Answered:
        nonlocal num_answered
        num_answered += len(answered)
        if num_answered > 8:
            raise RuntimeError("the device is gone")
        return answered

    with monkeypatch.context() as tampered:
        tamper_with_steps(tampered, fail_later)
        with pytest.raises(EngineError, match="the engine on cpu failed: RuntimeError: the device is gone"):
            batchocr.run(document, out=out, model=model, device="cpu", pages_in_flight=2)
    report = json.loads(report_path(out).read_text())
    assert report["exit_reason"] == "failed"
    assert "the device is gone" in report["error"]
    assert 0 < num_rows(out) < NUM_PAGES
    assert not out.exists()
    rows = rows_of_a_run(document, model, out, retry_failed=True)
    assert all(row.status == "ok" or "the device is gone" in (row.error_message or "") for row in rows)
