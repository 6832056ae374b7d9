"""Writes glm_pages.json: pages with drawn boxes and given answers, and what glmocr 0.1.5 makes of them.

glmocr pins what we do not, so it has an environment of its own, without torch:

    python -m venv /tmp/glmocr && /tmp/glmocr/bin/pip install glmocr==0.1.5
    /tmp/glmocr/bin/python tests/support/glm_oracle.py
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
from PIL import Image

PAGES = Path(__file__).with_name("glm_pages.json")
NUM_PAGES = 40
SIZES = ((1654, 2339), (2339, 1654), (1000, 1000), (613, 877), (3500, 97))
LOOPING = "The committee met again on Monday. "
ANSWERS: dict[str, Sequence[str]] = {
    "text": (
        "Plain words in a line.",
        "  Two lines\nof one paragraph \n",
        "where $ x^2 $ is small and$y$grows",
        "$$ a + b $$",
        "· an item",
        "•another item",
        "* a third",
        "- a fourth",
        "Contents........ 7 and ______ and ····",
        "\\t\\tIndented\\t",
        "Before it loops. " + LOOPING * 80,
        "\n".join(["A", "B", *["the same"] * 300]),
        "",
        "   ",
        "数学 $\\alpha$ 很好",
        "A hyphen-\nated line",
    ),
    "doc_title": ("# A title", "A title", "## The title\nof two lines"),
    "paragraph_title": ("- 1 Introduction", "## 2 Methods", "* # 3 Results", "4 Ends"),
    "table": (
        "<table><tr><td>a</td><td>1</td></tr></table>",
        " \n<table border=1><tr><td>$ x $</td></tr></table>\n",
        "no table at all",
        "<table><tr><td>cut",
    ),
    "formula": (
        "$$E = mc^2$$",
        "$$\nx\n$$",
        "\\[ \\frac{1}{2} \\]",
        "\\( y \\)",
        "\\alpha + \\beta",
        "x = 1,....... n",
        "",
    ),
    "formula_number": ("(1)", "（2.1）"),
}
ALL_ANSWERS = sorted({answer for answers in ANSWERS.values() for answer in answers})
WIDE = ("text", "text", "text", "table", "display_formula", "image", "chart", "abstract", "algorithm", "content")
OTHERS = (
    *("aside_text", "doc_title", "figure_title", "footer", "footer_image", "footnote", "formula_number", "header"),
    *("header_image", "inline_formula", "number", "paragraph_title", "reference_content", "seal", "vertical_text"),
    *("vision_footnote", "text", "text"),
)

Box = tuple[float, float, float, float]
Found = tuple[str, float, float, float, float, float]


def main() -> None:
    for name in ("cv2", "torch", "transformers"):  # they run the detector, whose boxes are given here
        sys.modules[name] = MagicMock()
    from glmocr.config import load_config

    config = load_config().pipeline
    for switch in ("enable_merge_formula_numbers", "enable_merge_text_blocks", "enable_format_bullet_points"):
        setattr(config.result_formatter, switch, False)  # they join blocks, which we keep apart
    dice = random.Random(0)
    pages = [page_of(config, dice, SIZES[number % len(SIZES)]) for number in range(NUM_PAGES)]
    lines = ",\n".join(json.dumps(page, ensure_ascii=False) for page in pages)
    PAGES.write_text(f'{{"answers": {json.dumps(ALL_ANSWERS, ensure_ascii=False)}, "pages": [\n{lines}\n]}}\n', "utf-8")


def page_of(config: Any, dice: random.Random, size: tuple[int, int]) -> dict[str, Any]:
    """A page: its size, what a detector found, and each region that the pipeline has, with its answer and content."""
    from glmocr.postprocess.result_formatter import ResultFormatter
    from glmocr.utils.image_utils import crop_image_region

    while collide(found := list(drawn(dice))):
        pass
    regions = regions_of(config.layout, found, size)
    page = Image.new("RGB", size)
    for region in regions:
        task = region["task_type"]
        answers = ANSWERS.get(region["label"], ANSWERS.get(task, ()))
        region["answer"] = region["content"] = dice.choice(answers) if answers else None
    formatted, _, _ = ResultFormatter(config.result_formatter).process([regions])
    contents = {tuple(each["bbox_2d"]): each["content"] for each in json.loads(formatted)[0]}
    prompts = config.page_loader.task_prompt_mapping
    expected = [
        {
            "label": region["label"],
            "box": region["bbox_2d"],
            "prompt": prompts.get(region["task_type"]),
            "crop": crop_image_region(page, region["bbox_2d"]).size,
            "answer": ALL_ANSWERS.index(region["answer"]) if prompts.get(region["task_type"]) else None,
            "content": contents.get(tuple(region["bbox_2d"])),
        }
        for region in regions
    ]
    return {"size": size, "found": found, "regions": expected}


def drawn(dice: random.Random) -> Iterator[Found]:
    """Yield boxes as a detector may find them: rows of one or two columns, some found twice, some within others."""
    top = 0.02
    while top < 0.9:
        height = dice.uniform(0.015, 0.12)
        num_columns = dice.choice((1, 1, 2, 3))
        for column in range(num_columns):
            left = 0.05 + 0.9 * column / num_columns
            box = (left, top, left + 0.9 / num_columns - 0.01, top + height)
            label = dice.choice(WIDE + OTHERS)
            yield found_at(dice, label, box)
            yield from beside(dice, label, box)
        top += height + dice.uniform(0.001, 0.02)
    if dice.random() < 0.3:
        yield found_at(dice, "reference", (0.04, 0.9, 0.5, 1.01))
        yield found_at(dice, "reference_content", (0.05, 0.91, 0.49, 0.94))
        if dice.random() < 0.5:
            yield found_at(dice, "reference", (0.05, 0.95, 0.4, 0.98))
    if dice.random() < 0.3:
        yield found_at(dice, "image", (-0.01, -0.01, 1.01, 0.91 if dice.random() < 0.5 else 1.0))


def beside(dice: random.Random, label: str, box: Box) -> Iterator[Found]:
    """Yield what else may be found at the place of a box."""
    x0, y0, x1, y1 = box
    chance = dice.random()
    if chance < 0.15:  # the same, a little shifted
        shift = dice.uniform(0, 0.3) * (x1 - x0)
        yield found_at(dice, label, (x0 + shift, y0, x1 + shift, y1))
    elif chance < 0.3:  # something within, or over an edge
        part = dice.choice((0.5, 0.75, 0.85))
        yield found_at(dice, dice.choice(OTHERS), (x0, y1 - 0.5 * (y1 - y0) * part, x1 - 0.3, y1 + 0.4 * (1 - part)))
    elif chance < 0.4:
        middle = (x0 + 0.02, y0 + 0.2 * (y1 - y0), x0 + 0.06, y1 - 0.3 * (y1 - y0))
        yield found_at(dice, dice.choice(("seal", "chart", "text", "inline_formula")), middle)


def found_at(dice: random.Random, label: str, box: Box) -> Found:
    x0, y0, x1, y1 = (round(edge + dice.uniform(-0.002, 0.002), 5) for edge in box)
    return (label, round(dice.uniform(0.3, 0.99), 4), x0, y0, x1, y1)


def collide(found: Sequence[Found]) -> bool:
    """Whether two boxes hold each other, one other than `reference` holds a `reference`, or two scores are the same:
    there we differ."""
    held = [(one, other) for one in found for other in found if one is not other and share_within(one, other) >= 0.8]
    return len({score for _, score, *_ in found}) < len(found) or any(
        (other, one) in held or (one[0] == "reference" != other[0]) for one, other in held
    )


def share_within(one: Found, other: Found) -> float:
    """How much of one box lies in the other."""
    width = min(one[4], other[4]) - max(one[2], other[2])
    height = min(one[5], other[5]) - max(one[3], other[3])
    area = (one[4] - one[2]) * (one[5] - one[3])
    return max(0.0, width) * max(0.0, height) / area if area > 0 else 0.0


class Tensor:
    def __init__(self, values: Any) -> None:
        self._values = np.array(values)

    def cpu(self) -> Tensor:
        return self

    def numpy(self) -> Any:
        return self._values


def regions_of(layout: Any, found: Sequence[Found], size: tuple[int, int]) -> list[dict[str, Any]]:
    """What glmocr's own detector class makes of these boxes, in place of those of its model."""
    from glmocr.layout.layout_detector import PPDocLayoutDetector

    detector = PPDocLayoutDetector(layout)
    labels = {name: number for number, name in detector.id2label.items()}
    raw = {
        "scores": Tensor([score for _, score, *_ in found]),
        "labels": Tensor([labels[label] for label, *_ in found]),
        "boxes": Tensor([[x0 * size[0], y0 * size[1], x1 * size[0], y1 * size[1]] for *_, x0, y0, x1, y1 in found]),
        "order_seq": Tensor(range(1, len(found) + 1)),
    }
    detector._model, detector._device = MagicMock(), "cpu"
    detector._image_processor = MagicMock(post_process_object_detection=lambda *_, **__: [raw])
    regions, _ = detector.process([Image.new("RGB", size)])
    return regions[0]


if __name__ == "__main__":
    main()
