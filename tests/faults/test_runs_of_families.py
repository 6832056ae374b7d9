"""Whole runs with families that are read with a detector: they survive what other runs survive, and everything takes
their tables."""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
import pymupdf
import pytest

import batchocr
from batchocr import Ocr
from batchocr.errors import ModelError, OutputMismatchError
from tests.support.detectors import make_detector
from tests.support.family_oracles import ORACLES
from tests.support.jobs import FULL, OPTIONS, Job, started, wait_for_rows
from tests.support.running import draw_pdf, engines_of, num_rows, read_rows, run_app, said_by, texts

pytestmark = pytest.mark.slow

NUM_PAGES, NUM_KILLS = (36, 10) if FULL else (6, 1)
MAX_NEW_TOKENS = 12


@dataclass(frozen=True)
class Kind:
    """A family of models, and the detector that it is read with."""

    name: str
    family: str
    detector: str
    refuses: tuple[str, ...]
    shape: str | None = None


_REFUSES = ("--text-layer=trust", "--vit-dtype=fp8")
KINDS = {
    "glm": Kind("GLM-OCR", "glm_ocr", "V3", (*_REFUSES, "--figures=read")),
    "paddle": Kind("PaddleOCR-VL", "paddleocr_vl", "V3", _REFUSES),
    "paddle-1.0": Kind("PaddleOCR-VL", "paddleocr_vl", "V2", _REFUSES, "published, flat"),
}


@pytest.fixture(
    scope="module",
    params=[pytest.param("glm", marks=pytest.mark.long), "paddle", pytest.param("paddle-1.0", marks=pytest.mark.long)],
)
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


