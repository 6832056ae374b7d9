"""Documents and pages as MinerU's own model read them, put together: against what MinerU and MinerU-Popo make of them.

Popo is a model too: where it differs, the text was read, and most of its levels that are not ours are a matter of
taste.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from batchocr.data import Block, PageResult
from batchocr.documents.assembly.assemble import assemble
from batchocr.documents.export.formats import FormatOptions, format_named
from benchmarks.accuracy.assembled import measure, read_tree
from benchmarks.accuracy.cut_tables import measure as measure_cuts
from benchmarks.accuracy.cut_tables import read_table, tables_in
from tests.support.documents import SolidFigures

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def answers(corpus: Path) -> Path:
    folder = corpus.with_name("real_answers")
    if not folder.is_dir():
        pytest.skip("no real answers beside BATCHOCR_CORPUS")
    return folder


def test_texts_are_joined_and_headings_stand_as_popo_has_them(answers: Path) -> None:
    counts = measure([read_tree(path) for path in sorted((answers / "popo").glob("*.json"))])
    assert (counts["pages popo"], counts["columns popo"], counts["levels popo"]) == (21, 26, 285)
    assert counts["pages same"] >= 20
    assert counts["columns same"] >= 22
    assert counts["levels same"] >= 215
    only_ours = sum(counts[f"{kind} ours"] - counts[f"{kind} same"] for kind in ("pages", "columns"))
    assert only_ours <= 10  # read: one of them is wrong


def test_the_content_list_has_as_many_of_each_type_as_minerus(answers: Path) -> None:
    [model] = (answers / "arxiv_2410.21169v5").glob("*_model.json")
    theirs = json.loads(model.with_name(model.name.replace("_model", "_content_list")).read_text("utf-8"))
    pages = [
        tuple(Block(read["type"], tuple(read["bbox"]), read["angle"], read["content"]) for read in blocks)
        for blocks in json.loads(model.read_text("utf-8"))
    ]
    rows = [PageResult("a", page, "ok", blocks=blocks) for page, blocks in enumerate(pages)]
    files = format_named("mineru").files(assemble("a", rows), "a", SolidFigures(), FormatOptions())
    [made] = [json.loads(file.data) for file in files if file.path.endswith("_content_list.json")]
    assert Counter(item["type"] for item in made) == Counter(item["type"] for item in theirs)


def test_rows_of_real_tables_that_a_page_end_cuts_are_whole_again(answers: Path) -> None:
    texts = [json.loads(path.read_text("utf-8")) for path in sorted(answers.rglob("*.json"))]
    found = dict.fromkeys(html for text in texts for html in tables_in(text))
    figures = measure_cuts([table for html in found if (table := read_table(html)) is not None])
    assert figures["tables"] >= 14
    assert figures["cut_rows_whole"] >= 0.85 and figures["whole_rows_joined"] <= 0.02
