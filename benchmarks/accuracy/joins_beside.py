"""Which texts of papers are joined, against the Markdown that MinerU's service made of the same papers.

    git clone https://github.com/ZhangCurosr/mineru-emnlp2024-001 PAPERS
    python -m benchmarks.accuracy.joins_beside PAPERS [--list]

Each folder with `paper.pdf` beside `full.md` that `joins_beside.json` names is a paper. Its blocks are MuPDF's
(`pdf_blocks`); what each is, and whether two neighbours are one text, is looked up by their letters in the Markdown.
Where ours and the Markdown differ, `joins_beside.json` has what a person says, and that counts: `right` if the second
text goes on with the first, `wrong` if not, `odd` if one of both is no text of the body (words of a figure, code) or
not as it stands on the page; odd ones are not counted. A join is two blocks next to each other in one piece; within a
column none counts as missed, because MuPDF cuts there where no model does. `--list` prints the joins that only one of
ours and the Markdown has; those that nobody has looked at have a `?`. To measure another version of the package, put
its folder first on PYTHONPATH and start in a folder without one.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Final
from unicodedata import normalize

from batchocr.data import Block, PageResult
from batchocr.documents.assembly.assemble import assemble
from batchocr.documents.assembly.document import Piece
from benchmarks.accuracy.pdf_blocks import pdf_rows

At = tuple[int, int]
"""A block: its page, and its index there."""
Join = tuple[At, At]

_VERDICTS: Final = Path(__file__).with_suffix(".json")
_BODY: Final = frozenset({"text", "list", "ref_text"})
_LATEX: Final = re.compile(r"\\[a-zA-Z]+|<[^>]*>|!\[[^\]]*\]\([^)]*\)")
_NO_LETTER: Final = re.compile(r"[\W\d_\u0370-\u03ff]+")
"""Digits and Greek are left out too: they are what formulas and marks of footnotes are made of."""
_NAMED: Final = re.compile(r"(Algorithm)\s\d|(?:Table|Figure|Listing) [A-Z]?\.?\d+[:.]")
_PROBE: Final = 24
"""How many letters of the beginning and of the end of a block are looked up."""
_LEAST: Final = (4, 40)
"""A block with fewer letters is not looked up; one with less than the second number counts only if it comes next, or is
a line's beginning or end: words of a figure are found everywhere."""
_NEXT: Final = 6
"""How far from the end of the text before that is, in letters."""
_NEARBY: Final = 6000
"""How far from there other blocks are looked up, in letters; long ones anywhere."""
_LONG: Final = 200
"""Letters of a long block."""
_SEARCHED: Final = 80
"""How many letters at the beginning and the end of a block are tried, if its very first or last are not found."""
_SHOWN: Final = 24
"""Letters of either text in a verdict."""

Key = tuple[int, str, str]
"""A join of a paper: its page, and the ends of both texts."""


def letters(text: str) -> str:
    """The text's letters alone, in lower case."""
    return _NO_LETTER.sub("", normalize("NFKD", _LATEX.sub(" ", text)).casefold())


@dataclass(slots=True)
class Markdown:
    """The letters of a paper's Markdown, and what its lines are."""

    letters: str = ""
    starts: list[int] = field(default_factory=list)
    """Where in the letters each line begins."""
    types: list[str] = field(default_factory=list)
    """Of each line: `text`, `title`, `table`, `image_caption` or `equation`."""
    cursor: int = 0
    """Behind the text found last."""

    def add(self, line: str, type: str) -> None:
        self.starts.append(len(self.letters))
        self.types.append(type)
        self.letters += letters(line)

    def line(self, position: int) -> int:
        return bisect_right(self.starts, position) - 1

    def type_of(self, block: Block) -> tuple[str | None, tuple[int, int] | None]:
        """What a block of MuPDF's is, None if it is to be left out; and where its letters stand, if they were found."""
        content = block.content or ""
        found = letters(content)
        place = self.find(found)
        if block.type not in ("text", "title"):
            return block.type, place
        if place is None:
            line = self.line(self.cursor) + 1
            is_formula = len(found) < _LEAST[1] and self.types[line : line + 1] == ["equation"]
            return "equation" if is_formula else None, None
        type = _caption(content) or self.types[self.line(place[1])]
        if type == "title":
            is_whole = place[0] in self.starts and place[1] + 1 in self.starts
            return "title" if is_whole and block.type == "title" else None, place
        return None if type == "table" else type, place

    def find(self, block: str) -> tuple[int, int] | None:
        """Where the first and the last letter of a block stand; None if it is not there. The nearest place counts."""
        least, short = _LEAST
        first, last = self._find(block, from_end=False), self._find(block, from_end=True)
        if len(block) < least or first is None or last is None:
            return None
        is_edge = first in self.starts or last + 1 in self.starts or abs(first - self.cursor) <= _NEXT
        return (first, last) if is_edge or len(block) >= short else None

    def _find(self, block: str, *, from_end: bool) -> int | None:
        size = min(_PROBE, len(block))
        farthest = len(self.letters) if len(block) >= _LONG else _NEARBY
        for skipped in range(0, min(_SEARCHED, len(block) - size) + 1, 4):
            start = len(block) - size - skipped if from_end else skipped
            place = self._nearest(block[start : start + size], farthest)
            if place is not None:
                return place + size - 1 + skipped if from_end else place - skipped
        return None

    def _nearest(self, probe: str, farthest: int) -> int | None:
        after = self.letters.find(probe, self.cursor, self.cursor + farthest)
        before = self.letters.rfind(probe, max(0, self.cursor - farthest), self.cursor + len(probe) - 1)
        places = [place for place in (after, before) if place >= 0]
        return min(places, key=lambda place: abs(place - self.cursor), default=None)


