"""With --log-format json, every line on stderr is a JSON object, whatever goes wrong and whoever writes it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from batchocr.cli.start import log_format_of
from tests.support import running
from tests.support.running import QUICK_MODEL
from tests.support.stand_in import RUN, ended, start

pytestmark = pytest.mark.slow

OUT = RUN[1:]
JSON = ("--log-format", "json")
LIBRARIES = """
    import ctypes, logging, os, threading, warnings
    warnings.warn('a warning')
    logging.getLogger('other').error('a log line')
    logging.lastResort.stream.write('without an end')
    print(' and a print', file=sys.stderr)
    os.write(2, b'from C, and no text: \\xff\\n')
    os.system('echo a process >&2')
    thread = threading.Thread(target=lambda: 1 / 0)
    thread.start(); thread.join()
    return report()
"""


def objects(stderr: str) -> list[dict[str, object]]:
    """The lines of stderr, each of which must be one of the log's objects."""
    lines = [json.loads(line) for line in stderr.splitlines()]
    assert all({"time", "level", "event", "message"} <= line.keys() for line in lines), stderr
    return lines


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("docs",), 2, "--out"),
        ((*OUT, "--dpi", "0"), 2, "--dpi 0: should be greater than 0"),
        ((*OUT, "--model", "./no-such-model"), 5, "no-such-model"),
        (("docs", "--out", "no-such-folder/table.parquet", "--model", "MODEL"), 6, "no-such-folder"),
        ((*OUT, "--model", "MODEL"), 3, "1 of 1 row"),
    ],
    ids=lambda value: " ".join(value)[-40:] if isinstance(value, tuple) else None,
)
def test_every_way_to_fail_is_said_in_json(tmp_path: Path, arguments: tuple[str, ...], code: int, said: str) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.pdf").write_bytes(b"no PDF")
    named = [str(QUICK_MODEL) if argument == "MODEL" else argument for argument in arguments]
    program = running.command(*named, *JSON)
    done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    lines = objects(done.stderr)
    assert done.returncode == code
    assert said in json.dumps(lines)
    assert lines[-1]["exit_code"] == code
    assert lines[-1]["event"] == ("run_finished" if code == 3 else "run_failed")


def test_a_bug_and_its_traceback_are_one_object() -> None:
    exit_code, stderr = ended(start("raise KeyError('x')", *RUN, *JSON))
    [line] = objects(stderr)
    assert (exit_code, line["event"], line["error"]) == (1, "run_failed", "KeyError")
    assert "KeyError" in str(line["traceback"])


def test_what_libraries_and_processes_write_is_in_json_too() -> None:
    exit_code, stderr = ended(start(LIBRARIES, *RUN, *JSON, "--verbose"))
    lines = objects(stderr)
    said = [str(line["message"]) for line in lines]
    assert exit_code == 0
    assert any("a warning" in text for text in said)
    assert "a log line" in said
    assert "without an end and a print" in said
    assert "from C, and no text: \\xff" in said
    assert "a process" in said
    assert "ZeroDivisionError: division by zero" in said
    assert {line["level"] for line in lines if line["message"] == "a process"} == {"warning"}


def test_more_than_the_pipe_holds_is_in_json_whole() -> None:
    flood = "import os; [os.write(2, b'x' * 99_999 + b'\\n') for _ in range(40)]; return report()"
    exit_code, stderr = ended(start(flood, *RUN, *JSON))
    assert exit_code == 0
    assert [line["message"] for line in objects(stderr)].count("x" * 99_999) == 40


def test_a_crash_in_c_leaves_json_alone() -> None:
    """Its last words may be lost, as the thread that logs them ends too."""
    exit_code, stderr = ended(start("import faulthandler, os; faulthandler.enable(); os.abort()", *RUN, *JSON))
    objects(stderr)
    assert exit_code == -signal.SIGABRT


def test_a_reader_of_the_json_that_has_gone_changes_nothing() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run(
        [sys.executable, "-m", "batchocr", "run", "docs", *JSON], stderr=write_end, timeout=60, check=False
    )
    os.close(write_end)
    assert done.returncode == 2


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["run", "--log-format", "json"], "json"),
        (["run", "--log-format=json", "x"], "json"),
        (["run", "--log-format"], "text"),
        (["run", "--log-format", "xml"], "text"),
        (["verify", "t.parquet", "docs", "--json"], "json"),
        (["run", "json"], "text"),
    ],
)
def test_the_format_is_known_before_the_command_line_is_parsed(arguments: list[str], expected: str) -> None:
    assert log_format_of(arguments) == expected
