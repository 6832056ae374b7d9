"""Runs with a layout detector survive what runs without one survive, and everything that reads tables reads theirs."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from PIL import Image
from safetensors.torch import load_file, save_file

import batchocr
from batchocr import open_table
from batchocr.engine.model.detector import Detector
from batchocr.errors import ModelError, OutputMismatchError
from batchocr.job.stats.report_table import format_table
from batchocr.pages.protocol import detected_layout
from batchocr.pages.protocol.revision import DETECTED_LAYOUT
from tests.support.detectors import make_detector
from tests.support.jobs import FULL, PAGES_IN_FLIGHT, Job, make_job, started, wait_for_rows
from tests.support.running import engines_of, num_rows, read_rows, run_app, texts

pytestmark = pytest.mark.slow

NUM_PAGES, NUM_KILLS = (16, 10) if FULL else (4, 0)


@pytest.fixture(scope="module")
def detector(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_detector(tmp_path_factory.mktemp("detector"))


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory, detector: Path) -> Job:
    folder = tmp_path_factory.mktemp("job")
    job = make_job(folder, NUM_PAGES)
    job.run(folder / "detected.parquet", layout=detector)
    rows = read_rows(folder / "detected.parquet")
    assert texts(rows) != texts(job.rows)
    return replace(job, rows=rows)


def test_the_stage_is_counted_and_its_blocks_are_read(job: Job, detector: Path, tmp_path: Path) -> None:
    report = job.run(tmp_path / "t.parquet", layout=detector, layout_batch_size=2)
    stage = report.stages["layout"]
    assert (stage.items, report.device.batches_halved) == (NUM_PAGES, {})
    assert stage.busy_seconds > 0 and stage.items / 2 <= stage.batches <= stage.items
    assert report.settings["layout"] == str(detector)
    assert "\nlayout " in format_table(report)
    blocks = [block for row in job.rows for block in row.blocks]
    assert {block.type for block in blocks} <= set(detected_layout.BLOCK_TYPES.values())
    assert any(block.tokens for block in blocks)
    without = job.run(tmp_path / "without.parquet", limit=1)
    assert without.stages["layout"].items == 0
    assert "\nlayout " not in format_table(without)


@pytest.mark.long
def test_a_run_killed_again_and_again_ends_with_the_same_table(job: Job, detector: Path, tmp_path: Path) -> None:
    out, dice = tmp_path / "table.parquet", random.Random(NUM_PAGES)
    for moment in sorted(dice.sample(range(1, NUM_PAGES - PAGES_IN_FLIGHT), NUM_KILLS)):
        with started(job, out, "--layout", detector) as process:
            wait_for_rows(process, out, moment)
            process.kill()
        assert not out.exists()
    finished = num_rows(out)
    assert job.run(out, layout=detector).pages_read == NUM_PAGES - finished < NUM_PAGES
    assert texts(read_rows(out)) == texts(job.rows)


@pytest.mark.long
def test_an_engine_that_is_killed_is_replaced_with_its_detector(job: Job, detector: Path, tmp_path: Path) -> None:
    out = tmp_path / "table.parquet"
    with started(job, out, "--layout", detector) as process:
        wait_for_rows(process, out, 1)
        [engine] = engines_of(psutil.Process(process.pid))
        engine.kill()
        said = process.communicate(timeout=120)[1]
    assert process.returncode == 0, said
    assert texts(read_rows(out)) == texts(job.rows)


@pytest.mark.long
def test_an_engine_whose_detector_fails_once_changes_no_row(
    job: Job, detector: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    detect, calls = Detector.detect, iter(range(10**6))

    def failing(self: Detector, images: Any) -> Any:
        if next(calls) == 2:
            raise RuntimeError("a kernel was not happy")
        return detect(self, images)

    monkeypatch.setattr(Detector, "detect", failing)
    report = job.run(tmp_path / "table.parquet", layout=detector)
    assert [engine.lost for engine in report.engines] == [1]
    assert texts(read_rows(tmp_path / "table.parquet")) == texts(job.rows)


_HANGING = """
import batchocr.pages.protocol.families.mineru as mineru
detected = mineru.detected_blocks

def hanging(answer, width, height):
    while width < height:
        pass
    return detected(answer, width, height)

