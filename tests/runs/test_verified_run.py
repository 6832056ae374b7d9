"""A table that was just written is compared with what it was read from."""

from __future__ import annotations

from pathlib import Path

import pytest

import batchocr
from batchocr.cli.verifier import Verifier
from batchocr.config import Config
from batchocr.pages.input.sources import find_documents
from tests.support.running import draw_pdf

pytestmark = pytest.mark.slow


@pytest.mark.long
def test_verify_names_documents_as_the_run_does(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for path in (Path("a/x.pdf"), Path("b/x.pdf"), Path("c.pdf")):
        path.parent.mkdir(exist_ok=True)
        draw_pdf(path, str(path))
    Path("list.txt").write_text("# added later\nb\nc.pdf\n")
    options = {"dpi": 72, "workers": 1, "max_new_tokens": 8, "max_degraded_rate": 1}
    batchocr.run(["./a", "@list.txt"], out="table.parquet", model=model, **options)
    verifier = Verifier([Path("table.parquet")], Config())
    found = find_documents(["a/", str(Path("a").absolute()), "b/x.pdf", "c.pdf"])
    assert list(verifier.findings(found.documents, None)) == []
    assert verifier.num_rows == 3
