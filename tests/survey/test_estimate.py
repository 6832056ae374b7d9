"""How long a run would take: near what was measured, or called a forecast."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from batchocr.data import Document, Failure, PageSeen
from batchocr.errors import ModelError, UsageError
from batchocr.input.render import open_document
from batchocr.model.architecture import Architecture, read_architecture
from batchocr.survey.devices import GPUS, device_here, measured_cpu_rate
from batchocr.survey.estimate import estimate_like, estimate_on_cpu, forecast_on_gpu
from batchocr.survey.look import DocumentSeen
from batchocr.survey.model_shape import architecture_at_hand
from batchocr.survey.page_work import DENSE, MINERU, PageWork, page_work
from batchocr.survey.survey import Survey
from tests.conftest import ROOT
from tests.support.mineru_shape import MINERU as REAL

SAMPLE = ROOT / "sample_data"
READABLE = {"article.pdf": 2, "encrypted.pdf": 1, "fax.tiff": 3, "scanned-letter.png": 1, "two-columns.pdf": 1}


@pytest.fixture(scope="module")
def sample_model() -> Architecture:
    return read_architecture(SAMPLE / "model")


@pytest.fixture(scope="module")
def sample_work(sample_model: Architecture) -> PageWork:
    """Of the eight pages of the sample documents that can be read."""
    work = PageWork()
    for name, num_pages in READABLE.items():
        document = open_document(str(SAMPLE / "documents" / name), password="batchocr", dpi=200)
        for index in range(num_pages):
            work += page_work(document.look(index), sample_model)
    return work


def test_the_dense_page_is_the_one_of_the_targets() -> None:
    work = page_work(DENSE, MINERU)
    assert work.patches == pytest.approx(17_900, rel=0.02)
    assert work.linear_flop == pytest.approx(22.6e12, rel=0.03)
    assert work.attention_flop == pytest.approx(9.16e12, rel=0.03)
    assert work.prefill_flop == pytest.approx(3.5e12, rel=0.03)
    assert work.output_tokens == pytest.approx(1480, rel=0.25)


def test_patches_and_tokens_are_near_those_that_a_run_counted(sample_work: PageWork) -> None:
    """`batchocr run sample_data/documents --model sample_data/model`: 89,212 patches, 11,690 tokens."""
    assert sample_work.patches == pytest.approx(89_212, rel=0.15)
    assert sample_work.output_tokens == pytest.approx(11_690, rel=0.3)


def test_the_time_on_a_cpu_is_near_what_was_measured(sample_work: PageWork, sample_model: Architecture) -> None:
    """The same run: 26 s of work on two cores that multiply at 204 GFLOP/s."""
    estimate = estimate_on_cpu(sample_work, 8, sample_model, rate=204e9, workers=1)
    assert 26 / 1.5 < 8 / estimate.pages_per_second < 26 * 1.5
    assert estimate.basis == "calculated"


@pytest.mark.parametrize(("kind", "simulated"), [("h200", 8.2), ("h100", 7.2)])
def test_the_forecast_of_a_gpu_is_near_the_simulated_one(kind: str, simulated: float) -> None:
    """On a virtual clock, the scheduler as it is: within a quarter, as that is itself a forecast."""
    [gpu] = [gpu for name, gpu in GPUS.items() if name == kind]
    estimate = forecast_on_gpu(page_work(DENSE, MINERU).times(1000), 1000, MINERU, gpu)
    assert estimate.pages_per_second == pytest.approx(simulated, rel=0.25)
    assert estimate.basis == "forecast"


def test_the_model_that_is_assumed_is_the_real_one() -> None:
    assert (MINERU.vision, MINERU.language) == (REAL.vision, REAL.language)
    assert (MINERU.images.min_pixels, MINERU.images.max_pixels) == (REAL.images.min_pixels, REAL.images.max_pixels)


def test_a_page_of_nothing_takes_a_layout_and_no_more() -> None:
    blank, photograph, full = (page_work(PageSeen(1700, 2200, 0, covered), MINERU) for covered in (0.0, 1.0, 0.65))
    assert blank.patches == pytest.approx(74 * 74, rel=0.05)
    assert photograph == full


def test_the_time_at_the_rate_of_an_earlier_run(tmp_path: Path) -> None:
    report = {"pages_read": 20, "work_seconds": 40.0, "start_up_seconds": 5.0, "settings": {"device": "cpu"}, "x": 1}
    (tmp_path / "report.json").write_text(json.dumps(report))
    estimate = estimate_like(tmp_path / "report.json", 100)
    assert (estimate.seconds, estimate.pages_per_second, estimate.basis) == (205.0, 0.5, "earlier run")


@pytest.mark.parametrize(("from_cache", "refused"), [(0, False), (50, False), (51, True), (1000, True)])
def test_the_rate_of_a_run_that_found_its_answers_in_a_cache_is_not_taken(
    tmp_path: Path, from_cache: int, *, refused: bool
) -> None:
    report = {"pages_read": 20, "work_seconds": 2.0, "start_up_seconds": 5.0, "settings": {}}
    report["saved"] = {"questions": 1000, "from_run": 400, "from_cache": from_cache, "documents": 0, "pages": 0}
    (tmp_path / "report.json").write_text(json.dumps(report))
    if refused:
        with pytest.raises(UsageError, match="of 1,000 questions were answered from a cache"):
            estimate_like(tmp_path / "report.json", 100)
    else:
        assert estimate_like(tmp_path / "report.json", 100).pages_per_second == 10.0


@pytest.mark.parametrize(
    "text",
    [None, "", "[]", '{"pages_read": 0, "work_seconds": 1, "start_up_seconds": 0}', "\xff", "[" * 100_000, "9" * 5000],
)
def test_what_is_no_report_is_refused(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "report.json").write_text(text, encoding="latin-1")
    with pytest.raises(UsageError, match="report"):
        estimate_like(tmp_path / "report.json", 100)


def test_the_rate_of_this_cpu_is_that_of_a_computer() -> None:
    assert 1e8 < measured_cpu_rate() < 1e14


@pytest.mark.parametrize(
    ("names", "kind"), [([], "cpu"), (["NVIDIA H100 80GB HBM3"], "h100"), (["NVIDIA T4", "NVIDIA H200"], None)]
)
def test_the_device_here_is_the_first_gpu_or_the_cpu(tmp_path: Path, names: list[str], kind: str | None) -> None:
    for number, name in enumerate(names):
        (tmp_path / f"0000:0{number}:00.0").mkdir()
        (tmp_path / f"0000:0{number}:00.0" / "information").write_text(f"Model: \t\t {name}\n")
    assert device_here(tmp_path) == kind


def test_a_model_that_is_not_here_is_not_fetched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    assert architecture_at_hand("acme/nowhere", None) is None
    for name in ("nowhere", "./a/b", "a/b/c", "acme/no where"):
        with pytest.raises(ModelError):
            architecture_at_hand(name, None)


def seen(source: str, **more: object) -> DocumentSeen:
    return DocumentSeen(Document(source, source), **more)  # type: ignore[arg-type]


def test_the_counts_add_up_and_a_sample_stands_for_its_document() -> None:
    survey = Survey(MINERU, {".docx": 2})
    scan, text = PageSeen(1700, 2200, 0, 0.5), PageSeen(1700, 2200, 2000, 0.5)
    survey.take(seen("long.pdf", page_count=300, num_wanted=300, format="PDF", pages=(text, text, None)))
    survey.take(seen("copy.pdf", page_count=300, num_wanted=300, same=True))
    survey.take(seen("scan.png", page_count=1, num_wanted=1, format="PNG", pages=(scan,)))
    survey.take(seen("locked.pdf", problem=Failure("encrypted", "asks for a password")))
    assert survey.documents == survey.formats.total() + survey.problems.total() + survey.same_documents == 4
    assert (survey.pages, survey.same_pages, survey.measured, survey.unreadable) == (601, 300, 4, 1)
    assert survey.text_share == pytest.approx(200 / 201)
    assert survey.readable_pages == 301 * 3 / 4, "a copy is not read"
    expected = (200 * page_work(text, MINERU).patches + page_work(scan, MINERU).patches) / 201
    assert survey.per_page.patches == pytest.approx(expected)


def test_without_a_measured_page_they_are_taken_for_dense_ones() -> None:
    assert Survey(MINERU, {}).per_page == page_work(DENSE, MINERU)
