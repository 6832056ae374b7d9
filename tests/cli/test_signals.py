"""A signal to a command that can be run again at any time: it ends at once, and nothing half done is left."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.support.object_store import Environ, running_store, used
from tests.support.review_pages import block, row, saved
from tests.support.running import draw_pdf, eventually

pytestmark = pytest.mark.slow

CODES = {signal.SIGINT: 130, signal.SIGTERM: 75}
ENDED = "batchocr: stopped before the end: run the same command again\n"


def start(*arguments: str | Path, folder: Path) -> subprocess.Popen[str]:
    """The command, which has this folder for temporary files."""
    folder.mkdir()
    return subprocess.Popen(
        [sys.executable, "-m", "batchocr", *arguments],
        env={**os.environ, "TMPDIR": str(folder)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("number", CODES, ids=lambda number: number.name)
def test_a_review_page_that_is_being_written_is_removed(tmp_path: Path, number: signal.Signals) -> None:
    document = draw_pdf(tmp_path / "a.pdf", *map(str, range(100)))
    size = {"doc_id": hashlib.sha256(document.read_bytes()).hexdigest(), "page_count": 100}
    size |= {"width": 834, "height": 1112, "dpi": 200.0}
    table = saved(tmp_path, [row("a.pdf", index, block("text", "a"), **size) for index in range(100)])
    arguments = ("view", table.parts[0].path, "--input", tmp_path, "--out", tmp_path / "review.html")
    with start(*arguments, folder=tmp_path / "temporary") as running:
        eventually(lambda: list(tmp_path.glob("review.html.*.tmp")) or running.poll() is not None)
        running.send_signal(number)
        said = running.communicate(timeout=60)[1]
    assert (running.returncode, said) == (CODES[number], ENDED)
    assert not list(tmp_path.glob("review.html*"))


@pytest.mark.parametrize(
    "name", ["view", *(pytest.param(name, marks=pytest.mark.long) for name in ("verify", "export", "compare", "merge"))]
)
def test_a_table_that_is_being_fetched_leaves_no_copy(tmp_path: Path, name: str) -> None:
    asked, go_on = threading.Event(), threading.Event()

    def slow(environ: Environ, _: Any) -> Iterable[bytes] | None:
        if environ["REQUEST_METHOD"] == "GET" and environ["PATH_INFO"].endswith("b.parquet"):
            asked.set()
            go_on.wait(60)
        return None

    arguments: dict[str, list[str | Path]] = {
        "view": ["--out", tmp_path / "review.html"],
        "export": ["--to", tmp_path / "exported"],
        "compare": ["s3://tables/out"],
        "merge": ["--out", tmp_path / "all.parquet"],
        "verify": [tmp_path],
    }
    table = saved(tmp_path, [row("a.pdf", 0)]).parts[0].path.read_bytes()
    with running_store() as store, used(store), store.failing(slow):
        store.put("tables", {"out/a.parquet": table, "out/b.parquet": table})
        with start(name, "s3://tables/out", *arguments[name], folder=tmp_path / "temporary") as running:
            eventually(lambda: asked.is_set() or running.poll() is not None)
            assert list((tmp_path / "temporary").rglob("*parquet*"))
            running.send_signal(signal.SIGINT)
            said = running.communicate(timeout=30)[1]
        go_on.set()
    assert (running.returncode, said) == (130, ENDED)
    assert not list((tmp_path / "temporary").iterdir())
