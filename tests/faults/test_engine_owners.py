"""Programs that use engines, however they go on and end: no engine and no worker outlives them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from tests.support.running import draw_pdf, eventually, is_alive

pytestmark = pytest.mark.slow

NUM_LETTERS = 6
LETTERS = [f"letter{number}.pdf" for number in range(NUM_LETTERS)]
MARK = "BATCHOCR_TEST_PROGRAM"

BEGINNING = """
import os, signal, sys, threading, time
import psutil
import batchocr

options = {"model": sys.argv[1], "dpi": 72, "max_new_tokens": 8, "workers": 1, "device": "cpu"}

def say(*words):
    print(*words, flush=True)

def children():
    return len(psutil.Process().children(recursive=True))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "letters").mkdir()
    for number, name in enumerate(LETTERS):
        draw_pdf(tmp_path / "letters" / name, f"Letter {number}")
    return tmp_path


def processes_of(program: Path) -> list[psutil.Process]:
    """All that this program has started, and itself, whoever their parent is by now."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(MARK) == str(program) and is_alive(process):
                found.append(process)
    return found


@contextmanager
def started(script: str, model: Path, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """The program at work, in a session of its own, as in a terminal. Nothing of it may be left once it has ended."""
    program = folder / "program.py"
    program.write_text(BEGINNING + script)
    with subprocess.Popen(
        [sys.executable, program, model],
        cwd=folder,
        env={**os.environ, MARK: str(program)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
            process.wait(60)
            eventually(lambda: not processes_of(program))
        finally:
            for left in processes_of(program):
                left.kill()


def said_by(script: str, model: Path, folder: Path) -> list[str]:
    """What the program says. It ends by itself, with nothing to complain about."""
    with started(script, model, folder) as process:
        said, complaints = process.communicate(timeout=120)
        assert (process.returncode, complaints) == (0, "")
    return said.splitlines()


THREADS = """
read = {}

def make_and_read(name):
    made = batchocr.Ocr(**options)
    read[name] = [(page.source, page.markdown) for page in made.process("letters")]
    kept[name] = made

kept = {}
threads = [threading.Thread(target=make_and_read, args=[name]) for name in "ab"]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert read["a"] == read["b"] == [(page.source, page.markdown) for page in kept["a"].process("letters")]
half_done = kept["b"].process("letters")
say(*(source for source, _ in read["a"]), next(half_done).source)
"""


@pytest.mark.long
def test_several_models_serve_several_threads_and_a_script_may_end_without_closing_any(
    model: Path, folder: Path
) -> None:
    [said] = said_by(THREADS, model, folder)
    assert said.split() == [*LETTERS, LETTERS[0]]


NOTEBOOK = '''
from batchocr.job import stop

stop.SAME_KEYSTROKE_S = 0.0
signal.signal(signal.SIGINT, signal.default_int_handler)  # these tests may run where it is ignored
sys.modules["__main__"].__dict__.pop("__file__")
cells = ["""
def press_ctrl_c(*_):  # as a terminal does: every process of the job gets it
    os.killpg(0, signal.SIGINT)

def interrupted(action):
    try:
        action()
    except KeyboardInterrupt:
        say("interrupted", children())
    else:
        say("not interrupted")
""", """
def load():
    threading.Timer(1.0, press_ctrl_c).start()
    batchocr.Ocr(**options)
    time.sleep(5)
interrupted(load)
""", """
ocr = batchocr.Ocr(**options)
def loop():
    for page in ocr.process("letters"):
        press_ctrl_c()
        time.sleep(5)
interrupted(loop)
""", """
say(*(page.source for page in ocr.process("letters")))
say(len(list(ocr.process("letters", limit=2))), children())
ocr.close()
say(children())
"""]
names = {**globals()}
for cell in cells:
    exec(compile(cell, "<cell>", "exec"), names)
'''


@pytest.mark.long
def test_ctrl_c_in_a_notebook_ends_the_cell_and_the_model_reads_on(model: Path, folder: Path) -> None:
    loading, loop, read, again, closed = said_by(NOTEBOOK, model, folder)
    assert loading == "interrupted 0"
    assert loop == "interrupted 1"
    assert read.split() == LETTERS
    assert again == "2 1"
    assert closed == "0"


FORKED = """
import warnings

warnings.simplefilter("ignore")  # newer versions of Python warn of the fork
ocr = batchocr.Ocr(**options)
pages = ocr.process("letters")
say(next(pages).source)
if os.fork() == 0:
    own = batchocr.Ocr(**options)
    say(len(list(own.process("letters"))))
    say(os.getpid())
    time.sleep(600)
time.sleep(600)
"""


@pytest.mark.long
def test_a_program_that_is_killed_leaves_nothing_though_its_fork_lives_on(model: Path, folder: Path) -> None:
    with started(FORKED, model, folder) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "letter0.pdf\n"
        of_parent = psutil.Process(process.pid).children()
        assert int(process.stdout.readline()) == NUM_LETTERS
        fork = psutil.Process(int(process.stdout.readline()))
        of_parent = [child for child in of_parent if child != fork]  # which may have been there already
        own = fork.children()
        assert (len(of_parent), len(own)) == (2, 1)
        process.kill()
        eventually(lambda: not any(map(is_alive, of_parent)))
        assert is_alive(fork)
        assert all(map(is_alive, own))
        fork.kill()
