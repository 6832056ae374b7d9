"""How well something was read: characters, boxes, order, tables.

Source of TEDS: Zhong et al., "Image-based table recognition: data, model, and evaluation" (PubTabNet), 2020.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import TypeAlias

from apted import APTED, Config
from rapidfuzz import fuzz
from rapidfuzz.distance import Levenshtein

_SENTENCE = 20
_SENTENCE_END = re.compile(r"(?<=[.?!;:])\s+")
_LIKE = 70
_CIRCLES = re.compile(r"(\S.{1,59}?)(?:\s*\1){2,}", re.DOTALL)

Box: TypeAlias = tuple[float, float, float, float]
"""x0, y0, x1, y1."""


def character_error_rate(pairs: Sequence[tuple[str, str]]) -> float:
    """Return the total edit distance of (truth, reading) pairs, divided by the characters of the truths."""
    distance = sum(Levenshtein.distance(truth, reading) for truth, reading in pairs)
    return distance / max(1, sum(len(truth) for truth, _ in pairs))


def sentences_lost(truth: str, found: str) -> tuple[int, int]:
    """Return how many sentences of the truth are not in what was found, and how many there are.

    A sentence counts from 20 characters, and is there if some place is like it in 70 % of the characters.
    """
    sentences = [words for words in _SENTENCE_END.split(truth) if len(words) >= _SENTENCE]
    return sum(fuzz.partial_ratio(words, found) < _LIKE for words in sentences), len(sentences)


def goes_in_circles(truth: str, found: str) -> bool:
    """Return whether what was found says anything three times or more in a row that the truth does not."""
    return any(match.group() not in truth for match in _CIRCLES.finditer(found))


def overlap(a: Box, b: Box) -> float:
    """Return the intersection over the union."""
    width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    if width <= 0 or height <= 0:
        return 0.0
    area = width * height
    return area / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - area)


def matched(truth: Sequence[Box], found: Sequence[Box], threshold: float = 0.5) -> dict[int, int]:
    """Return the found box for each true box, by index: pairs that overlap enough, best first, each box once."""
    overlaps = sorted(
        ((overlap(a, b), i, j) for i, a in enumerate(truth) for j, b in enumerate(found)), key=lambda pair: -pair[0]
    )
    partner: dict[int, int] = {}
    taken: set[int] = set()
    for share, i, j in overlaps:
        if share >= threshold and i not in partner and j not in taken:
            partner[i] = j
            taken.add(j)
    return partner


def order_distance(partner: dict[int, int]) -> int:
    """Return how many of the matched blocks must be moved to get the true order."""
    found_order = [truth for truth, _ in sorted(partner.items(), key=lambda pair: pair[1])]
    in_place = Levenshtein.distance(found_order, sorted(found_order), weights=(1, 1, 2))
    return in_place // 2  # a move is one deletion and one insertion


@dataclass(slots=True)
class _Node:
    tag: str
    span: tuple[str, str] = ("1", "1")
    text: str = ""
    children: list[_Node] = field(default_factory=list)


class _TableTree(HTMLParser):
    """The rows of a table and their cells, as a tree."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.root = _Node("table")
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "tr":
            self.root.children.append(_Node("tr"))
        elif tag in ("td", "th") and self.root.children:
            span = (given.get("colspan") or "1", given.get("rowspan") or "1")
            self.root.children[-1].children.append(_Node("td", span))

    def handle_data(self, data: str) -> None:
        if self.root.children and self.root.children[-1].children:
            self.root.children[-1].children[-1].text += data

    @property
    def num_nodes(self) -> int:
        return 1 + sum(1 + len(row.children) for row in self.root.children)


class _Costs(Config):  # type: ignore[misc]
    """PubTabNet's costs: 1 for an added or removed node or another kind of cell, the share of edits for other text."""

    def rename(self, node1: _Node, node2: _Node) -> float:
        if (node1.tag, node1.span) != (node2.tag, node2.span):
            return 1.0
        return Levenshtein.normalized_distance(node1.text.strip(), node2.text.strip())

    def children(self, node: _Node) -> list[_Node]:
        return node.children


def table_similarity(truth: str, found: str) -> float:
    """Return the TEDS of two HTML tables, 0 to 1: 1 minus their tree edit distance over the larger one's nodes."""
    if not found:
        return 0.0
    trees = _TableTree(truth), _TableTree(found)
    distance = APTED(trees[0].root, trees[1].root, _Costs()).compute_edit_distance()
    return max(0.0, 1.0 - float(distance) / max(tree.num_nodes for tree in trees))
