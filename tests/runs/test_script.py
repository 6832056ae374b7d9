"""A program of a user's that reads with batchocr."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.running import draw_pdf, run_script

pytestmark = pytest.mark.slow

SCRIPT = """
import os, sys

before = dict(os.environ)
import batchocr

pages = batchocr.process(["letters"], model=sys.argv[1], dpi=72, workers=2)
for page in pages:
    print(page.source, page.status, flush=True)
    if page.source == "letter1.pdf":
        break
assert os.environ == before, "the caller's environment was changed"
assert "torch" not in sys.modules, "torch was loaded"
"""


@pytest.mark.long
def test_a_script_needs_no_main_guard_and_may_leave_its_loop_and_its_folder_shadows_no_library(
    model: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "work"
    (folder / "letters").mkdir(parents=True)
    for name in ("json", "PIL", "pydantic", "batchocr"):
        (folder / f"{name}.py").write_text("raise SystemExit('this is not the library')")
    (tmp_path / "script.py").write_text(SCRIPT)
    for number in range(9):
        draw_pdf(folder / "letters" / f"letter{number}.pdf", f"Letter {number}")
    assert run_script(tmp_path / "script.py", model, folder) == ["letter0.pdf ok", "letter1.pdf ok"]
