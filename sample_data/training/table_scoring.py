"""How alike two tables are, structure and text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html.parser import HTMLParser
from typing import NamedTuple, TypeVar

from sample_data.training.scoring import edit_distance

T = TypeVar("T")


class Cell(NamedTuple):
    columns: int
    rows: int
    text: str


class _Reader(HTMLParser):
    """Collects the cells of a table, row by row."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[Cell]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th") and self.rows:
            given = dict(attrs)
            self.rows[-1].append(Cell(int(given.get("colspan") or 1), int(given.get("rowspan") or 1), ""))

    def handle_data(self, data: str) -> None:
        if self.rows and self.rows[-1]:
            last = self.rows[-1][-1]
            self.rows[-1][-1] = last._replace(text=last.text + data)


def table_similarity(truth: str, found: str) -> float:
    """Return TEDS, 0 to 1, of two HTML tables: 1 less the edit distance over the nodes of the larger.

    Rows and cells are aligned in order, level by level, so it is never higher than TEDS with free alignment.
    Source: Zhong et al., "Image-based table recognition" (PubTabNet), 2020.
    """
    tables = []
    for html in (truth, found):
        reader = _Reader()
        reader.feed(html)
        tables.append(reader.rows)
    distance = _aligned(tables[0], tables[1], lambda row: 1.0 + len(row), _row_distance)
    num_nodes = max(1 + sum(1 + len(row) for row in rows) for rows in tables)
    return 1.0 - min(1.0, distance / num_nodes)


def _row_distance(a: list[Cell], b: list[Cell]) -> float:
    return _aligned(a, b, lambda cell: 1.0, _cell_distance)


def _cell_distance(a: Cell, b: Cell) -> float:
    if a[:2] != b[:2]:
        return 1.0
    return edit_distance(a.text, b.text) / max(1, len(a.text), len(b.text))


def _aligned(a: Sequence[T], b: Sequence[T], cost: Callable[[T], float], change: Callable[[T, T], float]) -> float:
    """Return the least cost of making one sequence the other: items left out, put in, or changed."""
    row = [0.0]
    for item in b:
        row.append(row[-1] + cost(item))
    for left in a:
        new = [row[0] + cost(left)]
        for number, right in enumerate(b):
            new.append(min(row[number + 1] + cost(left), new[-1] + cost(right), row[number] + change(left, right)))
        row = new
    return row[-1]
