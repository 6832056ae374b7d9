"""What messages tell people to do is possible, and numbers stand with their nouns."""

from __future__ import annotations

import ast
import errno
import os
import pty
import re
import signal
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from tqdm import tqdm

import batchocr
from batchocr.cli import console, main
from batchocr.cli.console import COUNTING
from batchocr.cli.signals import stop_on_signals
from batchocr.config import Config
from batchocr.errors import ExitCode
from batchocr.job.stop import StopSwitch

PACKAGE = Path(batchocr.__file__).parent
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*[a-z0-9](?![\w-])")


def strings(path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))


def test_every_option_that_the_package_names_is_one_of_a_command() -> None:
    group = typer.main.get_command(main.app)
    commands = [group, *getattr(group, "commands", {}).values()]
    parameters = [parameter for each in commands for parameter in each.params]
    known = {"--help"} | {option for each in parameters for option in (*each.opts, *each.secondary_opts)}
    named = {
        (option, str(path.relative_to(PACKAGE)))
        for path in PACKAGE.rglob("*.py")
        for text in strings(path)
        for option in _OPTION.findall(text)
    }
    assert len(named) > 100
    assert sorted(pair for pair in named if pair[0] not in known) == []


def test_a_full_disk_is_no_bug_and_the_message_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(**_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/data/out.md")

    monkeypatch.setattr(main, "app", full)
    assert main.run_app("text") == ExitCode.OUTPUT
    assert caplog.messages == ["No space left on device for /data/out.md: make room, and run this again"]


def test_the_rate_of_a_slow_bar_is_still_so_many_a_second() -> None:
    shown = tqdm.format_meter(2, 40, 20.0, ncols=80, unit=" pages", bar_format=COUNTING)
    assert "2 of 40 pages" in shown and "0.10 pages/s" in shown


@pytest.mark.parametrize("level", ["INFO", "WARNING"])
def test_without_a_terminal_a_command_logs_how_far_it_is_unless_it_is_quiet(
    level: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(console, "_LINE_INTERVAL_S", 0.0)
    caplog.set_level(level, logger="batchocr")
    with console.counting_bar(what="exporting", total=40, unit="pages") as bar:
        bar.update(8)
    assert list(console.counting_bar(iter("ab"), what="merging", unit="rows")) == ["a", "b"]
    said = [message.partition(" [")[0] for message in caplog.messages]
    assert [line for line in said if not line.startswith(("exporting: 0", "merging: 0", "merging: 1"))] == (
        ["exporting: 8 of 40 pages", "merging: 2 of ? rows"] if level == "INFO" else []
    )


def test_a_command_of_less_than_ten_seconds_logs_no_line_of_its_progress(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="batchocr")
    assert list(console.counting_bar(range(3), what="merging", unit="rows")) == [0, 1, 2]
    assert caplog.messages == []


def test_a_terminal_without_width_has_no_room_for_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = pty.openpty()
    with open(ours), open(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        for columns in (0, 80):
            termios.tcsetwinsize(theirs, (24, columns))
            assert console.has_terminal() == (columns > 0)


def test_a_folder_without_a_table_is_called_a_folder(tmp_path: Path) -> None:
    from batchocr.errors import OutputError
    from batchocr.tables.opened import find_tables

    with pytest.raises(OutputError, match=f"there is no table in the folder {tmp_path}"):
        find_tables(str(tmp_path))


def test_a_stop_that_comes_twice_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="batchocr")
    stop = StopSwitch()
    with stop_on_signals(stop, Config(model="m")):
        stop.phase = "reading"
        for _ in range(2):  # as of a job system that tells the process and its group
            signal.raise_signal(signal.SIGTERM)
    assert [message.partition(":")[0] for message in caplog.messages] == ["terminated"]
