"""Whether texts go on over the ends of pages and columns, in contracts, statutes, forms, slides and minutes.

    python -m benchmarks.accuracy.page_ends FOLDER [--list]

FOLDER holds the PDFs that `page_ends.json` names, under any name: they are found by their digest. Each is at a commit
of a public repository, and comes with

    git clone ADDRESS && git -C NAME show COMMIT:PATH > FOLDER/some.pdf

The list says of each end of a page or column whether the last running text before it and the first behind it are one
paragraph or item. It was marked by hand, from the pages alone. Ends at a heading, table or figure are left out, and
those that a careful reader could not decide; `left_out` has their numbers. Of slides the first text counts even if it
is their title, which models often take for text.

The rules were changed while the first 79 documents could be seen. The others, from `lhc/estatuto` on, were marked
before anything was run on them: FOLDER with these alone gives the figures that are held out.

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
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
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
        return self.page + (0 if self.within else 1)


def are_joined(path: Path, pairs: Sequence[Pair]) -> list[bool | None]:
    """Whether the assembly joins the texts of each pair of a PDF; None if no block has them."""
    rows = pdf_rows(path, tables=False)
    lasts = [_found(rows, pair.page, pair.last, str.endswith, max) for pair in pairs]
    firsts = [_found(rows, pair.next_page, pair.first, str.startswith, min) for pair in pairs]
    types: dict[At, str] = {}
    for pair, last, first in zip(pairs, lasts, firsts, strict=True):
        if not pair.within and last and first:
            types |= {(pair.page, index): "aside_text" for index in range(last[1] + 1, len(rows[pair.page].blocks))}
            types |= {(pair.next_page, index): "aside_text" for index in range(first[1])}
    types |= {at: "text" for at in (*lasts, *firsts) if at}
    pieces = [piece for piece in assemble(path.name, list(_marked(rows, types))).parts if isinstance(piece, Piece)]
    piece_of = {(place.page_index, place.block): piece for piece in pieces for place in piece.places}
    ends = zip(lasts, firsts, strict=True)
    return [piece_of[last] is piece_of[first] if last and first else None for last, first in ends]


def _found(
    rows: Sequence[PageResult], page: int, said: str, has: Callable[[str, str], bool], pick: Callable[..., int | None]
) -> At | None:
    """The block that ends or begins so, or else one that is itself an end or beginning of what is said."""
    texts, said = [_letters(block.content or "") for block in rows[page].blocks], _letters(said)
    whole = [index for index, text in enumerate(texts) if has(text, said)]
    parts = [index for index, text in enumerate(texts) if text and has(said, text)]
    index = pick(whole or parts, default=None)
    return None if index is None else (page, index)


def _marked(rows: Sequence[PageResult], types: Mapping[At, str]) -> Iterator[PageResult]:
    """The rows with these types of texts; figures stay figures."""
    for page, row in enumerate(rows):
        marked = [replace(block, type=types.get((page, at), block.type)) for at, block in enumerate(row.blocks)]
        blocks = [new if new.content else old for new, old in zip(marked, row.blocks, strict=True)]
        yield replace(row, blocks=tuple(blocks))


def _letters(text: str) -> str:
    """The text without spaces and punctuation."""
    return "".join(char for char in text if unicodedata.category(char)[0] in "LNMS")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--list", action="store_true", help="print what is wrong")
    options = parser.parse_args(arguments)
    files = {hashlib.sha256(path.read_bytes()).hexdigest(): path for path in options.folder.iterdir() if path.is_file()}
    counts: defaultdict[str, Counter[tuple[bool, bool | None]]] = defaultdict(Counter)
    for document in json.loads(_LIST.read_text("utf-8"))["documents"]:
        if document["sha256"] not in files:
            print(f"not there: {document['address']} {document['path']}", file=sys.stderr)
            continue
        pairs = [Pair(**pair) for pair in document["pairs"]]
        for pair, is_joined in zip(pairs, are_joined(files[document["sha256"]], pairs), strict=True):
            for group in (f"{document['kind']}, {document['script']}", "~ all"):
                counts[group][pair.goes_on, is_joined] += 1
            if options.list and is_joined is not pair.goes_on:
                fault = {None: "not found", True: "joined", False: "apart"}[is_joined]
                print(f"{fault}: {document['path']}, page {pair.page + 1}: …{pair.last} | {pair.first}…")
    print(f"{'':20}  apart  joined  go on  joined  not found")
    for group, of in sorted(counts.items()):
        apart, joined, going_on, gone_on = of[False, False], of[False, True], of[True, False], of[True, True]
        missing = of[False, None] + of[True, None]
        print(f"{group:20}{apart + joined:7}{joined:8}{going_on + gone_on:7}{gone_on:8}{missing:11}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
