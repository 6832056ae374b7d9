"""How well a model reads: `batchocr run` on pages whose content is known.

    python -m benchmarks.accuracy sample_data/exam --model sample_data/model

The folder holds documents and `truth.jsonl`, one line per page in the format of batchocr's JSON Lines output:

    {"source": "a.pdf", "page_index": 0, "blocks": [{"type": "text", "bbox": [0.1, 0.1, 0.9, 0.2], "content": "…"}]}

A bbox is in fractions of the page from its top left, tables are HTML, formulas LaTeX; other columns are ignored. Blocks
are in reading order. A page whose blocks have `"bbox": null` is scored only by its text as a whole.

A block counts as found if a box overlaps it by half (IoU); the reading of a block that is not found counts as empty.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from batchocr.config import make_config
from benchmarks.accuracy.emulated import PARTS, read_emulated
from benchmarks.accuracy.scoring import (
    Box,
    character_error_rate,
    goes_in_circles,
    matched,
    order_distance,
    sentences_lost,
    table_similarity,
)

TRUTH = "truth.jsonl"
_LOOSE, _TIGHT = 0.5, 0.75
_NO_TEXT = ("table", "equation")
_SHOWN = 70  # characters printed of each of the worst blocks


class Block(NamedTuple):
    type: str
    box: Box | None
    content: str


class Reading(NamedTuple):
    """A block's true content and the content that was read."""

    page: str
    type: str
    truth: str
    found: str


@dataclass(slots=True)
class Counts:
    """Blocks of one page, or of all: true ones, found ones, those that overlap by a half and by three quarters, those
    of the right type, those out of order."""

    true: int = 0
    found: int = 0
    right: int = 0
    right_tightly: int = 0
    right_type: int = 0
    moved: int = 0

    def add(self, other: Counts) -> None:
        for name, value in asdict(other).items():
            setattr(self, name, getattr(self, name) + value)


@dataclass(slots=True)
class PageScore:
    """text: the whole page's, true and in the order found. in_circles: of the blocks found, those that say
    something again and again."""

    page: str
    text: tuple[str, str]
    in_circles: int = 0
    counts: Counts = field(default_factory=Counts)
    readings: list[Reading] = field(default_factory=list)

    @property
    def text_error_rate(self) -> float:
        return character_error_rate([self.text])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="documents and their truth.jsonl")
    parser.add_argument("--model", required=True)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--emulate", type=lambda text: text.split(","), help=f"in fp8: {','.join(PARTS)} or some")
    parser.add_argument("--worst", type=int, default=10, help="blocks to show")
    parser.add_argument("--out", type=Path, help="JSON file for the figures, in all and per page")
    given = parser.parse_args()
    options = {"model": given.model, "device": given.device, "dtype": given.dtype}
    read = read_with_batchocr(given.folder, options, given.emulate)
    scores = score(read_pages(given.folder / TRUTH), read)
    figures = summary(scores)
    for name, value in figures.items():
        print(f"{name:32} {value:.4f}")
    for reading in worst(scores, given.worst):
        print(
            f"\n{reading.page} {reading.type}\n  truth {reading.truth[:_SHOWN]!r}\n  read  {reading.found[:_SHOWN]!r}"
        )
    if given.out:
        by_page = {score.page: {"text_error_rate": score.text_error_rate, **asdict(score.counts)} for score in scores}
        given.out.write_text(json.dumps({"figures": figures, "pages": by_page}, indent=1) + "\n")


def read_with_batchocr(
    folder: Path, options: Mapping[str, str], emulate: Sequence[str] | None = None
) -> dict[str, list[Block]]:
    """Return the blocks of every page, by page name, as the command reads them. emulate: see emulated.py."""
    with tempfile.TemporaryDirectory() as temporary:
        out = Path(temporary) / "read.jsonl"
        if emulate:
            read_emulated(folder, make_config({**options, "max_page_error_rate": 1.0}), emulate, out)
        else:
            command = [sys.executable, "-m", "batchocr", "run", str(folder), "--out", str(out)]
            given = [f"--{name}={value}" for name, value in options.items()]
            subprocess.run([*command, *given, "--max-page-error-rate", "1"], check=True)
        return read_pages(out)


