"""`batchocr compare`: what changed is found, whatever the order of the rows, and shows in the exit code."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchocr.data import Block, PageResult
from batchocr.tables.comparison import compare, matched
from batchocr.tables.page_change import BlockChanges, block_changes, page_change
from batchocr.tables.schema import RunMetadata
from tests.support.documents import METADATA, write_table
from tests.support.running import said_by


def page(source: str, index: int | None = 0, markdown: str | None = "some text", **more: object) -> PageResult:
    return PageResult(source, index, **{"status": "ok", "markdown": markdown} | more)  # type: ignore[arg-type]


def text(top: float, content: str = "text", kind: str = "text", height: float = 0.1) -> Block:
    return Block(kind, (0.1, top, 0.9, top + height), 0, content)


def write(path: Path, rows: Sequence[PageResult], metadata: RunMetadata = METADATA) -> str:
    return str(write_table(path, rows, metadata))


keys = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([None, 0, 1, 2])), unique=True)


@given(keys, keys, st.randoms(use_true_random=False))
def test_every_row_is_matched_once_in_whatever_order(
    first: list[tuple[str, int | None]], second: list[tuple[str, int | None]], dice: random.Random
) -> None:
    dice.shuffle(second)
    pairs = list(matched([page(*key) for key in first], [page(*key) for key in second]))
    keys = [tuple(row and (row.source, row.page_index) for row in pair) for pair in pairs]
    both = set(first) & set(second)
    expected = [(key, key) for key in both]
    expected += [(key, None) for key in first if key not in both]
    expected += [(None, key) for key in second if key not in both]  # type: ignore[misc]
    assert sorted(keys, key=str) == sorted(expected, key=str)


def test_a_row_that_waited_is_the_row_that_was_read() -> None:
    rows = [page(name, blocks=(text(0.1, "größer \0 \U0001f600"),), ink_outside=0.5) for name in "abc"]
    assert sorted(matched(rows, rows[::-1]), key=lambda pair: pair[0].source) == [(row, row) for row in rows]  # type: ignore[union-attr]


def test_rows_in_one_order_wait_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batchocr.tables.comparison.to_json", None)
    rows = [page(name) for name in "abc"]
    assert list(matched(rows, rows)) == [(row, row) for row in rows]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([text(0.1)], [text(0.1)], BlockChanges()),
        ([text(0.1)], [text(0.12)], BlockChanges()),
        ([text(0.1)], [text(0.17)], BlockChanges(added=1, lost=1)),
        ([text(0.1)], [text(0.1, kind="title")], BlockChanges(added=1, lost=1)),
        ([text(0.1, "a")], [text(0.11, "b")], BlockChanges(changed=1)),
        ([], [text(0.1), text(0.3)], BlockChanges(added=2)),
        ([text(0.1)] * 3, [text(0.1)], BlockChanges(lost=2)),
        ([text(0.1, "a"), text(0.14, "b")], [text(0.13, "b")], BlockChanges(lost=1)),  # the one that overlaps more
        ([text(0.1, height=0)], [text(0.1, height=0)], BlockChanges()),
        ([text(0.1, height=0)], [text(0.1, height=0.1)], BlockChanges(added=1, lost=1)),
    ],
)
def test_blocks_are_matched_by_box_and_type(first: list[Block], second: list[Block], expected: BlockChanges) -> None:
    assert block_changes(first, second) == expected


def test_white_space_and_the_form_of_accents_are_no_change() -> None:
    assert not page_change(page("a", markdown="é a\n\n b "), page("a", markdown="e\u0301 a b")).is_any


def test_the_change_is_the_share_of_characters() -> None:
    assert page_change(page("a", markdown="abcdefghij"), page("a", markdown="abXdefghi")).share == 0.2
    lost = page_change(page("a", markdown="abc"), page("a", markdown=None, status="failed"))
    assert (lost.share, lost.statuses) == (1.0, ("ok", "failed"))


@pytest.mark.slow
def test_long_texts_and_many_blocks_take_seconds_at_most() -> None:
    dice = random.Random(1)
    words = ["".join(dice.choices("abcdefghij", k=7)) for _ in range(12_500)]
    other = [*words]
    for place in range(0, len(other), 100):
        other[place] = "changed"
    blocks = [tuple(text(dice.random(), "x", height=0.002) for _ in range(1000)) for _ in range(2)]
    started = time.process_time()
    change = page_change(
        page("a", markdown=" ".join(words), blocks=blocks[0]), page("a", markdown=" ".join(other), blocks=blocks[1])
    )
    assert change.share == pytest.approx(0.0078, rel=1e-2)
    assert time.process_time() - started < 5


def test_totals_and_the_most_changed_pages_first() -> None:
    first = [page("a", 0), page("a", 1), page("a", 2, "x" * 9), page("b", 0, "only here"), page("c", 0)]
    second = [page("a", 2, "x" * 8 + "y"), replace(page("a", 0), status="degraded"), page("a", 1), page("c", 0, "")]
    found = compare(matched(first, second), num_top=3)
    assert (found.rows, found.only_first, found.only_second, found.differing) == (4, 1, 0, 4)
    assert (found.characters, found.characters_changed) == (9 * 5, 9 + 9 + 1)
    assert found.status_changes == {("ok", "degraded"): 1}
    assert +found.spread == {0.0: 2, 0.2: 1, 1.0: 2}
    assert [(one.source, one.page_index) for one in found.most_changed] == [("b", 0), ("c", 0), ("a", 2)]
    common = compare(matched(first, second), num_top=3, common=True)
    assert (common.rows, common.only_first, common.only_second, common.differing) == (4, 1, 0, 3)
    assert (common.characters, common.characters_changed) == (9 * 4, 9 + 1)


@pytest.fixture
def tables(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """Two tables in opposite orders, of other settings, in which one of 20 characters differs."""
    rows = [page(f"{name}\n.pdf", markdown="1234567890") for name in "ab"]
    changed = [replace(rows[1], markdown="123456789X"), rows[0]]
    other = replace(METADATA, settings={"dpi": "300"}, settings_fingerprint="b" * 64)
    yield write(tmp_path / "1.parquet", rows), write(tmp_path / "2.jsonl", changed, other)


@pytest.mark.parametrize(("max_change", "exit_code"), [(None, 0), (0.05, 0), (0.04, 3), (0.0, 3)])
def test_more_change_than_allowed_is_exit_code_3(
    tables: tuple[str, str], max_change: float | None, exit_code: int
) -> None:
    option = () if max_change is None else ("--max-change", str(max_change))
    code, out, _ = said_by("compare", *tables, *option, "--json")
    printed = json.loads(out)
    assert code == printed["exit_code"] == exit_code
    assert (printed["change"], printed["settings"]) == (0.05, {"dpi": ["200", "300"]})
    assert [page["source"] for page in printed["most_changed"]] == ["b\n.pdf"]


def test_what_is_printed_for_people(tables: tuple[str, str]) -> None:
    assert said_by("compare", *tables)[1].splitlines() == [
        "setting   dpi: 200 → 300",
        "rows      2 in both, 1 different",
        "text      5.00% of 20 characters changed",
        "blocks    0 added, 0 lost, 0 changed",
        "spread    unchanged: 1, ≤ 20%: 1",
        "",
        "changed  blocks +added -lost ~changed  page",
        "  10.0%  +0 -0 ~0                       b\\n.pdf page 1",
    ]


@pytest.mark.parametrize("option", [("--max-change", "5"), ("--max-change", "nan"), ("--top", "-1")])
def test_a_limit_that_is_no_share_is_refused(tables: tuple[str, str], option: tuple[str, str]) -> None:
    assert said_by("compare", *tables, *option)[0] == 2


def test_two_tables_without_a_row_are_alike_and_said_to_be_empty(tmp_path: Path) -> None:
    """A share of the documents may have none."""
    empty = [write(tmp_path / name, []) for name in ("1.parquet", "2.jsonl")]
    code, out, log = said_by("compare", *empty, "--max-change", "0")
    assert code == 0
    assert out.startswith("rows      0 in both, 0 different\n")
    assert "neither table has a row" in log


def test_tables_without_a_common_row_meet_no_limit(tmp_path: Path) -> None:
    others = [write(tmp_path / f"{name}.parquet", [page(f"{name}.pdf", markdown="text")]) for name in "ab"]
    code, _, log = said_by("compare", *others, "--common", "--max-change", "1")
    assert code == 3
    assert log == "batchocr: warning: no row is in both tables, by its source and page_index: nothing was compared\n"
    assert said_by("compare", *others, "--common")[0] == 0
