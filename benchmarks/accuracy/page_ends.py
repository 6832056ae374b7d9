"""Whether texts go on over the ends of pages and columns, in contracts, statutes, forms, slides and minutes.

    python -m benchmarks.accuracy.page_ends FOLDER [--list]

FOLDER holds the PDFs that `page_ends.json` names, under any name: they are found by their digest. Each is at a commit
of a public repository, and comes with

    git clone ADDRESS && git -C NAME show COMMIT:PATH > FOLDER/some.pdf

The list says of each end of a page or column whether the last running text before it and the first behind it are one
paragraph or item. It was marked by hand, from the pages alone. Ends at a heading, table or figure are left out, and
those that a careful reader could not decide: `left_out` has their numbers. Of slides the first text counts even if it
is their title, which models often take for text.

Blocks are MuPDF's, but for what the marks know better: both texts of a pair are of type `text`, and what stands behind
the last text of a page or before the first is furniture. `--list` prints the pairs that the assembly gets wrong, and
those whose texts no block ends or begins with.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from batchocr.data import PageResult
from batchocr.documents.assembly.assemble import assemble
from batchocr.documents.assembly.document import Piece
from benchmarks.accuracy.pdf_blocks import pdf_rows

_LIST: Final = Path(__file__).with_suffix(".json")

At = tuple[int, int]
"""A block: its page, and its index there."""


@dataclass(frozen=True, slots=True)
class Pair:
    """The last running text before the end of a page or column, and the first behind it."""

    page: int
    """From 0; of the first of both."""
    last: str
    """The last 40 characters before the end, or all of that text."""
    first: str
    goes_on: bool
    within: bool = False
    """Whether both stand on one page, at the end of a column."""

    @property
    def next_page(self) -> int:
        return self.page + (not self.within)


@dataclass(frozen=True, slots=True)
class Outcome:
    pair: Pair
    is_joined: bool | None
    """None if a text was not found."""


def outcomes(path: Path, pairs: Sequence[Pair]) -> list[Outcome]:
    """What the assembly makes of the pairs of a PDF."""
    rows = pdf_rows(path, tables=False)
    found = [(_ending(rows[pair.page], pair.last), _beginning(rows[pair.next_page], pair.first)) for pair in pairs]
    for pair, (last, first) in zip(pairs, found, strict=True):
        if last is not None and first is not None:
            end, start = (None, None) if pair.within else (last, first)
            rows[pair.page] = _marked(rows[pair.page], last, end=end)
            rows[pair.next_page] = _marked(rows[pair.next_page], first, start=start)
    piece_of: dict[At, int] = {}
    for number, piece in enumerate(assemble(path.name, rows).parts):
        if isinstance(piece, Piece):
            piece_of |= {(place.page_index, place.block): number for place in piece.places}
    return [
        Outcome(
            pair,
            None
            if last is None or first is None
            else piece_of.get((pair.page, last), -1) == piece_of.get((pair.next_page, first), -2),
        )
        for pair, (last, first) in zip(pairs, found, strict=True)
    ]


def _marked(row: PageResult, text: int, *, start: int | None = None, end: int | None = None) -> PageResult:
    """The row with this block as text, and with what stands before `start` and behind `end` as furniture."""

    def type_of(index: int, type: str) -> str:
        if index == text:
            return "text"
        if type in ("text", "title") and ((start is not None and index < start) or (end is not None and index > end)):
            return "footer" if end is not None else "header"
        return type

    blocks = (replace(block, type=type_of(index, block.type)) for index, block in enumerate(row.blocks))
    return replace(row, blocks=tuple(blocks))


def _ending(row: PageResult, last: str) -> int | None:
    """The index of the last block that ends so; of the last that is itself an end of the text, if there is none."""
    texts, end = [_letters(block.content or "") for block in row.blocks], _letters(last)
    whole = [index for index, text in enumerate(texts) if text.endswith(end)]
    parts = [index for index, text in enumerate(texts) if text and end.endswith(text)]
    return max(whole or parts, default=None)


def _beginning(row: PageResult, first: str) -> int | None:
    """The same for the beginning: the first such block."""
    texts, start = [_letters(block.content or "") for block in row.blocks], _letters(first)
    whole = [index for index, text in enumerate(texts) if text.startswith(start)]
    parts = [index for index, text in enumerate(texts) if text and start.startswith(text)]
    return min(whole or parts, default=None)


def _letters(text: str) -> str:
    return "".join(char for char in text if unicodedata.category(char)[0] in "LNMS")


def _read(folder: Path) -> Iterator[tuple[dict[str, str], list[Outcome]]]:
    """The entry of each document that is in the folder, and what came of its pairs."""
    files = {hashlib.sha256(path.read_bytes()).hexdigest(): path for path in folder.iterdir() if path.is_file()}
    for document in json.loads(_LIST.read_text("utf-8"))["documents"]:
        if document["sha256"] in files:
            yield document, outcomes(files[document["sha256"]], [Pair(**pair) for pair in document["pairs"]])
        else:
            print(f"not there: {document['address']} {document['path']}", file=sys.stderr)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--list", action="store_true", help="print what is wrong")
    options = parser.parse_args(arguments)
    groups: dict[str, Counter[tuple[bool, bool | None]]] = {}
    for document, found in _read(options.folder):
        for outcome in found:
            pair, is_joined = outcome.pair, outcome.is_joined
            for group in (f"{document['kind']}, {document['script']}", "all"):
                groups.setdefault(group, Counter())[pair.goes_on, is_joined] += 1
            if options.list and is_joined is not pair.goes_on:
                fault = {None: "not found", True: "joined", False: "apart"}[is_joined]
                print(f"{fault}: {document['path']}, page {pair.page + 1}: …{pair.last} | {pair.first}…")
    print(f"{'':22}apart  joined   go on  joined   not found")
    for group, counts in sorted(groups.items(), key=lambda entry: (entry[0] == "all", entry[0])):
        numbers = [
            counts[goes_on, True] + counts[goes_on, False] * full for goes_on in (False, True) for full in (1, 0)
        ]
        print(f"{group:20}" + "".join(f"{number:7} " for number in numbers), f"{counts[0, None] + counts[1, None]:10}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