def read_markdown(path: Path) -> Markdown:
    """The Markdown of MinerU's service: each line is a paragraph, an item, a heading, a table or a caption."""
    markdown, is_formula = Markdown(), False
    for line in filter(str.strip, path.read_text("utf-8").splitlines()):
        if line.strip() == "$$":
            is_formula = not is_formula
        type = "equation" if is_formula or line.startswith("$$") else _caption(line) or "text"
        if line.startswith("#"):
            type = "title"
        elif line.startswith(("<table", "![")):
            type = "table"
        markdown.add(line, type)
    return markdown


def _caption(text: str) -> str | None:
    """The type of a text that says itself that it is a caption or an algorithm."""
    named = _NAMED.match(text)
    return None if named is None else "algorithm" if named[1] == "Algorithm" else "image_caption"


@dataclass(slots=True)
class Paper:
    """A paper with what its Markdown says of its blocks."""

    name: str
    rows: list[PageResult]
    ends: dict[At, tuple[int, int]]
    """For each text that was found, where in the Markdown its first and its last letter stand."""
    markdown: Markdown

    def text(self, at: At) -> str:
        return " ".join((self.rows[at[0]].blocks[at[1]].content or "").split())

    def is_right(self, join: Join) -> bool | None:
        """Whether the Markdown has both blocks in one paragraph; None if one of them is not found."""
        if not (join[0] in self.ends and join[1] in self.ends):
            return None
        last, first = self.ends[join[0]][1], self.ends[join[1]][0]
        return self.markdown.line(last) == self.markdown.line(first) and first > last - _PROBE

    def key(self, join: Join) -> Key:
        """What names the join in the list of verdicts."""
        before, after = map(self.text, join)
        return join[0][0] + 1, before[-_SHOWN:], after[:_SHOWN]

    def neighbours(self) -> Iterator[Join]:
        """Yield each text of the paper with the one that comes next."""
        texts = [
            (row.page_index or 0, at)
            for row in self.rows
            for at, block in enumerate(row.blocks)
            if block.type == "text"
        ]
        return pairwise(texts)


def read_paper(folder: Path) -> Paper:
    """The blocks of the paper in a folder, typed as its Markdown says."""
    markdown = read_markdown(folder / "full.md")
    found: dict[tuple[int, Block], tuple[int, int]] = {}

    def type_of(page: int, block: Block) -> str | None:
        type, place = markdown.type_of(block)
        if type == "text" and place is not None:
            found[page, Block("text", block.bbox, block.angle, block.content)] = place
            markdown.cursor = place[1]
        return type

    rows = pdf_rows(folder / "paper.pdf", type_of, tables=False)
    ends = {
        (page, at): found[page, block]
        for page, row in enumerate(rows)
        for at, block in enumerate(row.blocks)
        if (page, block) in found
    }
    return Paper(folder.name, rows, ends, markdown)


def joins(paper: Paper) -> set[Join]:
    """The joins that the assembly makes between texts of the body."""
    made: set[Join] = set()
    for piece in assemble(paper.name, paper.rows).parts:
        if isinstance(piece, Piece) and piece.type in _BODY:
            made.update(pairwise((place.page_index, place.block) for place in piece.places))
    return made


def kind_of(paper: Paper, join: Join) -> str:
    """Whether a join is over pages, over columns or within a column."""
    (page, one), (next_page, other) = join
    if page != next_page:
        return "pages"
    before, after = paper.rows[page].blocks[one].bbox, paper.rows[page].blocks[other].bbox
    return "columns" if after[0] >= (before[0] + before[2]) / 2 else "within"


@cache
def verdicts() -> dict[str, dict[Key, str]]:
    """What a person says of the joins of each paper: `right`, or `wrong: ` or `odd: ` and why."""
    papers = json.loads(_VERDICTS.read_text("utf-8"))["papers"]
    return {paper: {(page, *ends): said for page, *ends, said in joins} for paper, joins in papers.items()}


def compare(paper: Paper, counts: Counter[str]) -> Iterator[str]:
    """Count the joins of a paper; yields a line for each that only one of ours and the Markdown has."""
    made, neighbours = joins(paper), set(paper.neighbours())
    for join in sorted(made | neighbours):
        kind, is_made = kind_of(paper, join), join in made
        if kind == "within" and not is_made:
            continue
        said, by_hand = paper.is_right(join), verdicts()[paper.name].get(paper.key(join))
        verdict = by_hand or {True: "right", False: "wrong: Markdown", None: "not known"}[said]
        if is_made:
            counts[f"{kind}, {verdict}"] += 1
        elif verdict == "right":
            counts[f"{kind}, missed"] += 1
        if is_made != bool(said):
            yield json.dumps(
                ["ours" if is_made else "markdown", kind, by_hand or "?", paper.name, *paper.key(join)],
                ensure_ascii=False,
            )


def result(counts: Counter[str]) -> Iterator[str]:
    """Lines that say how many joins are right, wrong and missed."""
    for name, count in sorted(counts.items()):
        yield f"{name:50} {count:5}"
    sums = Counter[str]()
    for name, count in counts.items():
        sums[re.split("[,:] ", name)[1]] += count
    right, wrong = sums["right"], sums["wrong"]
    yield f"right {right}, wrong {wrong}: {wrong / max(1, right + wrong):.2%} of the joins; missed {sums['missed']}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--list", action="store_true", help="print what differs")
    options = parser.parse_args(arguments)
    counts: Counter[str] = Counter()
    folders = [path.parent for path in options.folder.rglob("paper.pdf") if path.parent.name in verdicts()]
    for folder in sorted(folders):
        for line in compare(read_paper(folder), counts):
            if options.list:
                print(line)
    for line in result(counts):
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
