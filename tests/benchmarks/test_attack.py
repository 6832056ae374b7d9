"""The attack campaigns run, and see what they look for: in miniature.

BATCHOCR_FULL=1 has the one that kills runs among them; `tests/faults/test_kills.py` kills some in any case.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from batchocr.processes.pool import WorkerPool
from benchmarks.attack import documents, kills, markdown
from benchmarks.attack.__main__ import CAMPAIGNS, main
from benchmarks.attack.tally import Tally
from tests.support.jobs import FULL
from tests.support.worker_entry import COMMAND, draw_page

pytestmark = pytest.mark.slow


@pytest.mark.long
def test_every_campaign_runs_and_counts_all_it_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kills, "NUM_PAGES", 4)
    names = [name for name in CAMPAIGNS if FULL or name not in ("kills", "cluster")]
    pytest.importorskip("pykatex", reason="KaTeX as a package is not there for this version of Python")
    main([*names, "--smoke", "--count", "1", "--device", "cpu", "--out", str(tmp_path / "attack.json")])
    values = json.loads((tmp_path / "attack.json").read_text())
    assert {row["campaign"] for row in values["rows"]} == set(names)
    faults = {name.removesuffix("_faults"): number for name, number in values["figures"].items()}
    assert faults.keys() == set(names)
    assert faults["mutated"] == faults["cut"] == faults["markdown"] == faults["nights"] == faults.get("kills", 0) == 0


@pytest.mark.long
def test_a_document_that_crashes_its_worker_is_a_fault_and_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crashing = Path(draw_page(tmp_path / "a.png", "segfault")).read_bytes()
    monkeypatch.setattr(documents, "WorkerPool", lambda count, setup: WorkerPool(count, setup, COMMAND))
    monkeypatch.setattr(documents, "_mutate", lambda dice, data: crashing)
    tally = Tally(tmp_path / "kept")
    documents.mutated(random.Random(1), 1, tally, None)
    assert tally.faults == {"crashed": 1}
    assert [path.read_bytes() for path in (tmp_path / "kept").iterdir()] == [crashing]


def test_text_that_is_active_is_a_fault_in_the_renderer_that_makes_it_so(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pykatex", reason="KaTeX as a package is not there for this version of Python")
    monkeypatch.setattr(markdown, "to_markdown", lambda blocks: "# A {onclick=evil()}")
    tally = Tally(None)
    markdown.attack(random.Random(1), 1, tally, None)
    assert {"onclick in pandoc", "onclick in Python-Markdown, extra"} <= tally.faults.keys()
    assert not any("cmark-gfm" in what for what in tally.faults)
