"""The accuracy benchmark: its metrics, and its pages of known content."""

from __future__ import annotations

import json
import random
import shutil
import sys
from pathlib import Path

import pymupdf
import pytest
from PIL import Image

from benchmarks.accuracy import cut_tables, orientation
from benchmarks.accuracy.__main__ import Block, read_pages, score, score_page, summary, worst
from benchmarks.accuracy.figures import main as count_figures
from benchmarks.accuracy.olmocr_bench import make_bench
from benchmarks.accuracy.scoring import goes_in_circles, matched, sentences_lost, table_similarity
from tests.conftest import ROOT

EXAM = ROOT / "sample_data" / "exam"
TABLE = "<table><tr><td>a</td><td>bc</td></tr><tr><td colspan='2'>d</td></tr></table>"


def test_a_sentence_is_lost_if_nothing_like_it_was_read() -> None:
    truth = "The kettle was on the stove. Nobody had asked for any tea. Rain."
    assert sentences_lost(truth, truth) == (0, 2)
    assert sentences_lost(truth, "Tho kettie was on tne stove. Rain.") == (1, 2)
    assert sentences_lost(truth, "") == (2, 2)


def test_a_reading_goes_in_circles_if_it_says_something_three_times_in_a_row() -> None:
    truth = "The angle between the noon line and any other hour line follows from one rule."
    assert not goes_in_circles(truth, truth)
    assert not goes_in_circles(truth, "The angle between the noon line and any other hour line and any other hour line")
    assert goes_in_circles(
        truth, "The angle between the noon line and between the noon line and between the noon line and"
    )
    assert goes_in_circles(truth, "The angle a a a a a a a a a a a a a a a a a")
    assert not goes_in_circles("Wait and wait and wait and wait.", "Wait and wait and wait and wait,")


def test_a_box_is_matched_once_with_the_one_that_overlaps_most() -> None:
    truth = [(0.0, 0.0, 10.0, 10.0), (20.0, 0.0, 30.0, 10.0)]
    found = [(0.0, 0.0, 10.0, 6.0), (0.0, 1.0, 10.0, 10.0), (20.0, 0.0, 23.0, 10.0)]
    assert matched(truth, found) == {0: 1}


def test_a_table_is_like_itself_and_less_like_one_with_an_error_in_it() -> None:
    assert table_similarity(TABLE, TABLE) == 1.0
    assert table_similarity(TABLE, TABLE.replace("bc", "bd")) == pytest.approx(1 - 0.5 / 6)
    assert table_similarity(TABLE, TABLE.replace(" colspan='2'", "")) == pytest.approx(1 - 1 / 6)
    assert table_similarity(TABLE, "<table><tr><td>a</td><td>bc</td></tr></table>") == pytest.approx(1 - 2 / 6)
    assert table_similarity(TABLE, "<p>a bc d</p>") == pytest.approx(1 / 6)  # taken as a table without cells
    assert table_similarity(TABLE, "") == 0.0


def test_a_page_read_without_a_fault_has_the_best_score() -> None:
    truth = read_pages(EXAM / "truth.jsonl")
    figures = summary(score(truth, truth))
    assert len(truth) == 12
    assert {name.partition(":")[0] for name in truth} == {path.name for path in EXAM.glob("*.p[dn][fg]")}
    for name, value in figures.items():
        assert value == (0.0 if "error" in name else 1.0), name


