"""What runs on a cluster of one machine need."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.running import draw_pdf, make_quick_model, run_command


@pytest.fixture(scope="module", autouse=True)
def _quick(quick_processes: None) -> None:
    """Nearly all tests here start workers or engines."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, a book of 7 pages and some letters, one of them broken; and what a plain run makes of them."""
    place = tmp_path_factory.mktemp("cluster")
    make_quick_model(place / "model")
    (place / "in").mkdir()
    draw_pdf(place / "in" / "book.pdf", *(f"Page {number}" for number in range(7)))
    for number in range(3):
        draw_pdf(place / "in" / f"letter-{number}.pdf", f"Dear reader {number}", "Yours")
    (place / "in" / "broken.pdf").write_bytes(b"%PDF-1.7 nothing")
    done = run_command(place / "in", "--out", place / "plain.parquet", "--model", place / "model")
    assert done.returncode == 3, done.stderr
    return place


@pytest.fixture(scope="module")
def ray_folder() -> Iterator[None]:
    """Ray keeps its files where they can be removed, in a short path, as those of its sockets may have 107 letters; and
    leaves no process behind."""
    with tempfile.TemporaryDirectory(prefix="r-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        with pytest.MonkeyPatch.context() as patched:
            patched.setenv("RAY_TMPDIR", folder)
            yield
        left = [process for process in psutil.process_iter(["cmdline"]) if folder in str(process.info["cmdline"])]
        _, alive = psutil.wait_procs(left, timeout=20)
        for process in alive:
            process.kill()
        assert not alive
