"""How often pages are seen to stand as they do: upright ones, and some of them turned.

    python -m benchmarks.accuracy.orientation KIND=FOLDER… [--pages 3] [--turned 0.1] [--show FOLDER]

The pages in the folders are taken to stand upright. A page's letters do not count, as if all were scans; how many say
so by themselves is counted apart, and so are pages of PDFs with fewer than 100 letters. Some documents are
really turned: look at the pages that --show saves.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from batchocr.data import NO_LETTERS, Page
from batchocr.errors import PageError
from batchocr.pages.input.render import open_document
from batchocr.pages.orientation import orientation_of
from batchocr.pages.turning import turned_page

os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # as in a worker

DPI = 200
COLUMNS = ("pages", "by letters", "turned by letters", "seen turned", "unsure", "turned", "right", "wrong")
"""Of upright pages the first five; "wrong" are turned pages seen in another position than theirs."""
_FEW_LETTERS = 100
_LEAST_PX = 100
"""A smaller image is no page."""


def pages_in(folder: Path, most: int) -> Iterator[tuple[str, Page]]:
    """Yield the pages of all documents that can be opened, drawn at random if one has more than `most`."""
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        try:
            with closing(open_document(str(path), password=None, dpi=DPI)) as document:
                count = document.page_count
                for index in sorted(random.Random(path.name).sample(range(count), min(most, count))):
                    page = document.render(index)
                    if min(page.image.size) >= _LEAST_PX:
                        yield f"{path.name}, page {index + 1}", page
        except PageError:
            continue


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="+", metavar="KIND=FOLDER")
    parser.add_argument("--pages", type=int, default=3, help="the most of a document")
    parser.add_argument("--turned", type=float, default=0.1, help="the share of pages that are turned, too")
    parser.add_argument("--show", type=Path, help="a folder for pictures of upright pages seen as turned")
    arguments = parser.parse_args()
    print("kind", *COLUMNS, sep=" | ")
    for kind, _, folder in (given.partition("=") for given in arguments.kinds):
        count_kind(kind, Path(folder), arguments)


def count_kind(kind: str, folder: Path, arguments: argparse.Namespace) -> None:
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    seconds = 0.0
    for number, (name, page) in enumerate(pages_in(folder, arguments.pages)):
        has_few = page.dpi is not None and sum(len(word) for _, _, word in page.words) < _FEW_LETTERS
        count = counts[f"{kind}, few letters" if has_few else kind]
        if sum(page.letters_run) >= _FEW_LETTERS:
            count["by letters"] += orientation_of(page) == 0
            count["turned by letters"] += bool(orientation_of(page))
        page = replace(page, letters_run=NO_LETTERS)
        began_s = time.process_time()
        seen = orientation_of(page)
        seconds += time.process_time() - began_s
        count["pages"] += 1
        count["unsure" if seen is None else "seen turned" if seen else "seen upright"] += 1
        if seen:
            print(f"{kind}: {name}: to be turned by {seen}", file=sys.stderr)
            if arguments.show:
                arguments.show.mkdir(exist_ok=True, parents=True)
                page.image.reduce(4).save(arguments.show / f"{kind}-{number}-{seen}.png")
        for degrees in (90, 180, 270) if random.Random(name).random() < arguments.turned else ():
            said = orientation_of(turned_page(page, degrees))
            count["turned"] += 1
            count["right" if said == 360 - degrees else "wrong" if said is not None else "turned, unsure"] += 1
    for label, count in counts.items():
        print(label, *(count[column] for column in COLUMNS), sep=" | ", flush=True)
    print(f"{kind}: {1000 * seconds / max(1, sum(c['pages'] for c in counts.values())):.1f} ms of CPU", file=sys.stderr)


if __name__ == "__main__":
    main()
