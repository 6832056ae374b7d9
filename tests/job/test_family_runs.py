"""What a run takes of its model's family: a detector, where the model finds no layouts, and what it does not take."""

from __future__ import annotations

import logging
import math
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

import batchocr
from batchocr.cli.diagnosis import try_out
from batchocr.config import Config
from batchocr.errors import ModelError, UsageError
from batchocr.job.session import Session
from batchocr.pages.protocol.revision import MAX_LAYOUT_TOKENS
from batchocr.planning.architecture import Architecture
from batchocr.planning.families import read_architecture
from tests.support.detectors import make_detector
from tests.support.glm_checkpoints import make_glm_checkpoint
from tests.support.running import draw_pdf, read_rows

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def detector(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_detector(tmp_path_factory.mktemp("detector"), "V3")


@pytest.fixture(scope="module")
def glm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_glm_checkpoint(tmp_path_factory.mktemp("glm"))


@pytest.fixture
def family(detector: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The usual detector of GLM-OCR is the one that is here."""

    def read(folder: Path) -> Architecture:
        architecture = read_architecture(folder)
        return replace(architecture, detectors=replace(architecture.detectors, usual=str(detector)))

    monkeypatch.setattr("batchocr.job.session.read_architecture", read)


@pytest.fixture
def page(tmp_path: Path) -> Path:
    return draw_pdf(tmp_path / "page.pdf", "Something to read")


@pytest.mark.usefixtures("family")
def test_the_familys_detector_is_taken_said_once_and_recorded_as_if_it_had_been_given(
    page: Path, glm: Path, detector: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    out = tmp_path / "table.parquet"
    options = {"model": glm, "dpi": 72, "max_new_tokens": 12, "max_degraded_rate": 1}
    report = batchocr.run(page, out=out, **options)
    assert [record.message for record in caplog.records if "--layout" in record.message] == [
        f"GLM-OCR finds no layouts itself: as with --layout {detector}"
    ]
    assert (report.settings["layout"], report.stages["layout"].items) == (str(detector), 1)
    [row] = read_rows(out)
    assert row.blocks
    assert row.layout_min_logprob is not None
    assert math.log(0.3) <= row.layout_min_logprob < math.log(0.5), "what is less sure counts too"
    assert batchocr.run(page, out=out, layout=detector, **options).pages_read == 0


@pytest.mark.usefixtures("family")
def test_a_detector_that_the_family_does_not_take_is_refused(page: Path, glm: Path, tmp_path: Path) -> None:
    other = make_detector(tmp_path / "other", "V2")
    with pytest.raises(ModelError, match=r"'pp_doclayout_v2'\. With this model --layout takes PP-DocLayoutV3 as"):
        batchocr.run(page, out=tmp_path / "table.parquet", model=glm, layout=other)


@pytest.mark.usefixtures("family")
@pytest.mark.parametrize(("option", "value"), [("figures", "read"), ("text_layer", "trust")])
def test_an_option_that_the_family_does_not_take_is_refused(
    page: Path, glm: Path, tmp_path: Path, option: str, value: str
) -> None:
    said = f"--{option.replace('_', '-')} {value} is not for GLM-OCR"
    with pytest.raises(UsageError, match=said):
        batchocr.run(page, out=tmp_path / "table.parquet", model=glm, **{option: value})
    assert list(tmp_path.iterdir()) == [page]


@pytest.mark.usefixtures("family")
def test_doctor_names_the_family_and_the_detector_that_is_taken(glm: Path, detector: Path) -> None:
    findings = {each.name: each.value for each in try_out(Config(model=str(glm), device="cpu")).findings}
    assert findings["model"].startswith(f"{glm} (GLM-OCR), ")
    assert findings["layout"].startswith(f"{detector}, ")


def test_memory_is_planned_for_no_layout_longer_than_a_block_where_a_detector_finds_them(
    model: Path, detector: Path
) -> None:
    options = {"model": str(model), "device": "cpu", "max_new_tokens": 64}
    with (
        closing(Session(Config(**options))) as alone,
        closing(Session(Config(**options, layout=str(detector)))) as beside,
    ):
        assert alone.device_plan.limits.max_new_tokens == MAX_LAYOUT_TOKENS
        assert beside.device_plan.limits.max_new_tokens == 64
