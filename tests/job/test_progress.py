"""What is shown while a run goes on: a bar on a terminal, log lines elsewhere."""

from __future__ import annotations

import io
import json
import logging
import sys
import threading
from pathlib import Path

import pytest

import batchocr
from batchocr.cli.console import JsonFormatter, write_line
from batchocr.data import PageResult
from batchocr.job.progress import ProgressBar, ProgressLog, RunProgress, log_failure
from tests.support.running import read_rows


class Clock:
    """A clock that moves only when told to."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_a_line_is_logged_at_once_then_every_ten_seconds_and_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="batchocr")
    clock = Clock()
    progress = ProgressLog(clock)
    for second in range(25):
        clock.now_s = 100.0 + second
        progress.show(RunProgress(second, 60, second >= 15, failed=second // 20, read=second))
    progress.close()
    assert caplog.messages == [
        "0 of 60 or more pages",
        "10 of 60 or more pages, 1.00 pages/s",
        "20 of 60 pages, 1 failed, 1.00 pages/s, about 0:00:40 left",
        "24 of 60 pages, 1 failed, 1.00 pages/s, about 0:00:36 left",
    ]


def said(state: RunProgress, elapsed_s: float, caplog: pytest.LogCaptureFixture) -> str:
    """What the log says of a run after this long."""
    caplog.set_level(logging.INFO, logger="batchocr")
    clock = Clock()
    progress = ProgressLog(clock)
    progress.show(RunProgress(0, 0, False, failed=0, read=0))
    clock.now_s += elapsed_s
    progress.show(state)
    progress.close()
    return caplog.messages[-1]


@pytest.mark.parametrize(
    ("state", "elapsed_s", "line"),
    [
        (RunProgress(0, 0, False, failed=0, read=0), 30, "opening the documents"),
        (RunProgress(0, 0, True, failed=0, read=0), 30, "no pages to read"),
        (RunProgress(0, 1, True, failed=0, read=0, blocks=1), 30, "0 of 1 page, 1 block"),
        (RunProgress(1, 14, True, failed=0, read=1, blocks=57), 67, "1 of 14 pages, 57 blocks, 67 s a page"),
        (RunProgress(50, 90, False, failed=0, read=50, blocks=700), 25, "50 of 90 or more pages, 2.00 pages/s"),
        (
            RunProgress(40, 90, True, failed=10, read=30, degraded=7, blocks=90),
            60,
            "40 of 90 pages, 10 failed, 7 degraded, 90 blocks, 0.50 pages/s, about 0:01:40 left",
        ),
        (
            RunProgress(1020, 9000, True, failed=0, read=20),  # 1,000 were done before
            20,
            "1,020 of 9,000 pages, 1.00 pages/s, about 2:13:00 left",
        ),
        (RunProgress(1, 2, True, failed=0, read=1), 20, "1 of 2 pages, 20 s a page, about 0:00:20 left"),
    ],
)
def test_a_line_counts_what_there_is_and_rates_what_was_read(
    state: RunProgress, elapsed_s: float, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert said(state, elapsed_s, caplog) == line


@pytest.mark.parametrize(
    ("state", "elapsed_s"),
    [
        (RunProgress(9, 90, True, failed=0, read=9), 9),  # the first seconds
        (RunProgress(1009, 9000, True, failed=0, read=9), 60),  # a resumed run that has hardly begun
        (RunProgress(50, 90, False, failed=0, read=50), 60),  # the total still grows
        (RunProgress(90, 90, True, failed=0, read=90), 60),
        (RunProgress(40, 90, True, failed=40, read=0), 60),
    ],
)
def test_the_time_left_is_not_told_before_it_can_be_known(
    state: RunProgress, elapsed_s: float, caplog: pytest.LogCaptureFixture
) -> None:
    assert "left" not in said(state, elapsed_s, caplog)


def test_the_bar_moves_while_a_page_takes_long_and_tells_the_time_left_once_it_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    clock = Clock()
    bar = ProgressBar(clock)
    bar.show(RunProgress(0, 20, False, failed=0, read=0))
    for seconds, read, blocks in ((20, 0, 12), (40, 0, 31), (300, 10, 140)):
        clock.now_s = 100.0 + seconds
        bar.show(RunProgress(read, 30, True, failed=0, read=read, blocks=blocks))
    bar.close()
    drawn = [text for text in sys.stderr.getvalue().split("\r") if "pages" in text]
    assert "0 of 20 or more pages" in drawn[0]
    assert [text[text.index("[") :].rstrip() for text in drawn[1:3]] == ["[00:20, 12 blocks]", "[00:40, 31 blocks]"]
    assert " 33% |" in drawn[-1]
    assert drawn[-1].rstrip().endswith("10 of 30 pages [05:00 < 10:00, 140 blocks, 30 s a page]")


def test_a_line_written_beside_the_bar_stands_on_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    bar = ProgressBar(Clock())
    bar.show(RunProgress(1, 4, True, failed=0, read=1))
    write_line("a line of its own")
    bar.close()
    assert "\ra line of its own\n" in sys.stderr.getvalue()


def test_a_closed_stderr_stops_neither_the_bar_nor_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stderr", Broken())
    bar = ProgressBar(Clock())
    bar.show(RunProgress(1, 2, True, failed=0, read=1))
    logging_thread = threading.Thread(target=write_line, args=("nobody reads this",), daemon=True)
    logging_thread.start()
    logging_thread.join(20)
    assert not logging_thread.is_alive(), "the bar keeps a lock that others need"
    bar.close()


def test_every_json_line_names_its_event(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="batchocr")
    clock = Clock()
    progress = ProgressLog(clock)
    progress.show(RunProgress(10, 60, True, failed=1, read=0))
    clock.now_s += 10
    progress.show(RunProgress(30, 60, True, failed=1, read=20, degraded=4))
    logging.getLogger("batchocr").info("something else")
    _, heartbeat, other = (json.loads(JsonFormatter().format(record)) for record in caplog.records)
    assert other["event"] == "message"
    counts = {"done": 30, "planned": 60, "all_planned": True, "failed": 1, "degraded": 4, "pages_per_second": 2.0}
    assert heartbeat["event"] == "progress"
    assert counts.items() <= heartbeat.items()


def test_a_failed_page_has_one_line_that_says_which_and_why(caplog: pytest.LogCaptureFixture) -> None:
    log_failure(PageResult("a.pdf", 2, "failed", error_kind="damaged", error_message="no objects", attempts=2))
    log_failure(PageResult("b.pdf", None, "failed", error_kind="encrypted", error_message="asks for a password"))
    page, document = (json.loads(JsonFormatter().format(record)) for record in caplog.records)
    assert page.pop("time").endswith("+00:00")
    assert page == {
        "level": "warning",
        "event": "page_failed",
        "message": "page 3 of a.pdf failed (damaged): no objects",
        "source": "a.pdf",
        "page_index": 2,
        "error_kind": "damaged",
        "error_message": "no objects",
        "attempts": 2,
    }
    assert (document["message"], document["page_index"]) == ("b.pdf failed (encrypted): asks for a password", None)


@pytest.mark.slow
def test_a_run_tells_the_blocks_it_has_read_before_any_page_is_finished(
    model: Path, sample_data: Path, tmp_path: Path
) -> None:
    states, out = list[RunProgress](), tmp_path / "out.jsonl"
    article = sample_data / "documents" / "article.pdf"
    batchocr.run(article, out=out, progress=states.append, model=model, device="cpu", pages="1")
    [row] = read_rows(out)
    num_read = sum(block.confidence is not None for block in row.blocks)
    unfinished = [state.blocks for state in states if state.done == 0]
    assert num_read > 1
    assert unfinished == sorted(unfinished)
    assert (unfinished[0], unfinished[-1]) == (0, num_read)
    assert (states[-1].done, states[-1].read) == (1, 1)
