"""Whole runs in tests: a quick model, documents of a few pages, the command, and what it leaves behind."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import psutil
import pymupdf
import pytest

from batchocr.cli.main import run_app as run_command_line
from batchocr.data import PageResult
from batchocr.tables.table import table_for
from tests.support.process_template import MODULE, USE, name_of_forked

DEADLINE_S = 60.0
QUICK_MODEL = Path(__file__).parent / "quick_model" / "checkpoint"
T = TypeVar("T")


def make_quick_model(folder: Path) -> Path:
    """A model that cannot read, with a low image limit: every answer is well-formed, and a page takes a tenth of a
    second."""
    shutil.copytree(QUICK_MODEL, folder)
    path = folder / "preprocessor_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"max_pixels": 224 * 224}))
    return folder


def draw_pdf(path: Path, *pages: str) -> Path:
    """Write a PDF with a page for each text."""
    with pymupdf.open() as document:
        for text in pages:
            page = document.new_page(width=150, height=200)
            page.insert_textbox((15, 15, 135, 185), f"{text}\n\n" * 8, fontsize=7)
        document.save(path)
    return path


def command(*arguments: str | Path, name: str = "run", before: str = "") -> list[str | Path]:
    """`batchocr run`, or another of its commands, with its workers and engines forked from templates. before: what to
    run ahead of it."""
    program = f"{USE}{before}\nfrom batchocr.cli.start import main\nmain()"
    return [sys.executable, "-P", "-c", program, name, *arguments]


def run_command(*arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command to its end, whatever its exit code. It must not show a traceback."""
    done = subprocess.run(command(*arguments), cwd=cwd, capture_output=True, text=True, timeout=120, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    return done


def run_script(script: Path, model: Path, folder: Path) -> list[str]:
    """The lines that a program prints, which is given the model and run in this folder."""
    command = [sys.executable, script, model]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def read_rows(out: Path) -> list[PageResult]:
    return list(table_for(out).read_rows(out))


def texts(rows: Iterable[PageResult]) -> list[PageResult]:
    """The rows without what may differ between two runs: attempts, probabilities (in their last digits), and what is of
    the file and not of its content."""
    return [
        replace(
            row,
            attempts=1,
            file_bytes=None,
            file_mtime_ns=None,
            layout_confidence=None,
            layout_min_logprob=None,
            blocks=tuple(replace(block, confidence=None, min_logprob=None) for block in row.blocks),
        )
        for row in rows
    ]


def eventually(look: Callable[[], T]) -> T:
    """What `look` returns, once that is truthy."""
    deadline_s = time.monotonic() + DEADLINE_S
    while not (found := look()):
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    return found


def workers_of(process: psutil.Process | None = None) -> list[psutil.Process]:
    """The worker processes of this process, or of another."""
    return _children_of(process, "batchocr.pages")


def engines_of(process: psutil.Process | None = None) -> list[psutil.Process]:
    """The engine processes of this process, or of another."""
    return _children_of(process, "batchocr.engine")


def children(process: psutil.Process | None = None) -> list[psutil.Process]:
    """The processes that this one, or another, has started, without those that others are forked from."""
    return _children_of(process, "")


def _children_of(process: psutil.Process | None, module: str) -> list[psutil.Process]:
    owner = process or psutil.Process()
    forked = name_of_forked(owner.pid)
    found = []
    for child in {*owner.children(recursive=True), *psutil.Process().children(recursive=True)}:
        with suppress(psutil.NoSuchProcess):  # it has just ended
            command = child.cmdline()
            is_own = child.name() == forked if MODULE in command else owner in child.parents()
            if is_own and (not module or module in command):
                found.append(child)
    return found


def is_alive(process: psutil.Process) -> bool:
    """Whether it has not ended; one that only waits for its parent to notice has."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def journal(out: Path) -> Path:
    return out.with_name(out.name + ".journal")


def num_rows(out: Path) -> int:
    """The number of complete lines in a run's journal, without its header."""
    return journal(out).read_bytes().count(b"\n") - 1 if journal(out).exists() else 0


def raising(error: BaseException) -> Callable[..., None]:
    """A function that raises the error, whatever it is called with."""

    def function(*_: object, **__: object) -> None:
        raise error

    return function


def run_app(monkeypatch: pytest.MonkeyPatch, *arguments: str | Path) -> int:
    """The command in this process, which takes a fraction of the time of a new one; its exit code."""
    monkeypatch.setattr(sys, "argv", ["batchocr", *map(str, arguments)])
    return run_command_line("text")


def said_by(*arguments: str | Path) -> tuple[int, str, str]:
    """The command in this process: its exit code, what it printed, and what it logged."""
    out, log = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(log):
        code = run_app(patch, *arguments)
    return code, out.getvalue(), log.getvalue()
