"""What is shown while a run goes on: a bar on a terminal, log lines elsewhere."""

from __future__ import annotations

import io
import json
import logging
import sys

import pytest

from batchocr.cli.console import JsonFormatter, TextFormatter, write_line
from batchocr.data import PageResult
from batchocr.job.progress import ProgressBar, ProgressLog, RunProgress, log_failure


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


def test_pages_done_before_this_run_do_not_count_into_its_rate(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="batchocr")
    clock = Clock()
    progress = ProgressLog(clock)
    progress.show(RunProgress(0, 9000, True, failed=0, read=0))
    clock.now_s += 10
    progress.show(RunProgress(1005, 9000, True, failed=0, read=5))
    assert caplog.messages == ["0 of 9000 pages", "1005 of 9000 pages, 0.50 pages/s, about 4:26:30 left"]


def test_a_run_that_began_nothing_logs_no_progress(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="batchocr")
    ProgressLog().close()
    assert caplog.messages == []


def test_the_bar_says_that_the_total_may_grow_until_it_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    clock = Clock()
    bar = ProgressBar(clock)
    bar.show(RunProgress(1, 40, False, failed=0, read=1))
    clock.now_s += 1
    bar.show(RunProgress(20, 80, True, failed=3, read=20))
    bar.close()
    first, *_, last = [text for text in sys.stderr.getvalue().split("\r") if "pages" in text]
    assert "1 of 40 or more pages" in first
    assert " 25% |" in last
    assert "20 of 80 pages" in last
    assert "3 failed" in last


def test_the_bar_is_not_drawn_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    bar = ProgressBar(Clock())
    for done in range(1000):
        bar.show(RunProgress(done, 1000, True, failed=0, read=done))
    drawn = sys.stderr.getvalue()
    bar.close()
    assert "0 of 1000 pages" in drawn
    assert "999 of 1000 pages" not in drawn


def test_a_closed_bar_leaves_the_line_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    bar = ProgressBar(Clock())
    bar.show(RunProgress(1, 2, True, failed=0, read=1))
    bar.close()
    *_, drawn, cleared, rest = sys.stderr.getvalue().split("\r")
    assert (cleared, rest) == (" " * len(drawn.rstrip("\n")), "")


def test_a_line_written_beside_the_bar_stands_on_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    bar = ProgressBar(Clock())
    bar.show(RunProgress(1, 4, True, failed=0, read=1))
    write_line("a line of its own")
    bar.close()
    assert "\ra line of its own\n" in sys.stderr.getvalue()


def test_a_closed_stderr_stops_neither_the_bar_nor_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts: list[str] = []

    class Broken(io.StringIO):
        def write(self, text: str) -> int:
            attempts.append(text)
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stderr", Broken())
    bar = ProgressBar(Clock())
    bar.show(RunProgress(1, 2, True, failed=0, read=1))
    write_line("nobody reads this")
    bar.close()
    assert any("nobody reads this" in text for text in attempts)


def record(level: int, message: str) -> logging.LogRecord:
    return logging.LogRecord("batchocr.test", level, "", 0, message, None, None)


def test_text_names_the_level_of_what_is_worse_than_information() -> None:
    formatter = TextFormatter()
    assert formatter.format(record(logging.INFO, "all is well")) == "batchocr: all is well"
    assert formatter.format(record(logging.ERROR, "no")) == "batchocr: error: no"


def test_a_json_line_is_one_object_with_time_level_and_message() -> None:
    line = JsonFormatter().format(record(logging.WARNING, "two\nlines, ü"))
    assert "\n" not in line
    entry = json.loads(line)
    assert (entry["level"], entry["message"]) == ("warning", "two\nlines, ü")
    assert entry["time"].endswith("+00:00")


def test_every_json_line_names_its_event(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="batchocr")
    clock = Clock()
    progress = ProgressLog(clock)
    progress.show(RunProgress(10, 60, True, failed=1, read=0))
    clock.now_s += 10
    progress.show(RunProgress(30, 60, True, failed=1, read=20))
    logging.getLogger("batchocr").info("something else")
    _, heartbeat, other = (json.loads(JsonFormatter().format(record)) for record in caplog.records)
    assert other["event"] == "message"
    counts = {"done": 30, "planned": 60, "all_planned": True, "failed": 1, "pages_per_second": 2.0}
    assert heartbeat["event"] == "progress"
    assert counts.items() <= heartbeat.items()


def test_a_failed_page_has_one_line_that_says_which_and_why(caplog: pytest.LogCaptureFixture) -> None:
    log_failure(PageResult("a.pdf", 2, "failed", error_kind="damaged", error_message="no objects", attempts=2))
    log_failure(PageResult("b.pdf", None, "failed", error_kind="encrypted", error_message="asks for a password"))
    page, document = (json.loads(JsonFormatter().format(record)) for record in caplog.records)
    del page["time"]
    assert page == {
        "level": "warning",
        "event": "page_failed",
        "message": "page 3 of a.pdf failed: damaged: no objects",
        "source": "a.pdf",
        "page_index": 2,
        "error_kind": "damaged",
        "error_message": "no objects",
        "attempts": 2,
    }
    assert (document["message"], document["page_index"]) == ("b.pdf failed: encrypted: asks for a password", None)