@pytest.fixture(scope="module")
def detector(tmp_path_factory: pytest.TempPathFactory, kind: Kind) -> Path:
    return make_detector(tmp_path_factory.mktemp("detector"), kind.detector)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory, kind: Kind, detector: Path) -> Job:
    """Half of the pages are those of a PDF, the others scans."""
    folder, family = tmp_path_factory.mktemp("job"), ORACLES[kind.family]
    (folder / "documents" / "scans").mkdir(parents=True)
    pages = draw_pdf(folder / "documents" / "a.pdf", *(f"Page {number}" for number in range(NUM_PAGES // 2)))
    with pymupdf.open(pages) as document:
        for number, page in enumerate(document):
            page.get_pixmap(dpi=90).save(folder / "documents" / "scans" / f"{number:02}.png")
    options = {"layout": detector, "max_new_tokens": MAX_NEW_TOKENS, "workers": 1, "pages_in_flight": 2}
    model = family.make(folder / "model", family.shapes[kind.shape] if kind.shape else None)
    job = Job(model, folder / "documents", [], OPTIONS | options)
    job.run(folder / "whole.parquet")
    job.rows.extend(read_rows(folder / "whole.parquet"))
    return job


def test_every_page_has_blocks_that_were_read_and_an_honest_status(job: Job) -> None:
    assert len(job.rows) == NUM_PAGES
    assert all(row.blocks for row in job.rows)
    assert {block.tokens for row in job.rows for block in row.blocks} >= {MAX_NEW_TOKENS}
    for row in job.rows:
        is_cut = any(block.tokens == MAX_NEW_TOKENS for block in row.blocks)
        assert ("hit the token limit" in (row.error_message or "")) == is_cut
        assert row.status == ("degraded" if row.error_message else "ok")


def test_a_run_killed_again_and_again_ends_with_the_same_table(job: Job, tmp_path: Path) -> None:
    out = tmp_path / "table.parquet"
    for kill in range(NUM_KILLS):
        with started(job, out) as process:
            wait_for_rows(process, out, 1 + 3 * kill)
            process.kill()
        assert not out.exists()
    finished = num_rows(out)
    assert job.run(out).pages_read == NUM_PAGES - finished < NUM_PAGES
    assert texts(read_rows(out)) == texts(job.rows)


@pytest.mark.long
def test_an_engine_that_is_killed_is_replaced_with_its_detector(job: Job, tmp_path: Path) -> None:
    out = tmp_path / "table.parquet"
    with started(job, out) as process:
        wait_for_rows(process, out, 1)
        [engine] = engines_of(psutil.Process(process.pid))
        engine.kill()
        said = process.communicate(timeout=120)[1]
    assert process.returncode == 0, said
    assert texts(read_rows(out)) == texts(job.rows)


def test_its_table_is_verified_viewed_and_exported_in_every_form(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = job.documents.parent / "whole.parquet"
    given = ("--input", job.documents)
    assert run_app(monkeypatch, "verify", out, job.documents, "--max-degraded-rate", "1") == 0
    assert run_app(monkeypatch, "view", out, "--out", tmp_path / "view.html", *given) == 0
    for form in ("md", "mineru", "docling"):
        assert run_app(monkeypatch, "export", out, "--to", tmp_path / form, "--format", form, *given) == 0
    assert len(list((tmp_path / "md").rglob("*.md"))) == 1 + NUM_PAGES // 2
    assert run_app(monkeypatch, "export", out, "--to", tmp_path / "c.jsonl", "--format", "chunks") == 0


@pytest.mark.long
def test_shards_have_the_rows_of_one_run(job: Job, tmp_path: Path) -> None:
    outs = [tmp_path / f"{number}.parquet" for number in (1, 2)]
    for number, out in enumerate(outs, 1):
        job.run(out, shard=f"{number}/2")
    rows = sorted((row for out in outs for row in read_rows(out)), key=lambda row: (row.source, row.page_index))
    assert texts(rows) == texts(job.rows)


@pytest.mark.long
def test_pages_come_one_by_one_with_the_text_of_a_run(job: Job, detector: Path) -> None:
    options = {"layout": detector, "dpi": 72, "max_new_tokens": MAX_NEW_TOKENS, "workers": 1}
    document = job.documents / "a.pdf"
    expected = [row.blocks for row in texts(job.rows) if row.source == "a.pdf"]
    assert [row.blocks for row in texts(batchocr.process([document], model=job.model, **options))] == expected
    with Ocr(model=job.model, **options) as ocr:
        for _ in range(2):
            assert [row.blocks for row in texts(ocr.process([document]))] == expected


def test_its_detector_is_said_where_it_cannot_be_downloaded_and_how_to_name_a_folder(
    job: Job, kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    caplog.set_level(logging.INFO)
    with pytest.raises(ModelError, match=rf"PP-DocLayout{kind.detector}_safetensors cannot be .*--layout ") as no:
        job.run(tmp_path / "t.parquet", layout=None)
    assert no.value.exit_code == 5
    usual = f"PaddlePaddle/PP-DocLayout{kind.detector}_safetensors"
    assert f"{kind.name} finds no layouts itself: as with --layout {usual}" in caplog.text
    assert list(tmp_path.iterdir()) == []


def without_its_end(model: Path) -> None:
    weights = model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])


def without_image_token(model: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        text = (model / name).read_text()
        (model / name).write_text(re.sub(r'"<\|(image|IMAGE_PLACEHOLDER)\|>"', '"<|another|>"', text))


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (without_its_end, "model.safetensors is damaged or cut short"),
        (without_image_token, "chat template does not place exactly one image token"),
    ],
)
def test_a_damaged_checkpoint_ends_the_command_before_a_page_is_opened(
    job: Job, tmp_path: Path, damage: Callable[[Path], None], sentence: str
) -> None:
    damaged = Path(shutil.copytree(job.model, tmp_path / "damaged"))
    damage(damaged)
    code, _, said = said_by("run", *job.arguments(tmp_path / "t.parquet"), "--model", damaged)
    assert (code, sentence in said) == (5, True), said
    assert "opening the documents" not in said
    assert not (tmp_path / "t.parquet").exists()


def test_a_folder_that_is_no_detector_of_its_kind_ends_the_command(job: Job, kind: Kind, tmp_path: Path) -> None:
    for other in (make_detector(tmp_path / "other", "V2" if kind.detector == "V3" else "V3"), job.model):
        code, _, said = said_by("run", *job.arguments(tmp_path / "t.parquet"), "--layout", other)
        assert (code, f"With this model --layout takes PP-DocLayout{kind.detector}" in said) == (5, True), said
    assert not (tmp_path / "t.parquet").exists()


def test_options_that_it_does_not_take_end_the_command_before_a_page_is_opened(
    job: Job, kind: Kind, tmp_path: Path
) -> None:
    for option in kind.refuses:
        code, _, said = said_by("run", *job.arguments(tmp_path / "t.parquet"), option)
        refusal = f"{option.replace('=', ' ')} is not for {kind.name}: leave it out"
        assert (code, said) == (2, f"batchocr: error: {refusal}\n")
    assert list(tmp_path.iterdir()) == []


def test_a_table_of_another_model_is_not_continued(job: Job, model: Path, detector: Path, tmp_path: Path) -> None:
    out = tmp_path / "table.parquet"
    batchocr.run(job.documents, out=out, model=model, layout=detector, dpi=72, limit=1, max_degraded_rate=1)
    before = out.read_bytes()
    with pytest.raises(OutputMismatchError, match=r"model fingerprint .*; protocol mineru .* there, \w+ r\d here"):
        job.run(out)
    assert out.read_bytes() == before
