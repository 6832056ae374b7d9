"""Reads unseen pages with the product itself and says how well: `python -m sample_data.training.evaluate MODEL`."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from mineru_vl_utils.post_process.otsl2html import convert_otsl_to_html
from PIL import Image

import batchocr
from batchocr.data import PageResult
from sample_data.training.samples import thousandths
from sample_data.training.scan import make_page
from sample_data.training.scoring import character_error_rate, matched
from sample_data.training.story import set_story_pages
from sample_data.training.table_scoring import table_similarity
from sample_data.training.truth import TrainingPage

UNSEEN = 800_000
"""The first number of the key of pages made for this alone."""
_TEXTS = ("text", "list_item", "title")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m sample_data.training.evaluate", description=__doc__)
    parser.add_argument("model", type=Path, help="folder of an exported checkpoint")
    parser.add_argument("--pages", type=int, default=200)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, batchocr.Ocr(model=str(given.model)) as ocr:
        pages = [make_page(UNSEEN, number) for number in range(given.pages)]
        scores = {**score_pages(pages, ocr.process(_written(pages, Path(folder)))), **_score_prose(ocr, Path(folder))}
    print(json.dumps({name: round(score, 4) for name, score in scores.items()}, indent=2))


def _written(pages: Sequence[TrainingPage], folder: Path) -> list[str]:
    """Write pages as images and return their paths, in order."""
    paths = [folder / f"{number:04d}.png" for number in range(len(pages))]
    for page, path in zip(pages, paths, strict=True):
        Image.fromarray(page.image).save(path)
    return [str(path) for path in paths]


def score_pages(pages: Sequence[TrainingPage], results: Iterator[PageResult]) -> dict[str, float]:
    """Return the layout's recall and precision, and how well the blocks it found were read.

    A block that was not found counts as read as nothing; blocks count as found from an overlap of a half on.
    """
    read: dict[str, list[tuple[str, str]]] = defaultdict(list)
    tables = []
    num_right = num_true = num_found = num_of_type = 0
    for page, result in zip(pages, results, strict=True):
        height, width = page.image.shape
        true_boxes = [thousandths(block, width, height) for block in page.blocks]
        found_boxes = [
            (x0 * 1000, y0 * 1000, x1 * 1000, y1 * 1000) for x0, y0, x1, y1 in (b.bbox for b in result.blocks)
        ]
        partner = dict(matched(true_boxes, found_boxes))
        num_right, num_true, num_found = (
            num_right + len(partner),
            num_true + len(true_boxes),
            num_found + len(found_boxes),
        )
        for number, block in enumerate(page.blocks):
            found = result.blocks[partner[number]] if number in partner else None
            content = (found.content or "") if found else ""
            num_of_type += found is not None and found.type == block.type
            if block.type == "table":
                tables.append(table_similarity(convert_otsl_to_html(block.text), content))
            elif block.type == "equation":
                read["equation"].append((block.text, content.removeprefix("\\[").removesuffix("\\]").strip()))
            elif block.type != "image":
                read[block.type if block.type in _TEXTS else "others"].append((block.text, content))
    scores = {f"CER of {name}": character_error_rate(pairs) for name, pairs in sorted(read.items())}
    return {
        "layout recall": num_right / max(1, num_true),
        "layout precision": num_right / max(1, num_found),
        "types right": num_of_type / max(1, num_right),
        **scores,
        "table similarity": sum(tables) / max(1, len(tables)),
    }


def _score_prose(ocr: batchocr.Ocr, folder: Path) -> dict[str, float]:
    """Return the error rate over ordinary prose and lists, set by another hand: PyMuPDF's Story."""
    pairs = []
    truths = set_story_pages(folder / "prose.pdf")
    for truth, result in zip(truths, ocr.process(folder / "prose.pdf"), strict=True):
        content = " ".join(block.content or "" for block in result.blocks)
        pairs.append((" ".join(truth.split()), " ".join(content.replace("•", " ").split())))
    return {"CER of prose": character_error_rate(pairs)}


if __name__ == "__main__":
    main()