def read_pages(path: Path) -> dict[str, list[Block]]:
    """Return the blocks of each page in a JSON Lines table or a truth.jsonl, by `source:page_index`."""
    pages = {}
    for line in path.read_text().splitlines():
        row: Mapping[str, Any] = json.loads(line)
        pages[f"{row['source']}:{row['page_index']}"] = [
            Block(block["type"], tuple(block["bbox"]) if block["bbox"] else None, block["content"] or "")
            for block in row["blocks"]
        ]
    return pages


def score(truth: Mapping[str, Sequence[Block]], found: Mapping[str, Sequence[Block]]) -> list[PageScore]:
    """Return a score for every page of the truth; a page that was not read is scored as having no blocks."""
    return [score_page(name, blocks, found.get(name, ())) for name, blocks in truth.items()]


def score_page(name: str, truth: Sequence[Block], found: Sequence[Block]) -> PageScore:
    text = _as_text(truth)
    in_circles = sum(goes_in_circles(text, bare(block)) for block in found if block.type not in _NO_TEXT)
    page = PageScore(name, (text, _as_text(found)), in_circles)
    true_boxes = [block.box for block in truth if block.box is not None]
    if len(true_boxes) < len(truth):
        return page
    boxes = [block.box for block in found if block.box is not None]
    partner = matched(true_boxes, boxes, _LOOSE)
    for number, block in enumerate(truth):
        content = found[partner[number]].content if number in partner else ""
        if block.type != "image":
            page.readings.append(Reading(name, block.type, bare(block), bare(block._replace(content=content))))
    page.counts = Counts(
        true=len(truth),
        found=len(found),
        right=len(partner),
        right_tightly=len(matched(true_boxes, boxes, _TIGHT)),
        right_type=sum(truth[i].type == found[j].type for i, j in partner.items()),
        moved=order_distance(partner),
    )
    return page


def bare(block: Block) -> str:
    """Return the content without a formula's delimiters and with single spaces; a table stays HTML."""
    content = block.content
    if block.type == "equation":
        content = content.strip().removeprefix("\\[").removesuffix("\\]")
    return " ".join(content.split())


def _as_text(blocks: Sequence[Block]) -> str:
    return " ".join(bare(block) for block in blocks if block.content and block.type not in _NO_TEXT)


def summary(scores: Sequence[PageScore]) -> dict[str, float]:
    """Return the figures over all pages."""
    counts = Counts()
    by_type: dict[str, list[Reading]] = defaultdict(list)
    for page in scores:
        counts.add(page.counts)
        for reading in page.readings:
            by_type[reading.type].append(reading)
    lost, sentences = (sum(counts) for counts in zip(*(sentences_lost(*page.text) for page in scores), strict=True))
    figures = {
        "text_error_rate": character_error_rate([page.text for page in scores]),
        "sentence_error_rate": lost / max(1, sentences),
        "error_blocks_in_circles": float(sum(page.in_circles for page in scores)),
    }
    if counts.true:
        figures |= {
            "layout_recall": counts.right / counts.true,
            "layout_precision": counts.right / max(1, counts.found),
            "layout_recall_tight": counts.right_tightly / counts.true,
            "layout_precision_tight": counts.right_tightly / max(1, counts.found),
            "type_accuracy": counts.right_type / max(1, counts.right),
            "order_errors": counts.moved / max(1, counts.right),
        }
    for kind, readings in sorted(by_type.items()):
        if kind == "table":
            figures["table_similarity"] = sum(_likeness(reading) for reading in readings) / len(readings)
            continue
        figures[f"error_rate_{kind}"] = character_error_rate([(reading.truth, reading.found) for reading in readings])
        if kind == "equation":
            exact = sum(reading.truth == reading.found for reading in readings)
            figures["equation_exact"] = exact / len(readings)
    return figures


def worst(scores: Sequence[PageScore], number: int) -> list[Reading]:
    """Return the blocks that were read worst."""
    return sorted((reading for page in scores for reading in page.readings), key=_likeness)[:number]


def _likeness(reading: Reading) -> float:
    if reading.type == "table":
        return table_similarity(reading.truth, reading.found)
    return 1.0 - character_error_rate([(reading.truth, reading.found)])


if __name__ == "__main__":
    main()