mineru.detected_blocks = hanging
"""


@pytest.mark.long
def test_a_page_that_hangs_after_its_layout_costs_no_other(
    detector: Path, job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(_HANGING)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    documents = tmp_path / "documents"
    documents.mkdir()
    for name, size in (("lying", (300, 200)), ("standing", (200, 300)), ("wide", (400, 200))):
        Image.new("RGB", size, "white").save(documents / f"{name}.png")
    out = tmp_path / "table.parquet"
    options: dict[str, Any] = {"page_timeout": 3.0, "workers": 2, "max_degraded_rate": 1}
    report = batchocr.run(documents, out=out, model=job.model, layout=detector, **options)
    assert report.ledger_adds_up
    assert {row.source: row.error_kind for row in read_rows(out)} == {
        "lying.png": None,
        "standing.png": "timeout",
        "wide.png": None,
    }


def test_another_detector_or_none_does_not_continue_a_run(job: Job, detector: Path, tmp_path: Path) -> None:
    out = tmp_path / "table.parquet"
    job.run(out, layout=detector, limit=1)
    settings = open_table(out).metadata.settings
    assert len(settings["layout"]) == 64 and settings["layout_rules"] == f"r{DETECTED_LAYOUT}"
    other = make_detector(tmp_path / "other", seed=1)
    for layout in (other, None):
        with pytest.raises(OutputMismatchError, match=f"layout {settings['layout']} there"):
            job.run(out, layout=layout)
    moved = detector.rename(tmp_path / "moved")
    try:
        assert job.run(out, layout=moved).complete
    finally:
        moved.rename(detector)


@pytest.mark.long
def test_answers_of_a_detector_are_cached_apart(job: Job, detector: Path, tmp_path: Path) -> None:
    other, cache = make_detector(tmp_path / "other", seed=1), tmp_path / "cache"
    first = job.run(tmp_path / "1.parquet", layout=detector, cache=cache)
    again = job.run(tmp_path / "2.parquet", layout=detector, cache=cache)
    saved = again.saved
    assert (first.saved.from_cache, saved.from_cache + saved.from_run) == (0, saved.questions)
    assert texts(read_rows(tmp_path / "2.parquet")) == texts(job.rows)
    with_other = job.run(tmp_path / "3.parquet", layout=other, cache=cache)
    assert with_other.stages["layout"].items == NUM_PAGES


def test_a_table_made_with_a_detector_is_exported_viewed_and_verified(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = job.documents.parent / "detected.parquet"
    assert run_app(monkeypatch, "verify", out, job.documents) == 0
    assert run_app(monkeypatch, "view", out, "--out", tmp_path / "view.html", "--input", job.documents) == 0
    assert run_app(monkeypatch, "export", out, "--to", tmp_path / "md", "--input", job.documents) == 0
    assert len(list((tmp_path / "md").rglob("*.md"))) == len(list(job.documents.iterdir()))


@pytest.mark.long
def test_doctor_and_inspect_know_the_detector(
    job: Job, detector: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_app(monkeypatch, "doctor", "--model", job.model, "--layout", detector) == 0
    assert f"{detector}, 0.1 million parameters, up to 1 page in a batch" in capsys.readouterr().out
    assert run_app(monkeypatch, "doctor", "--model", job.model, "--layout", job.model) == 5
    assert "--layout takes PP-DocLayoutV2 and V3" in capsys.readouterr().out
    options = ("--model", job.model, "--layout", detector, "--dpi", "72", "--workers", "1", "--read", "2")
    assert run_app(monkeypatch, "inspect", job.documents, *options) == 0
    assert f"layouts with {detector}" in capsys.readouterr().out


def test_a_detector_that_cannot_be_loaded_ends_the_run_before_it_begins(
    job: Job, detector: Path, tmp_path: Path
) -> None:
    broken = make_detector(tmp_path / "broken")
    weights = broken / "model.safetensors"
    whole = load_file(weights)
    weights.write_bytes(weights.read_bytes()[:-2000])
    with pytest.raises(ModelError, match="is damaged or cut short"):
        job.run(tmp_path / "table.parquet", layout=broken)
    del whole[next(name for name in whole if "class_embed" in name)]
    save_file(whole, weights, metadata={"format": "pt"})
    with pytest.raises(ModelError, match="lacks 1 of the detector's weights"):
        job.run(tmp_path / "table.parquet", layout=broken)
