"""Which pages are drawn to be read, and what comes of reading them."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from batchocr.config import Config
from batchocr.data import Document
from batchocr.job.progress import ProgressCallback, RunProgress
from batchocr.job.session import Session
from batchocr.job.survey import sample
from batchocr.job.survey.sample import draw, read_pages
from batchocr.pages.input.sources import find_documents
from tests.support.running import draw_pdf

BOOK = (Document("book", "book"), range(90))
LETTERS = [(Document(f"letter {number}", f"letter {number}"), range(1)) for number in range(9)]
CHOSEN = (Document("chosen", "chosen"), [3, 8, 20])
NONE = (Document("short", "short"), range(0))


def pages_of(documents: list[Document]) -> list[tuple[str, int]]:
    return [(document.source, page) for document in documents for page in document.pages or ()]


@pytest.mark.parametrize("number", [1, 2, 7, 100, 101, 102, 1000])
def test_as_many_pages_are_drawn_as_were_asked_for_none_twice_and_none_that_is_not_wanted(number: int) -> None:
    drawn = pages_of(draw([NONE, *LETTERS, BOOK, NONE, CHOSEN, NONE], number))
    assert len(drawn) == len(set(drawn)) == min(number, 102)
    assert {page for source, page in drawn if source == "chosen"} <= {3, 8, 20}
    assert "short" not in dict(drawn)


def test_the_same_input_gives_the_same_pages() -> None:
    assert draw([BOOK, CHOSEN], 7) == draw([BOOK, CHOSEN], 7)


def test_a_document_has_as_many_of_them_as_its_length_is_worth(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(50):
        monkeypatch.setattr(sample, "_SEED", seed)
        book = sum(source == "book" for source, _ in pages_of(draw([*LETTERS, BOOK], 11)))
        assert book in (9, 10, 11)


@pytest.mark.parametrize("number", [1, 5, 8])
def test_every_page_is_as_likely_as_any_other(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = [(Document("a", "a"), range(7)), *LETTERS[:2], NONE, (Document("b", "b"), [0, 5])]
    counts: Counter[tuple[str, int]] = Counter()
    for seed in range(3000):
        monkeypatch.setattr(sample, "_SEED", seed)
        counts.update(pages_of(draw(wanted, number)))
    assert len(counts) == 11
    assert all(count == pytest.approx(3000 * number / 11, rel=0.25) for count in counts.values())


@pytest.mark.slow
def test_these_pages_are_read_and_no_others_and_one_that_fails_counts(tmp_path: Path, model: Path) -> None:
    draw_pdf(tmp_path / "a.pdf", *"abcdef")
    draw_pdf(tmp_path / "b.pdf", "g")
    first, second = find_documents([str(tmp_path)]).documents
    (tmp_path / "torn.pdf").write_bytes(b"%PDF-1.7")
    torn = Document(str(tmp_path / "torn.pdf"), "torn.pdf", pages=frozenset((4, 6)))
    said: list[RunProgress] = []
    config = Config(model=str(model), dpi=72, workers=1)
    with closing(Session(config)) as session:
        read = read_pages(
            session,
            [replace(first, pages=frozenset((1, 4))), replace(second, pages=frozenset((0,))), torn],
            ProgressCallback(said.append),
            opening_s=100.0,
        )
    assert (read.num_pages, read.report.pages_read, read.report.items.failed) == (5, 3, 1)
    assert [min(page) > 0 for page in sorted(read.tokens)] == [False, False, True, True, True]
    assert read.report.start_up_seconds > 100 and 0 < read.report.work_seconds < 100
    assert said[-1].read == 3 and said[-1].done == said[-1].planned == 4
