"""Writes unseen pages and their true content: `python -m sample_data.training.exam FOLDER`, for benchmarks.accuracy.

The pages are generated from a seed that training never uses; with --prose, they are ten pages set by PyMuPDF's Story.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from mineru_vl_utils.post_process.otsl2html import convert_otsl_to_html
from PIL import Image

from sample_data.training.essay import Essay
from sample_data.training.familiar import make_familiar_page
from sample_data.training.scan import make_page
from sample_data.training.story import set_story_pages
from sample_data.training.truth import Block, TrainingPage

UNSEEN = 800_000
"""The first number in the keys of pages that are made only for this."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m sample_data.training.exam", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pages", type=int, default=200)
    parser.add_argument("--familiar", action="store_true", help="pages set like the sample documents, with other words")
    parser.add_argument("--prose", action="store_true", help="ten pages of prose and lists, their text alone known")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    if given.prose:
        write_prose(given.folder)
    else:
        write_pages(given.folder, given.pages, partial(make_familiar_page, Essay()) if given.familiar else make_page)


def write_pages(folder: Path, num_pages: int, make: Callable[..., TrainingPage] = make_page) -> None:
    """Write generated pages as images, and their truth."""
    rows = []
    for number in range(num_pages):
        page = make(UNSEEN, number)
        name = f"{number:04d}.png"
        Image.fromarray(page.image).save(folder / name)
        rows.append({"source": name, "page_index": 0, "blocks": [_as_output(page, block) for block in page.blocks]})
    _write_truth(folder, rows)


def write_prose(folder: Path) -> None:
    """Write the pages of prose as one PDF, and the text of each."""
    truths = set_story_pages(folder / "prose.pdf")
    _write_truth(
        folder,
        (
            {"source": "prose.pdf", "page_index": index, "blocks": [{"type": "text", "bbox": None, "content": truth}]}
            for index, truth in enumerate(truths)
        ),
    )


def _as_output(page: TrainingPage, block: Block) -> dict[str, object]:
    """Return the block as batchocr would write it."""
    height, width = page.image.shape
    x0, y0, x1, y1 = block.box
    content: str | None = block.text
    if block.type == "table":
        content = convert_otsl_to_html(block.text)
    elif block.type == "image":
        content = None
    return {"type": block.type, "bbox": [x0 / width, y0 / height, x1 / width, y1 / height], "content": content}


def _write_truth(folder: Path, rows: Iterable[dict[str, object]]) -> None:
    (folder / "truth.jsonl").write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


if __name__ == "__main__":
    main()