def test_what_is_wrong_with_a_page_shows_in_its_figures() -> None:
    truth = [
        Block("title", (0.1, 0.1, 0.9, 0.2), "Heading"),
        Block("text", (0.1, 0.3, 0.9, 0.5), "one two"),
        Block("equation", (0.1, 0.6, 0.9, 0.7), "\\[\nx^{2}\n\\]"),
        Block("table", (0.1, 0.8, 0.9, 0.9), TABLE),
    ]
    found = [
        Block("text", (0.1, 0.3, 0.9, 0.48), "one  twa"),
        Block("text", (0.1, 0.1, 0.9, 0.2), "Heading"),
        Block("equation", (0.1, 0.6, 0.9, 0.66), "\\[x^{2}\\]"),
    ]
    page = score_page("a.pdf:0", truth, found)
    figures = summary([page])
    assert figures["sentence_error_rate"] == figures["error_blocks_in_circles"] == 0.0
    assert figures["layout_recall"] == 0.75
    assert figures["layout_precision"] == 1.0
    assert figures["layout_recall_tight"] == 0.5
    assert figures["type_accuracy"] == pytest.approx(2 / 3)
    assert figures["order_errors"] == pytest.approx(1 / 3)
    assert figures["error_rate_title"] == 0.0
    assert figures["error_rate_text"] == pytest.approx(1 / 7)
    assert figures["equation_exact"] == 1.0
    assert figures["table_similarity"] == 0.0
    assert [reading.type for reading in worst([page], 2)] == ["table", "text"]


def test_rows_of_made_tables_that_a_page_end_cuts_are_whole_again_and_others_stay_apart() -> None:
    dice = random.Random(11)
    figures = cut_tables.measure([cut_tables.made_table(dice) for _ in range(16)])
    assert figures["cut_rows_whole"] >= 0.85 and figures["whole_rows_joined"] <= 0.03  # of few
    assert figures["two_tables"] == figures["wrong_text"] == 0


def test_pages_whose_text_is_called_a_picture_are_counted_and_pictures_that_are_marked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pymupdf.open() as document:
        for _ in range(2):
            box = pymupdf.Rect(60, 60, 535, 600)
            document.new_page(width=595, height=842).insert_textbox(box, "Nobody asked the miller about it. " * 40)
        document.save(tmp_path / "text.pdf")
    Image.linear_gradient("L").save(tmp_path / "picture.png")
    count_figures(["--pages", str(tmp_path / "text.pdf"), "--pictures", str(tmp_path / "picture.png")])
    counts = json.loads(capsys.readouterr().out)
    assert [counts[key] for key in ("pages", "found", "pictures", "marked")] == [2, 2, 1, 0]


def test_a_bench_for_olmocr_s_scorer_tests_every_page_of_its_pdfs(tmp_path: Path) -> None:
    make_bench(tmp_path)
    lines = [line for path in sorted(tmp_path.glob("*.jsonl")) for line in path.read_text().splitlines()]
    tests = [json.loads(line) for line in lines]
    pages = set()
    for path in (tmp_path / "pdfs").iterdir():
        with pymupdf.open(path) as document:
            pages |= {(path.name, number) for number in range(1, len(document) + 1)}
    assert {(test["pdf"], test["page"]) for test in tests} == pages
    assert len({test["id"] for test in tests}) == len(tests)
    assert {test["type"] for test in tests} == {"present", "order", "absent", "table", "math"}
    with pymupdf.open(tmp_path / "pdfs/familiar-0.pdf") as document, Image.open(EXAM / "familiar-0.png") as truth:
        pixels = document[0].get_pixmap(dpi=200)
        assert Image.frombytes("RGB", (pixels.width, pixels.height), pixels.samples) == truth.convert("RGB")


def test_pages_are_counted_as_they_are_seen_upright_and_turned(
    tmp_path: Path, sample_data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnxruntime")
    shutil.copy(sample_data / "documents" / "scanned-letter.png", tmp_path)
    monkeypatch.setattr(sys, "argv", ["orientation", f"letters={tmp_path}", "--turned", "1"])
    orientation.main()
    head, row = (line.split(" | ") for line in capsys.readouterr().out.splitlines())
    counted = dict(zip(head, row, strict=True))
    assert (counted["kind"], counted["pages"], counted["turned"]) == ("letters", "1", "3")
    assert (counted["seen turned"], counted["right"]) == ("0", "3")
