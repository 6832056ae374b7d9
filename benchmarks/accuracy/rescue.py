"""How many answers that a token limit cuts are rescued by the page's own text.

    python -m benchmarks.accuracy.rescue FOLDER --model MODEL [--pages 1] [--limit 50] [--max-new-tokens 48]

The documents are read twice: as by default, and with `--text-layer trust`, which says what text each block of plain
text has. A block can be rescued if its answer was cut and trust takes it. Nothing else decides than what was read
before the cut: so a model that misreads rescues less.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import batchocr
from batchocr import open_table
from batchocr.data import Block, PageResult

PageKey = tuple[str, int | None]


def rows_of(folder: str, out: Path, **options: Any) -> Mapping[PageKey, PageResult]:
    """The rows of a run, by document and page."""
    batchocr.run(folder, out=out, max_degraded_rate=1, max_page_error_rate=1, **options)
    return {(row.source, row.page_index): row for row in open_table(out).rows()}


def count(read: Mapping[PageKey, PageResult], trusted: Mapping[PageKey, PageResult]) -> Counter[str]:
    """What became of the answers that were cut."""
    counts: Counter[str] = Counter()
    for key, row in read.items():
        is_left = any(is_cut(block) and block.text_source == "model" for block in row.blocks)
        counts["pages"] += row.status in ("ok", "degraded")
        counts["pages that are ok"] += row.status == "ok"
        counts["pages that are ok with a cut text"] += row.status == "ok" and is_left
        own = {block.bbox: block.content for block in trusted[key].blocks if block.text_source == "page"}
        for block in filter(is_cut, row.blocks):
            counts["cut"] += 1
            counts["cut, and taken by trust"] += block.bbox in own
            counts["rescued"] += block.text_source == "page"
            counts["rescued with another text than trust's"] += (
                block.text_source == "page" and block.content != own.get(block.bbox)
            )
    return counts


def is_cut(block: Block) -> bool:
    return block.finish_reason in ("length", "repetition")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--model", required=True)
    parser.add_argument("--pages", default="1", help="of each document")
    parser.add_argument("--limit", type=int, help="the number of pages in all")
    parser.add_argument("--max-new-tokens", type=int, default=48)
    given = vars(parser.parse_args())
    folder = given.pop("folder")
    with tempfile.TemporaryDirectory() as scratch:
        read = rows_of(folder, Path(scratch, "check.parquet"), **given)
        trusted = rows_of(folder, Path(scratch, "trust.parquet"), text_layer="trust", **given)
    for what, number in count(read, trusted).items():
        print(f"{number:6,} {what}")


if __name__ == "__main__":
    main()
